"""Tables of the application's own, asked and cleaned: rows without a user, and narrow columns."""

from __future__ import annotations

from typing import Any

import hotcount
import pytest

from tests.support.likes import words
from tests.support.sql_scripts import run_script
from tests.support.sqlalchemy_side import BothSides


def adopted(sides: BothSides, rows: int, strategy: Any = "batched") -> hotcount.Votes:
    """Items 1 to 3; the first has `rows` votes without a user."""
    w = words(sides)
    sides.run(
        f"CREATE TABLE item (id {w['serial']}, vote_count {w['int']})",
        f"CREATE TABLE vote (id {w['serial']}, item_id {w['int']} NOT NULL)",
        "INSERT INTO item (vote_count) VALUES (0), (0), (0)",
        *["INSERT INTO vote (item_id) VALUES " + ", ".join(["(1)"] * 1000)] * (rows // 1000),
        "INSERT INTO vote (item_id) VALUES (1), (2), (2)",
    )
    votes = hotcount.Votes(sides.database, None, strategy, fold_interval=3600)
    run_script(sides, votes.migration(existing_counts="recount"))
    votes.create_tables(existing_counts="recount", timeout=20)
    return votes


def counts(votes: hotcount.Votes) -> list[int]:
    return [int(count) for count in votes.count_many([1, 2, 3])]


@pytest.mark.parametrize("strategy", ["naive", "batched"])
def test_rows_without_a_user_are_listed_nowhere_and_go_with_their_item(
    sides: BothSides, strategy: Any
) -> None:
    votes = adopted(sides, 1000, strategy)
    votes.cast_many([1, 1, 2, 3], [7, 8, 7, 7], [1, -1, 1, 1])
    assert counts(votes) == [1001, 3, 1]
    assert votes.voters(1) == [(7, 1), (8, -1)]
    assert votes.voters(2, limit=1) == [(7, 1)]
    assert votes.tally(1) == hotcount.Tally(1002, 1, 1001)
    assert votes.remove_item(2) == 3
    assert counts(votes) == [1001, 0, 1]
    assert votes.remove_item(1, delete_row=True) == 1003
    assert counts(votes) == [0, 0, 1]
    votes.flush(20)
    assert votes.reconcile(dry_run=True) == []


def test_a_scan_for_a_user_passes_over_rows_without_one(sides: BothSides) -> None:
    votes = adopted(sides, 11_000)
    votes.cast_many([1, 2, 3, 3], [7, 7, 7, 8])
    votes.retract(3, 8)
    assert votes.erase_user(7) == 3
    assert counts(votes) == [11_001, 2, 0]
    assert votes.prune(before=1) == 1
    assert votes.reconcile(dry_run=True) == []


def test_an_id_that_no_column_can_hold_has_no_votes(sides: BothSides) -> None:
    sides.run(
        "CREATE TABLE item (id INTEGER NOT NULL PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)",
        "CREATE TABLE vote (item_id INTEGER NOT NULL, user_id INTEGER NOT NULL, val BIGINT NOT "
        "NULL DEFAULT 1, prev BIGINT NOT NULL DEFAULT 0, version BIGINT, "
        "PRIMARY KEY (item_id, user_id))",
    )
    votes = hotcount.Votes(sides.database, foreign_key=False)
    votes.create_tables(timeout=20)
    votes.add_items([1])
    votes.cast(1, 7)
    huge = 2**40
    assert (votes.get(huge, 7), votes.get(1, huge)) == (0, 0)
    assert list(votes.get_many([huge, 1], 7)) == [0, 1]
    assert list(votes.get_many([1], huge)) == [0]
    assert (votes.voters(huge), votes.voters(1, after=huge)) == ([], [])
    assert votes.voters(1, after=-huge) == [(7, 1)]
    assert votes.tally(huge) == hotcount.Tally(0, 0, 0)
    assert (votes.erase_user(huge), votes.remove_item(huge)) == (0, 0)
    with pytest.raises(hotcount.IntegrityError):
        votes.toggle(huge, 7)
    assert int(votes.count(1)) == 1
