"""What votes for event loops promise, on every database."""

import asyncio
from typing import Any

import hotcount
import pytest
from hotcount import aio

STRATEGIES = ["naive", "slotted", "batched"]


async def make(database: hotcount.Database, strategy: str) -> aio.Votes:
    votes = aio.Votes(database, strategy=strategy)  # type: ignore[arg-type]
    await votes.create_tables()
    await votes.add_items(range(1, 11))
    return votes


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_each_call_is_told_its_outcome(database: hotcount.Database, strategy: str) -> None:
    total = 3000 if strategy == "batched" else 200
    votes = await make(database, strategy)
    users = iter(range(total))

    async def voter() -> None:
        for user in users:
            assert (await votes.cast(1 + user % 10, user, user + 1)).value == user + 1

    await asyncio.gather(*(voter() for _ in range(1000)))
    await votes.flush()
    counts = await votes.count_many(range(1, 11))
    assert sum(int(count) for count in counts) == total * (total + 1) // 2
    assert await votes.reconcile() == []


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_later_of_two_votes_counts(database: hotcount.Database, strategy: str) -> None:
    votes = await make(database, strategy)
    calls: list[Any] = [votes.cast(1, user, value) for value in range(1, 6) for user in range(20)]
    casts = await asyncio.gather(*calls)
    # Values that share a batch may be told together; what stands in the end is the last.
    assert {cast.value for cast in casts[-20:]} == {5}
    await votes.flush()
    assert int(await votes.count(1)) == 100


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_bad_vote_fails_alone(database: hotcount.Database, strategy: str) -> None:
    votes = await make(database, strategy)
    outcomes = await asyncio.gather(
        *(votes.cast(99 if user % 7 == 3 else 1, user) for user in range(50)),
        return_exceptions=True,
    )
    for user, outcome in enumerate(outcomes):
        if user % 7 == 3:
            assert isinstance(outcome, hotcount.IntegrityError)
        else:
            assert isinstance(outcome, hotcount.Cast)
    assert int(await votes.count(1)) == 43


async def test_sync_and_async_votes_at_once_are_all_counted(database: hotcount.Database) -> None:
    votes = await make(database, "batched")
    waiting = hotcount.Votes(database)

    def cast_some(first: int) -> None:
        for user in range(first, first + 30):
            waiting.cast(1, user)

    threads = [asyncio.to_thread(cast_some, 1000 + 30 * thread) for thread in range(8)]
    await asyncio.gather(*threads, *(votes.cast(1, user) for user in range(500)))
    assert int(await votes.count(1)) == 740
    assert await votes.reconcile() == []
