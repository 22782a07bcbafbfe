"""with_count=True: a vote's answer carries the item's count, and the vote is in it."""

import asyncio
import dataclasses
import json
import pickle
import time
from typing import Any

import hotcount
import pytest
from hotcount import Cast, Casts, Count, Database, Votes, aio

from tests.support.together import together
from tests.support.votes_strategies import is_consistent, make_votes


def test_a_count_is_told_only_if_it_is_asked_for(votes: Votes) -> None:
    assert votes.cast(1, 7).count is None
    assert votes.toggle(1, 7).count is None
    assert votes.retract(1, 7).count is None
    assert votes.cast(1, 7, with_count=True).count is not None


@pytest.mark.cast_writes
def test_the_count_has_the_vote_whatever_the_vote_was(votes: Votes) -> None:
    told = [
        votes.cast(1, 7, 5, with_count=True),
        votes.cast(1, 8, -2, with_count=True),
        votes.cast(1, 8, -2, with_count=True),  # changes nothing
        votes.cast(1, None, op_id="a", with_count=True),
        votes.retract(1, 7, with_count=True),
        votes.toggle(1, 7, with_count=True),
        votes.toggle(1, 7, with_count=True),
        votes.cast(2, 7, with_count=True),
    ]
    assert [int(cast.count or 0) for cast in told] == [5, 3, 3, 4, -1, 0, -1, 1]
    assert [cast.value for cast in told] == [5, -2, -2, 1, 0, 1, 0, 1]
    assert is_consistent(votes)


@pytest.mark.cast_writes
def test_the_count_says_where_it_comes_from_and_when(votes: Votes, strategy: str) -> None:
    before = time.time()
    counts = [votes.cast(1, user, with_count=True).count for user in range(3)]
    for value, count in enumerate(counts, 1):
        assert count is not None
        assert (count.value, count.pending) == (value, 0)
        assert before - 0.01 <= count.as_of <= time.time() + 0.01
        assert count.exact is (count.source == "sql")
    # cached: the first vote makes the hash in the cache, which knows the count from then on.
    later = "cache" if strategy == "cached" else "sql"
    assert [count.source for count in counts if count is not None] == ["sql", later, later]


@pytest.mark.cast_writes
def test_of_counts_told_at_once_the_largest_is_that_of_all(votes: Votes, strategy: str) -> None:
    def work(thread: int) -> list[Cast]:
        users = range(100 * thread, 100 * thread + 10)
        return [
            votes.cast(1, user, with_count=True)
            if user % 2
            else votes.toggle(1, user, with_count=True)
            for user in users
        ]

    told = [[int(cast.count or 0) for cast in casts] for casts in together(work, 8)]
    # Each has all votes that its thread has cast.
    assert all(count > before for counts in told for before, count in enumerate(counts))
    assert max(max(counts) for counts in told) == 80
    # A cache may lack votes of others that the sum in SQL, which was told before, has.
    if strategy != "cached":
        assert all(counts == sorted(set(counts)) for counts in told)
    assert is_consistent(votes)


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
async def test_tasks_are_told_counts_with_their_votes(database: Database, strategy: Any) -> None:
    cache = "memory://" if strategy == "cached" else None
    async with aio.Votes(database, cache, strategy) as votes:
        await votes.create_tables()
        await votes.add_items([1])
        casts = await asyncio.gather(
            *(votes.cast(1, user, with_count=True) for user in range(60)),
            *(votes.toggle(1, 100 + user, with_count=True) for user in range(20)),
        )
        counts = [int(cast.count or 0) for cast in casts]
        assert min(counts) >= 1
        assert max(counts) == 80
        assert (await votes.cast(1, 0)).count is None


@pytest.mark.parametrize("strategy", ["write_behind"], indirect=True)
def test_a_vote_that_waits_is_not_in_the_count(database: Database, strategy: str) -> None:
    votes = make_votes(database, strategy, items=[1])
    votes.cast(1, 7)
    votes.flush()
    cast = votes.cast(1, 8, with_count=True)
    assert cast.pending
    assert cast.count is not None
    assert (cast.count.value, cast.count.exact, cast.count.pending) == (1, False, 1)
    # A toggle is written to the database, and what waits before it.
    assert int(votes.toggle(1, 9, with_count=True).count or 0) == 3


def test_a_refused_vote_is_an_error_and_no_count(database: Database) -> None:
    votes = make_votes(database, "batched", items=[1])
    with pytest.raises(hotcount.IntegrityError):
        votes.cast(99, 7, with_count=True)
    with pytest.raises(TypeError, match="with_count must be bool, not int"):
        votes.cast(1, 7, with_count=1)  # type: ignore[arg-type]
    assert votes.get(1, 7) == 0


def test_a_cast_with_its_count_is_a_value_like_others(database: Database) -> None:
    cast = make_votes(database, "batched", items=[1]).cast(1, 7, with_count=True)
    assert pickle.loads(pickle.dumps(cast)) == cast
    shown = json.loads(json.dumps(dataclasses.asdict(cast)))
    assert {name: shown[name] for name in ("counted", "changed", "previous", "value")} == {
        "counted": True,
        "changed": True,
        "previous": 0,
        "value": 1,
    }
    assert (shown["count"]["value"], shown["count"]["source"]) == (1, "sql")
    kept = Casts([cast])[0].count
    assert dataclasses.astuple(kept or Count(0, False, 0.0, "", 0))[:2] == (1, True)
