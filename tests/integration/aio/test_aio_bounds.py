"""What an event loop's connection bounds: the calls that wait, and the calls that one turn ends."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any, Literal

import hotcount
import psycopg
import pytest
from hotcount import aio

from tests.support.loops import LOOPS, LoopFactory, run
from tests.support.servers import PostgresDatabase, RedisServer

MANY = 100_000
IN_FLIGHT = 16_384  # The most commands of a connection that await their replies.
CALLS = IN_FLIGHT + 200


async def longest_gap(stop: asyncio.Event) -> float:
    """How long the loop's thread worked at most while a task waited that runs every 5 ms.

    In the thread's CPU time, which other programs on the machine do not lengthen.
    """
    longest = 0.0
    last = time.thread_time()
    while not stop.is_set():
        await asyncio.sleep(0.005)
        now = time.thread_time()
        longest = max(longest, now - last)
        last = now
    return longest


@pytest.mark.parametrize("factory", LOOPS)
@pytest.mark.parametrize("key", ["one", "each"])
async def test_100_000_calls_that_expire_at_once_hold_no_other_task_up(
    own_redis: RedisServer, key: str
) -> None:
    redis = own_redis.redis(silence_limit=60)
    counter = aio.Counter(redis)
    await counter.add("warm")
    own_redis.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 4
    calls = [
        counter.add("k" if key == "one" else f"k{n}", timeout=max(deadline - time.monotonic(), 0.1))
        for n in range(MANY)
    ]
    results = asyncio.gather(*calls, return_exceptions=True)
    stop = asyncio.Event()
    heartbeat = asyncio.ensure_future(longest_gap(stop))
    ends = await results
    stop.set()
    kinds = {type(end) for end in ends}
    assert kinds <= {hotcount.OutcomeUnknownError, hotcount.DeadlineError}
    # It was 6.8 s. A turn ends 1,024 calls, which takes some 20 ms.
    assert await heartbeat < 1


class RecordingLoop(asyncio.SelectorEventLoop):
    """Keeps what was asked for at once."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once: list[asyncio.TimerHandle] = []

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_later(delay, callback, *args, context=context)
        if delay == 0:
            self.at_once.append(handle)
        return handle


def test_the_rest_of_what_expired_waits_for_no_tick_of_the_other_connection(
    own_redis: RedisServer,
) -> None:
    """Commands that go alone have a second connection, and the loop has one timer for both."""
    loop = RecordingLoop()

    async def main() -> None:
        store = aio.Redis(own_redis.url, silence_limit=60)
        await store.ping()
        own_redis.send_signal(signal.SIGSTOP)
        shared = asyncio.ensure_future(store.ping(timeout=20))
        deadline = time.monotonic() + 1
        alone = [
            store.execute("NOT.KNOWN", timeout=max(deadline - time.monotonic(), 0.1))
            for _ in range(5_000)
        ]
        await asyncio.gather(*alone, return_exceptions=True)
        own_redis.send_signal(signal.SIGCONT)
        await shared

    run(lambda: loop, main())
    assert loop.at_once, "1,024 calls are ended at a time"
    assert not any(handle.cancelled() for handle in loop.at_once)


@pytest.mark.parametrize("factory", LOOPS)
async def test_100_000_calls_that_fail_at_once_hold_no_other_task_up(
    own_redis: RedisServer,
) -> None:
    """The connection breaks under them."""
    redis = own_redis.redis(timeout=60, silence_limit=60)
    counter = aio.Counter(redis)
    await counter.add("warm")
    own_redis.send_signal(signal.SIGSTOP)
    results = asyncio.gather(*(counter.add("k") for _ in range(MANY)), return_exceptions=True)
    stop = asyncio.Event()
    heartbeat = asyncio.ensure_future(longest_gap(stop))
    own_redis.kill()
    ends = await results
    stop.set()
    assert {type(end) for end in ends} <= {hotcount.OutcomeUnknownError, hotcount.UnavailableError}
    assert await heartbeat < 1


