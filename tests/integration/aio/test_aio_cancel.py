"""Cancelled calls, and calls whose deadline has passed."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from typing import Any

import anyio
import hotcount
import pytest
from hotcount import aio

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.loops import LOOPS, LOOPS_WITH_READERS
from tests.support.servers import RedisServer

on_all_loops = pytest.mark.parametrize("factory", LOOPS)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@on_all_loops
async def test_a_call_that_is_cancelled_before_it_is_sent_is_never_made(
    own_redis: RedisServer,
) -> None:
    async with aio.Redis(own_redis.url, timeout=20) as store:
        counter = aio.Counter(store)
        with own_redis.stopped():
            # The connection is made by a server that does not answer, so nothing is sent.
            tasks = [asyncio.create_task(counter.add("k")) for _ in range(10)]
            await turns()
            for task in tasks[::2]:
                task.cancel()
            outcomes = await asyncio.gather(*tasks[::2], return_exceptions=True)
            assert {type(each) for each in outcomes} == {asyncio.CancelledError}
        assert sorted(await asyncio.gather(*tasks[1::2])) == [1, 2, 3, 4, 5]
        assert await counter.get("k") == 5


# Without readers the library's thread may have sent it by then.
@pytest.mark.parametrize("factory", LOOPS_WITH_READERS)
async def test_a_task_that_is_cancelled_before_it_began_makes_no_call(
    own_redis: RedisServer,
) -> None:
    counter = aio.Counter(own_redis.url)
    task = asyncio.create_task(counter.add("k"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await counter.get("k") == 0
    # As with a coroutine that is closed without having been awaited.
    counter.add("k").close()
    assert await counter.get("k") == 0


@on_all_loops
async def test_replies_of_cancelled_calls_reach_nobody_else(own_redis: RedisServer) -> None:
    async with aio.Redis(own_redis.url, timeout=20) as store:
        await store.ping()
        with own_redis.stopped():
            tasks = [
                asyncio.create_task(store.execute("ECHO", f"word {number}"))
                for number in range(100)
            ]
            # A turn to make them, a turn to send them.
            await turns()
            for task in tasks[::3]:
                fired("cancel", task.cancel())
            await asyncio.gather(*tasks[::3], return_exceptions=True)
        for number, task in enumerate(tasks):
            if number % 3:
                assert await task == f"word {number}".encode()
        assert await store.execute("ECHO", "after") == b"after"


@on_all_loops
async def test_cancelling_at_random_swaps_no_reply(redis_server: RedisServer) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    store = aio.Redis(redis_server.url, timeout=20)
    right = 0

    async def work(name: int) -> None:
        nonlocal right
        for number in range(200):
            word = f"{name}:{number}".encode()
            assert await store.execute("ECHO", word) == word, f"seed {seed}"
            right += 1

    tasks = [asyncio.create_task(work(name)) for name in range(60)]
    while not all(task.done() for task in tasks):
        await turns(chance.randrange(4))
        if right > 1000:
            chance.choice(tasks).cancel()
            if chance.random() < 0.1:
                await turns(20)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in outcomes} <= {type(None), asyncio.CancelledError}
    assert asyncio.CancelledError in {type(each) for each in outcomes}
    fired("cancel")
    assert await store.execute("ECHO", "after") == b"after"
    await store.aclose()


@on_all_loops
async def test_a_timeout_of_asyncio_gives_up_waiting_and_no_more(own_redis: RedisServer) -> None:
    async with aio.Redis(own_redis.url, timeout=20) as store:
        counter = aio.Counter(store)
        await counter.add("k")
        with own_redis.stopped():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(counter.add("k"), 0.05)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await counter.add("k")
            shielded: Any = counter.add("k")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(shielded), 0.05)
            assert not shielded.done()
        # Those two were sent, so they count; the shielded one is still answered.
        assert await shielded == 4
        assert await counter.add("k") == 5


@pytest.mark.parametrize("known", ["connecting", "connected"])
@on_all_loops
async def test_a_call_ends_by_its_deadline_and_says_what_is_known(
    own_redis: RedisServer, known: str
) -> None:
    async with aio.Redis(own_redis.url, timeout=20) as store:
        counter = aio.Counter(store)
        if known == "connected":
            await store.ping()
        expected = hotcount.OutcomeUnknownError if known == "connected" else hotcount.DeadlineError
        with own_redis.stopped():
            begun = time.monotonic()

            async def late(timeout: float) -> tuple[type, float]:
                try:
                    await counter.add("k", timeout=timeout)
                except hotcount.HotcountError as error:
                    return type(error), time.monotonic() - begun - timeout
                raise AssertionError("it was answered")

            for kind, overrun in await asyncio.gather(late(0.1), late(0.3), late(0.2)):
                assert kind is expected
                # Of the 100 ms that faults.md allows.
                assert -0.02 < overrun < 0.1
        # The loop's connection goes on, or is made anew.
        assert await counter.get("other") == 0


@on_all_loops
async def test_a_cancelled_call_is_a_cancelled_future(own_redis: RedisServer) -> None:
    async with aio.Redis(own_redis.url, timeout=20) as store:
        counter = aio.Counter(store)
        called: list[Any] = []
        call: Any = counter.add("k")
        call.add_done_callback(called.append)
        assert not call.done()
        with pytest.raises(asyncio.InvalidStateError):
            call.result()
        with pytest.raises(asyncio.InvalidStateError):
            call.exception()
        assert call.cancel("enough")
        assert not call.cancel()
        assert call.done()
        assert call.cancelled()
        assert called == []
        await turns(1)
        assert called == [call]
        for ask in (call.result, call.exception):
            with pytest.raises(asyncio.CancelledError, match="enough"):
                ask()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.gather(call)
        assert await counter.add("k") == 1


@on_all_loops
async def test_callbacks_are_taken_off_again(redis_server: RedisServer) -> None:
    called: list[str] = []
    store = aio.Redis(redis_server.url, timeout=20)
    call: Any = store.ping()

    def first(_: object) -> None:
        called.append("first")

    def second(_: object) -> None:
        called.append("second")

    for callback in (first, second, first):
        call.add_done_callback(callback)
    assert call.remove_done_callback(first) == 2
    assert call.remove_done_callback(first) == 0
    assert await call
    await turns(2)
    assert called == ["second"]
    # Added to one that is done, it is called all the same, by the loop.
    call.add_done_callback(first)
    assert called == ["second"]
    await turns(2)
    assert called == ["second", "first"]
    assert call.get_loop() is asyncio.get_running_loop()
    await store.aclose()


def test_what_many_cancelled_calls_held_in_waiting_threads_is_let_go_of(
    own_redis: RedisServer,
) -> None:
    async def main() -> None:
        store = aio.Redis(own_redis.url, client_name="left", timeout=20, silence_limit=60)
        sets = aio.LiveSets(store, method="ttl_gate")
        await sets.create("k", 60, {"m": 0})
        with own_redis.stopped():
            # As many as there are threads, and those that wait for one.
            begun = [asyncio.ensure_future(sets.upsert("k", "m", n)) for n in range(8)]
            behind = [asyncio.ensure_future(sets.upsert("k", "m", n)) for n in range(500)]
            await turns()
            for call in behind:
                call.cancel()
        await asyncio.gather(*begun)

    asyncio.run(main())
    admin = hotcount.Redis(own_redis.url)
    eventually(lambda: b"name=left" not in admin.execute("CLIENT", "LIST"))


def test_a_call_whose_waiters_went_with_the_loop_is_not_complained_about(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []
    store = aio.Redis(own_redis.url)
    counter = aio.Counter(store)

    async def leave() -> None:
        await counter.add("k")
        with own_redis.stopped():
            calls.append(counter.add("k"))
            calls[0].add_done_callback(lambda call: call.exception())
            await asyncio.sleep(0.01)
            asyncio.get_running_loop().stop()

    async def come() -> None:
        await store.ping()

    loop = asyncio.new_event_loop()
    leaving = loop.create_task(leave())
    loop.run_forever()
    loop.close()
    # The next loop finds the first one closed.
    asyncio.run(come())
    assert calls[0].done()
    calls.clear()
    del leaving
    gc.collect()
    assert caplog.messages == []


def test_hits_that_anyio_cancels_between_two_stores_are_given_back(
    own_redis: RedisServer, redis_server: RedisServer
) -> None:
    async def main() -> int:
        async with aio.Redis(redis_server.url) as here, aio.Redis(own_redis.url) as there:
            first = aio.Limiter(here, "9/day", name="anyio")
            second = aio.Limiter(there, "9/day")
            await second.hit("k")
            with own_redis.stopped():
                with anyio.move_on_after(0.05):
                    await aio.hit_all([(first, "k"), (second, "k")])
                async with asyncio.timeout(20):
                    while (await first.peek("k")).remaining < 9:
                        await asyncio.sleep(0.01)
            return int((await first.peek("k")).remaining)

    assert asyncio.run(main()) == 9
