"""Reconciling in pages: orphans, progress, where a call that was interrupted goes on."""

from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.sqlalchemy_side import BothSides
from tests.support.votes_strategies import over_memory

STRATEGIES = ["naive", "slotted", "batched", "cached"]


def made(sides: BothSides, strategy: Any, items: int) -> hotcount.Votes:
    votes = over_memory(sides.database, strategy, foreign_key=False, fold_interval=3600)
    votes.create_tables(timeout=20)
    votes.add_items(range(1, items + 1))
    return votes


def lose_the_counts_of_votes(sides: BothSides, *items: int) -> None:
    for item in items:
        sides.run(f"INSERT INTO vote (item_id, user_id, val, prev) VALUES ({item}, 900, 1, 0)")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_orphans_are_named_until_they_are_removed(sides: BothSides, strategy: str) -> None:
    votes = made(sides, strategy, 6)
    votes.cast_many([1, 2, 2, 3, 6], [7, 7, 8, 7, 7])
    votes.cast(4, None, op_id="a")
    votes.flush(timeout=20)
    sides.run(
        "INSERT INTO vote_cell (item, slot, n, ver) VALUES (5, -2, 40, 1)",
        "DELETE FROM item WHERE id IN (2, 4, 5, 6)",
        # Of item 6 only a retracted vote is left: nothing that counts.
        "UPDATE vote SET val = 0 WHERE item_id = 6",
        "DELETE FROM vote_cell WHERE item = 6",
    )
    found = votes.reconcile(dry_run=True, timeout=20)
    assert [(drift.item, drift.actual) for drift in found] == [(2, 2), (4, 1), (5, 40)]
    assert all(drift.orphan for drift in found)
    assert [drift.item for drift in votes.reconcile(timeout=20)] == [2, 4, 5]
    assert [drift.item for drift in votes.reconcile([1, 2, 5], timeout=20)] == [2, 5]
    assert sides.run("SELECT COUNT(*) FROM vote WHERE item_id = 2") == [(2,)]
    for item in (2, 4, 5):
        votes.remove_item(item, timeout=20)
    assert votes.reconcile(timeout=20) == []
    assert int(votes.count(1, consistency="exact")) == 1


@pytest.mark.parametrize("strategy", ["slotted", "batched"])
def test_an_item_made_again_begins_at_0(sides: BothSides, strategy: str) -> None:
    votes = made(sides, strategy, 3)
    votes.cast_many([1, 2, 2], [7, 7, 8])
    votes.flush(timeout=20)
    votes.cast(2, 9)  # On servers it waits in the journal.
    sides.run("DELETE FROM item WHERE id = 2", "DELETE FROM vote WHERE item_id = 2")
    found = votes.reconcile(timeout=20)
    if sides.dialect != "sqlite" or strategy == "slotted":
        assert found == [hotcount.Drift(2, 3, 0, orphan=True)]
    assert votes.reconcile(timeout=20) == []
    votes.add_items([2])
    assert [int(votes.count(item)) for item in (1, 2)] == [1, 0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_reconcile_goes_on_where_it_was_stopped(sides: BothSides, strategy: str) -> None:
    votes = made(sides, strategy, 1_200)
    wrong = [1, 2, 1_100, 1_200]
    lose_the_counts_of_votes(sides, *wrong)
    told: list[tuple[Any, int, int]] = []

    def stop(last: Any, items: int, drifts: int) -> None:
        told.append((last, items, drifts))
        raise KeyError(last)

    with pytest.raises(KeyError):
        votes.reconcile(progress=stop, timeout=20)
    ((last, items, drifts),) = told
    assert (last, drifts) == (items, 2)
    assert items < 1_100
    # What was done stays done; what follows is found from there on.
    assert [drift.item for drift in votes.reconcile(dry_run=True, timeout=20)] == [1_100, 1_200]
    assert votes.reconcile(after=1_200, timeout=20) == []
    pages: list[tuple[Any, int, int]] = []
    found = votes.reconcile(after=last, progress=lambda *page: pages.append(page), timeout=20)
    assert [(drift.item, drift.actual) for drift in found] == [(1_100, 1), (1_200, 1)]
    lasts = [page[0] for page in pages if page[0] is not None]
    assert lasts == sorted(lasts)
    assert lasts[-1] == 1_200
    assert pages[-1] == (None, 1_200 - last, 2)  # Of the orphans, told after all items.
    assert votes.reconcile(timeout=20) == []
    votes.flush(timeout=20)
    assert [int(n) for n in votes.count_many(wrong, consistency="exact")] == [1, 1, 1, 1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_named_items_are_reconciled_in_pages_too(sides: BothSides, strategy: str) -> None:
    votes = made(sides, strategy, 1_200)
    lose_the_counts_of_votes(sides, 1, 2, 1_100)
    pages: list[tuple[Any, int, int]] = []
    named = [1_100, *range(2, 1_000), 2, 5_000]
    found = votes.reconcile(named, progress=lambda *page: pages.append(page), timeout=20)
    assert sorted(drift.item for drift in found) == [2, 1_100]
    assert len(pages) > 1
    assert {page[0] for page in pages} == {None}
    assert [drift.item for drift in votes.reconcile(timeout=20)] == [1]


def test_bad_arguments_of_a_reconcile_are_refused(database: hotcount.Database) -> None:
    votes = hotcount.Votes(database)
    votes.create_tables()
    with pytest.raises(hotcount.ConfigError, match="after"):
        votes.reconcile([1], after=1)
    with pytest.raises(TypeError, match="after"):
        votes.reconcile(after="a")
    with pytest.raises(TypeError, match="progress"):
        votes.reconcile(progress=1)  # type: ignore[arg-type]


async def test_event_loops_reconcile_with_progress(database: hotcount.Database) -> None:
    votes = aio.Votes(database)
    await votes.create_tables()
    await votes.add_items(range(1, 200))
    pages: list[tuple[Any, int, int]] = []
    assert await votes.reconcile(progress=lambda *page: pages.append(page)) == []
    assert [page[0] for page in pages if page[0] is not None][-1] == 199

    def stop(*_: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        await votes.reconcile(progress=stop)
    await votes.aclose()
