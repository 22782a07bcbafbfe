"""create_tables() over tables that are there: of another strategy, or not all of them."""

from __future__ import annotations

import hotcount
import pytest

from tests.support.journal_side import JournalSide

pytestmark = pytest.mark.server


@pytest.mark.parametrize("missing", ["TABLE vote_journal", "VIEW vote_count", "VIEW vote_live"])
def test_create_tables_makes_what_is_missing_of_tables_that_are_counted(
    side: JournalSide, missing: str
) -> None:
    votes = side.made()
    cascades = side.dialect == "postgresql" and missing.startswith("TABLE")
    side.run(f"DROP {missing}{' CASCADE' if cascades else ''}")
    votes.create_tables(timeout=20)
    side.vote(1, 1)
    assert (int(votes.count(1)), side.seen()) == (1, 1)


def test_create_tables_writes_the_mark_of_folds_where_it_is_gone(side: JournalSide) -> None:
    votes = side.made()
    side.run("DELETE FROM vote_meta WHERE name IN ('folded_at', 'fold_took')")
    side.vote(1, 1)
    votes.create_tables(timeout=20)
    side.vote(1, 2)
    assert votes.flush(20).pending == 0
    assert (side.shown(), int(votes.count(1)), side.pending()) == (2, 2, 0)


def test_create_tables_waits_for_nobody_where_nothing_changes(side: JournalSide) -> None:
    side.made()
    with side.session() as other:
        other.execute("SELECT * FROM vote_count")
        other.execute("SELECT value FROM vote_meta FOR UPDATE")
        other.execute("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 1, 1, 0)")
        side.votes().create_tables(timeout=20)
        side.votes().create_tables(timeout=20)


@pytest.mark.parametrize("after", ["naive", "cached"])
def test_pending_votes_go_over_to_another_strategy_and_back(side: JournalSide, after: str) -> None:
    votes = side.made()
    side.vote(1, 1, 2)
    cache = hotcount.Memory() if after == "cached" else None
    other = side.votes(after, cache=cache)
    other.create_tables(timeout=20)
    assert (int(other.count(1)), side.shown(), side.seen()) == (2, 2, 2)
    other.cast(1, 3)
    other.flush(20)
    with pytest.raises(hotcount.ConfigError, match="create_tables"):
        votes.flush(20)
    # Nothing is left in it that would be counted again.
    assert side.pending() == 0
    votes.create_tables(timeout=20)
    assert (int(votes.count(1)), side.shown(), side.seen()) == (3, 3, 3)
    assert votes.reconcile(dry_run=True) == []
