"""Cleaning: items removed, users erased, retracted votes pruned, with every strategy."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import hotcount
import pytest
from hotcount import Votes, aio
from hotcount.integrations.sqlalchemy import cast_vote

from tests.support.likes import make_items
from tests.support.sqlalchemy_side import BothSides
from tests.support.together import together
from tests.support.votes_strategies import is_consistent, make_votes, over_memory

STRATEGIES = ["naive", "slotted", "batched", "cached"]


def counts(votes: Votes, *items: int) -> list[int]:
    return [int(count) for count in votes.count_many(items, consistency="exact")]


def test_a_removed_item_counts_nothing_and_the_others_what_they_did(votes: Votes) -> None:
    votes.cast_many([1, 1, 1, 2, 2], [7, 8, 9, 7, 8], [1, -1, 4, 1, 1])
    votes.retract(1, 8)
    votes.cast(1, None, op_id="a")
    votes.cast(2, None, op_id="a")
    votes.flush(timeout=20)
    votes.cast(1, 10)
    assert votes.remove_item(1) == 4
    assert (int(votes.count(1)), votes.voters(1), votes.get(1, 7)) == (0, [], 0)
    assert counts(votes, 1, 2) == [0, 3]
    votes.flush(timeout=20)
    assert (int(votes.count(1)), int(votes.count(2))) == (0, 3)
    assert is_consistent(votes)
    assert votes.remove_item(1) == 0


@pytest.mark.cast_writes
def test_an_item_made_again_begins_at_0(database: hotcount.Database, strategy: str) -> None:
    votes = make_votes(database, strategy, items=[1, 2])
    votes.cast_many([1, 1, 2], [7, 8, 7])
    votes.flush(timeout=20)
    votes.cast(1, 9)
    assert votes.remove_item(1, delete_row=True) == 3
    with pytest.raises(hotcount.IntegrityError):
        votes.cast(1, 7)
    votes.add_items([1])
    assert int(votes.count(1)) == 0
    assert votes.cast(1, 7).previous == 0
    assert int(votes.count(1)) <= 1
    votes.flush(timeout=20)
    assert counts(votes, 1, 2) == [1, 1]
    assert int(votes.count(1)) == 1
    assert is_consistent(votes)


def test_an_item_that_is_removed_while_it_is_voted_for_keeps_its_count_right(votes: Votes) -> None:
    stop = threading.Event()

    def work(index: int) -> int:
        if index == 0:
            try:
                return sum(votes.remove_item(1, timeout=20) for _ in range(3))
            finally:
                stop.set()
        done = 0
        for user in range(index * 1000, index * 1000 + 1000):
            if stop.is_set():
                break
            votes.cast(1, user % 1007, 1 + user % 2, timeout=20)
            votes.cast(2, user, timeout=20)
            done += 1
        return done

    done = together(work, 5)
    assert counts(votes, 1)[0] == votes.tally(1).score
    assert counts(votes, 2)[0] == sum(done[1:])
    votes.flush(timeout=20)
    assert is_consistent(votes)


def test_more_votes_than_a_page_are_removed(votes: Votes) -> None:
    users = range(1200)
    votes.cast_many([1] * 1200, users)
    assert votes.remove_item(1) == 1200
    assert counts(votes, 1) == [0]
    assert is_consistent(votes)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_opening_balance_goes_with_its_item(sides: BothSides, strategy: Any) -> None:
    make_items(sides, ", vote_count {int} NOT NULL")
    sides.run("INSERT INTO item VALUES (1, 500), (2, 30)")
    votes = over_memory(sides.database, strategy)
    votes.create_tables(existing_counts="keep", timeout=20)
    votes.cast_many([1, 2], [7, 7])
    assert counts(votes, 1, 2) == [501, 31]
    assert votes.remove_item(1) == 1
    assert counts(votes, 1, 2) == [0, 31]
    assert is_consistent(votes)


def test_an_erased_user_is_in_no_count_and_no_list(votes: Votes) -> None:
    votes.cast_many([1, 2, 3, 1, 2], [7, 7, 7, 8, 8], [1, -2, 5, 1, 1])
    votes.retract(3, 7)
    votes.flush(timeout=20)
    votes.cast(3, 8)
    assert votes.erase_user(7) == 2
    assert list(votes.get_many([1, 2, 3], 7)) == [0, 0, 0]
    assert counts(votes, 1, 2, 3) == [1, 1, 1]
    votes.flush(timeout=20)
    assert [int(votes.count(item)) for item in (1, 2, 3)] == [1, 1, 1]
    assert is_consistent(votes)
    assert votes.erase_user(7) == 0
    # Who comes back begins anew. write_behind does not know what a vote was before.
    assert votes.cast(1, 7).previous == (None if votes.strategy == "write_behind" else 0)


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_user_of_many_votes_is_erased_with_and_without_an_index(
    sides: BothSides, strategy: Any, indexed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    items = range(1300)
    votes = over_memory(sides.database, strategy, missing_items="create")
    votes.create_tables(timeout=20)
    with sides.engine.begin() as connection:
        for item in items:
            for user in (7, 8) if item % 10 == 0 else (7,):
                cast_vote(connection, votes, item, user)
    if indexed:
        sides.run("CREATE INDEX vote_by_user ON vote (user_id, item_id)")
    votes.flush(timeout=20)
    with caplog.at_level(logging.WARNING, "hotcount"):
        assert [votes.erase_user(7), votes.erase_user(7)] == [1300, 0]
    warned = [record.getMessage() for record in caplog.records]
    warned = [text for text in warned if "erase_user" in text]
    assert len(warned) == (0 if indexed else 1)
    if not indexed:
        index = 'CREATE INDEX "vote_by_user" ON "vote" ("user_id", "item_id")'
        assert index.replace('"', "`" if sides.dialect == "mariadb" else '"') in warned[0]
    assert sum(counts(votes, *items)) == 130
    assert is_consistent(votes)


def test_a_user_who_votes_while_being_erased_is_counted_as_the_votes_say(votes: Votes) -> None:
    def work(index: int) -> int:
        if index < 2:
            return sum(votes.erase_user(7, timeout=20) for _ in range(5))
        for value in range(1, 20):
            votes.cast(1 + index % 3, 7, value, timeout=20)
            votes.cast(1 + index % 3, 100 + index, timeout=20)
        return 0

    together(work, 8)
    votes.erase_user(7)
    assert [votes.get(item, 7) for item in (1, 2, 3)] == [0, 0, 0]
    assert sum(counts(votes, 1, 2, 3)) == 6
    votes.flush(timeout=20)
    assert is_consistent(votes)


@pytest.mark.cast_writes
def test_prune_deletes_retracted_votes_of_lower_versions_and_changes_no_count(votes: Votes) -> None:
    for user, version in ((1, 5), (2, 9), (3, 10), (4, None)):
        votes.cast(1, user, version=None if version is None else version - 1)
        votes.retract(1, user, version=version)
    votes.cast(1, 5, version=3)
    votes.cast(1, 6)
    assert votes.prune(before=10) == 3
    assert counts(votes, 1) == [2]
    # What is still there refuses an older version; what was pruned does not.
    assert votes.cast(1, 3, version=9).changed is False
    assert votes.cast(1, 1, version=4).changed is True
    assert votes.prune(before=11) == 1
    assert is_consistent(votes)


def test_prune_goes_through_more_rows_than_a_slice(database: hotcount.Database) -> None:
    votes = make_votes(database, "batched", missing_items="create")
    users = range(12_000)
    items = [user % 3 for user in users]
    votes.cast_many(items, users, 0, timeout=60)
    votes.cast_many(items[::100], users[::100], 1)
    assert votes.prune(before=0) == 12_000 - 120
    assert sum(counts(votes, 0, 1, 2)) == 120
    assert votes.prune(before=0) == 0


def test_cleaning_refuses_tables_that_another_strategy_counts(database: hotcount.Database) -> None:
    make_votes(database, "naive")
    with hotcount.Memory() as memory:
        late = Votes(database, memory, "cached")
        calls: list[Callable[[], int]] = [lambda: late.remove_item(1), lambda: late.erase_user(1)]
        for call in calls:
            with pytest.raises(hotcount.ConfigError, match="create_tables"):
                call()


@pytest.mark.parametrize("item_count", ["Likes", None])
def test_tables_may_have_other_names(database: hotcount.Database, item_count: str | None) -> None:
    names = {
        "item_table": "Blog Post", "item_id": "post no", "vote_table": "the likes",
        "vote_item": "post", "vote_user": "who", "vote_value": "points",
        "vote_previous": "points before", "vote_version": "edit",
    }  # fmt: skip
    votes = make_votes(database, "batched", item_count=item_count, **names, items=[1, 2])
    votes.cast_many([1, 1, 2], [7, 8, 7], [1, -1, 4])
    assert (votes.get(2, 7), list(votes.get_many([2, 1], 8))) == (4, [0, -1])
    assert votes.voters(1) == [(7, 1), (8, -1)]
    assert votes.tally(1) == hotcount.Tally(1, 1, 0)
    assert votes.toggle(2, 9).value == 1
    votes.flush(timeout=20)
    if item_count is None:
        with pytest.raises(hotcount.ConfigError, match="item_count"):
            votes.top(1)
    else:
        assert votes.top(1) == [(2, 5)]
    assert votes.erase_user(7) == 2
    assert counts(votes, 1, 2) == [-1, 1]
    votes.retract(1, 8, version=3)
    assert votes.prune(before=4) == 1
    assert votes.remove_item(2, delete_row=True) == 1
    assert counts(votes, 1, 2) == [0, 0]
    assert is_consistent(votes)


async def test_event_loops_clean_too(database: hotcount.Database) -> None:
    votes = aio.Votes(database)
    await votes.create_tables()
    await votes.add_items([1, 2])
    await votes.cast_many([1, 2, 1], [7, 7, 8])
    assert await votes.erase_user(7) == 2
    assert await votes.remove_item(1, delete_row=True) == 1
    await votes.retract(2, 9)
    assert await votes.prune(before=0) == 1
    assert [int(each) for each in await votes.count_many([1, 2])] == [0, 0]
    await votes.aclose()