@pytest.mark.parametrize("factory", LOOPS)
def test_calls_beyond_max_queue_are_refused_with_nothing_applied_and_the_others_are_answered(
    own_redis: RedisServer, factory: LoopFactory
) -> None:
    redis = own_redis.redis(timeout=30, max_queue=50)

    async def one(counter: aio.Counter, n: int) -> int:
        return await counter.add(f"k{n}")

    async def main() -> None:
        counter = aio.Counter(redis)
        await counter.add("warm")
        own_redis.send_signal(signal.SIGSTOP)
        calls = [asyncio.create_task(one(counter, n)) for n in range(CALLS)]
        done, waiting = await asyncio.wait(calls, timeout=1)
        # Those on the wire, and those that may wait for it.
        assert 50 <= len(waiting) <= IN_FLIGHT + 50
        assert done
        for call in done:
            with pytest.raises(hotcount.CapacityError, match=r"max_queue.*nothing was applied"):
                await call
        own_redis.send_signal(signal.SIGCONT)
        assert await asyncio.gather(*waiting) == [1] * len(waiting)
        keys = await counter.get_many([f"k{n}" for n in range(CALLS)])
        assert sum(keys) == len(waiting)
        assert [calls[n] in waiting for n in range(CALLS)] == [bool(count) for count in keys]
        # There is room again.
        assert await counter.add("after") == 1

    run(factory, main())


async def test_a_votes_call_ends_by_its_deadline_where_others_hold_all_threads(
    postgres_database: PostgresDatabase,
) -> None:
    url = postgres_database.url
    with psycopg.connect(url) as other:
        async with aio.Votes(url, strategy="naive", missing_items="create") as votes:
            await votes.create_tables()
            await votes.cast(7, 1)
            other.execute("LOCK TABLE item IN ACCESS EXCLUSIVE MODE")

            async def read(timeout: float) -> int:
                return (await votes.count(7, timeout=timeout)).value

            patient = [asyncio.create_task(read(60)) for _ in range(2 * votes.workers)]
            await asyncio.sleep(0)
            hasty = [
                asyncio.ensure_future(read(1)),
                asyncio.ensure_future(read(2)),
                asyncio.ensure_future(read(1)),
            ]
            ends = await asyncio.wait_for(asyncio.gather(*hasty, return_exceptions=True), 30)
            assert [type(end) for end in ends] == [hotcount.DeadlineError] * 3
            assert not any(call.done() for call in patient)
            other.rollback()
            assert await asyncio.gather(*patient) == [1] * len(patient)


@pytest.mark.parametrize("strategy", ["naive", "slotted"])
async def test_a_vote_ends_by_its_deadline_where_another_holds_its_thread(
    postgres_database: PostgresDatabase, strategy: Literal["naive", "slotted"]
) -> None:
    url = postgres_database.url
    with psycopg.connect(url) as other:
        async with aio.Votes(url, strategy=strategy, workers=1) as votes:
            await votes.create_tables()
            await votes.add_items([7, 8])
            await votes.cast(7, 1)
            other.execute("SELECT FROM vote FOR UPDATE")
            patient = asyncio.ensure_future(votes.cast(7, 1, 2, timeout=60))
            await asyncio.sleep(0)
            behind = asyncio.ensure_future(votes.cast(8, 1, timeout=60))
            hasty = [
                asyncio.ensure_future(votes.cast(8, 2, timeout=1)),
                asyncio.ensure_future(votes.cast_many([8], [3], timeout=1)),
            ]
            ends = await asyncio.wait_for(asyncio.gather(*hasty, return_exceptions=True), 30)
            assert [type(end) for end in ends] == [hotcount.DeadlineError, hotcount.BatchError]
            assert not patient.done()
            assert not behind.done()
            other.rollback()
            assert (await patient).value == 2
            assert (await behind).changed
            assert [int(n) for n in await votes.count_many([7, 8])] == [2, 1]
