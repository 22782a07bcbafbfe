"""Reconciling on the servers, beside votes that wait in the journal and transactions in the way."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import hotcount
import pytest

from tests.support.journal_side import JournalSide
from tests.support.servers import PostgresDatabase
from tests.support.together import together

pytestmark = pytest.mark.server


def lose_the_count_of_a_vote(side: JournalSide, item: int, user: int) -> None:
    side.run(f"INSERT INTO vote (item_id, user_id, val, prev) VALUES ({item}, {user}, 1, 0)")


def test_a_difference_is_found_beside_votes_that_wait_to_be_folded(side: JournalSide) -> None:
    votes = side.made()
    side.vote(1, 1, 2)
    side.vote(2, 1)
    lose_the_count_of_a_vote(side, 1, 3)
    dry = [(drift.item, drift.counted, drift.actual) for drift in votes.reconcile(dry_run=True)]
    assert dry == [(1, 2, 3)]
    assert int(votes.count(1)) == 2
    assert len(votes.reconcile()) == 1
    assert (int(votes.count(1)), side.shown(1)) == (3, 3)
    assert votes.reconcile() == []


def test_a_count_in_the_item_row_alone_that_is_wrong_is_set_right(side: JournalSide) -> None:
    votes = side.made()
    side.vote(1, 1)
    votes.flush(20)
    side.run("UPDATE item SET vote_count = 77 WHERE id = 1")
    drifts = [(drift.item, drift.counted, drift.actual) for drift in votes.reconcile([1])]
    assert drifts == [(1, 77, 1)]
    assert (side.shown(1), int(votes.count(1))) == (1, 1)


def test_an_item_whose_count_leaves_64_bits_keeps_no_other_from_being_reconciled(
    side: JournalSide,
) -> None:
    votes = side.made()
    votes.add_items(list(range(4, 1_500)))
    most = 2**63 - 1
    side.run(f"INSERT INTO vote_journal (item, diff) VALUES (2, {most}), (2, {most})")
    for item in (1, 3, 1_400):
        lose_the_count_of_a_vote(side, item, 1)
    for items in (None, [1, 2, 3, 1_400]):
        with pytest.raises(
            hotcount.CounterOverflowError,
            match=r"item 2 would leave .* all other items were looked",
        ):
            votes.reconcile(items, dry_run=True)
    with pytest.raises(hotcount.CounterOverflowError, match="all other items were reconciled"):
        votes.reconcile()
    assert [int(n) for n in votes.count_many([1, 3, 1_400])] == [1, 1, 1]
    assert [side.shown(item) for item in (1, 3, 1_400)] == [1, 1, 1]
    side.run("DELETE FROM vote_journal WHERE item = 2")
    assert votes.reconcile() == []


def test_a_reconcile_that_finds_nothing_waits_for_no_lock(side: JournalSide) -> None:
    votes = side.made()
    side.vote(1, 1)
    with side.session() as other:
        other.execute("SELECT value FROM vote_meta ORDER BY name FOR UPDATE")
        other.execute("SELECT id FROM item FOR UPDATE")
        assert votes.reconcile(timeout=20) == []


def test_a_reconcile_that_fails_says_where_to_go_on(side: JournalSide) -> None:
    votes = side.made()
    votes.add_items(range(4, 301))
    for item in (1, 2, 300):
        lose_the_count_of_a_vote(side, item, 1)
    with ExitStack() as stack:

        def hold(*_: Any) -> None:
            other = stack.enter_context(side.session())
            other.execute("SELECT value FROM vote_meta WHERE name = 'schema' FOR UPDATE")
            assert int(votes.count(1)) == 1

        last: list[int] = []

        def progress(item: int, *_: Any) -> None:
            if not last:
                hold()
            last.append(item)

        with pytest.raises(
            (hotcount.DeadlineError, hotcount.UnavailableError), match=r"after=\d+ goes on"
        ) as raised:
            votes.reconcile(progress=progress, timeout=1)
        assert f"all up to {last[-1]}: after={last[-1]} goes on from there" in str(raised.value)
    assert [drift.item for drift in votes.reconcile(after=last[-1], timeout=20)] == [300]
    assert votes.reconcile(timeout=20) == []


def test_a_page_beside_a_reader_of_all_locks_is_one_transaction(side: JournalSide) -> None:
    """Votes, folds and a switch of the strategy go on between two pages."""
    votes = side.made()
    votes.add_items(range(4, 301))
    for item in (1, 300):
        lose_the_count_of_a_vote(side, item, 1)
    seen: list[int] = []

    def between(*_: Any) -> None:
        side.run("SELECT value FROM vote_meta ORDER BY name FOR UPDATE")
        votes.cast(2, 100 + len(seen), timeout=20)
        seen.append(votes.flush(20).pending)

    assert [drift.item for drift in votes.reconcile(progress=between, timeout=20)] == [1, 300]
    assert len(seen) > 3
    assert set(seen) == {0}
    assert int(votes.count(2)) == len(seen)
    assert votes.reconcile() == []


def test_a_reconcile_waits_for_nobody_who_holds_an_item(side: JournalSide) -> None:
    votes = side.made()
    lose_the_count_of_a_vote(side, 1, 1)
    lose_the_count_of_a_vote(side, 2, 1)
    with side.session() as other:
        other.execute("UPDATE item SET vote_count = vote_count WHERE id = 1")
        assert len(votes.reconcile(timeout=20)) == 2
        assert (int(votes.count(1)), side.shown(1), side.shown(2)) == (1, 0, 1)
    votes.flush(20)
    assert side.shown(1) == 1


def test_a_reconcile_keeps_an_opening_balance(side: JournalSide) -> None:
    votes = side.made()
    side.run("INSERT INTO vote_cell (item, slot, n, ver) VALUES (1, -2, 40, 1)")
    side.vote(1, 1)
    votes.flush(20)
    lose_the_count_of_a_vote(side, 1, 2)
    assert [drift.actual for drift in votes.reconcile()] == [42]
    assert (int(votes.count(1)), side.shown(1)) == (42, 42)


def test_slotted_votes_that_are_not_shown_yet_are_no_drift(side: JournalSide) -> None:
    votes = side.made("slotted")
    votes.cast(1, 1)
    assert side.shown(1) == 0
    assert votes.reconcile(dry_run=True) == []
    side.vote(1, 2)  # By 'batched', beside it.
    assert votes.reconcile() == []
    assert int(votes.count(1)) == 2
    assert votes.flush(20).pending == 0
    assert (side.shown(1), side.pending()) == (2, 0)


def test_votes_folds_and_reconciles_at_once_come_out_right(side: JournalSide) -> None:
    several = [side.made(), side.votes(), side.votes()]

    def work(index: int) -> None:
        votes = several[index % 3]
        for k in range(5):
            side.vote(1 + k % 2, 100 * index + k)
            if index % 2:
                votes.flush(20)
            else:
                assert votes.reconcile(timeout=20) == []

    together(work, 6)
    several[0].flush(20)
    assert [side.shown(item) for item in (1, 2)] == [18, 12]
    assert several[0].reconcile(dry_run=True) == []


def test_an_orphan_whose_id_is_too_wide_for_the_item_table_is_named(
    strategy: Any, postgres: PostgresDatabase
) -> None:
    wide = 5_000_000_000
    postgres.psql(
        "CREATE TABLE item (id INTEGER PRIMARY KEY, vote_count BIGINT NOT NULL DEFAULT 0)"
    )
    with (
        hotcount.Database(postgres.url, timeout=30) as database,
        hotcount.Votes(database, strategy=strategy, foreign_key=False) as votes,
    ):
        votes.create_tables()
        votes.add_items([1, 2])
        votes.cast(1, 1)
        votes.cast(2, 1)
        postgres.psql(f"INSERT INTO vote (item_id, user_id, val) VALUES (2, 2, 1), ({wide}, 1, 1)")
        told = {drift.item: drift.orphan for drift in votes.reconcile()}
        assert told == {2: False, wide: True}
        assert [int(count) for count in votes.count_many([1, 2])] == [1, 2]
        assert votes.reconcile([1, wide])[0].item == wide
        assert [drift.item for drift in votes.reconcile(after=wide)] == [wide]
        assert [drift.item for drift in votes.reconcile(after=-wide)] == [wide]
        assert votes.erase_user(1) == 3
        assert votes.reconcile() == []
