"""Tasks that are resumed in place: what is theirs stays theirs, and others get their turn."""

from __future__ import annotations

import asyncio
import gc
import itertools
import resource
import weakref
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.loops import LOOPS, LoopFactory
from tests.support.servers import RedisServer

pytestmark = [pytest.mark.server, pytest.mark.parametrize("factory", LOOPS)]


@pytest.fixture
def counter(redis_server: RedisServer, request: pytest.FixtureRequest) -> aio.Counter:
    return aio.Counter(aio.Redis(redis_server.url, timeout=20), request.node.name)


async def test_a_task_that_raises_breaks_no_other(counter: aio.Counter) -> None:
    async def work(index: int) -> int:
        for _ in range(20):
            value = await counter.add("k")
            if index % 5 == 0:
                raise LookupError(index)
        return value

    outcomes = await asyncio.gather(*(work(i) for i in range(50)), return_exceptions=True)
    for index, outcome in enumerate(outcomes):
        assert isinstance(outcome, LookupError if index % 5 == 0 else int)
    assert await counter.get("k") == 10 + 40 * 20


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_leaves_the_loop_at_once_and_the_rest_goes_on(
    factory: LoopFactory, counter: aio.Counter, kind: type[BaseException]
) -> None:
    loop = factory()
    values: list[int] = []

    async def work(index: int) -> None:
        values.append(await counter.add("k"))
        if index == 3:
            raise kind
        values.append(await counter.add("k"))

    async def rest(tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        tasks = [loop.create_task(work(index)) for index in range(10)]
        with pytest.raises(kind):
            loop.run_until_complete(asyncio.wait(tasks))
        assert not all(task.done() for task in tasks)
        loop.run_until_complete(rest(tasks[:3] + tasks[4:]))
        assert isinstance(tasks[3].exception(), kind)
        assert sorted(values) == list(range(1, 20))
    finally:
        loop.close()


async def test_others_get_their_turn_beside_busy_tasks(counter: aio.Counter) -> None:
    beats = 0
    over = False

    async def heart() -> None:
        nonlocal beats
        while not over:
            await asyncio.sleep(0)
            beats += 1

    async def work() -> None:
        for _ in range(100):
            await counter.add("k")

    beating = asyncio.create_task(heart())
    await asyncio.gather(*(work() for _ in range(256)))
    over = True
    await beating
    # 25,600 adds: were all of them made in one turn of the loop, it would be a handful.
    assert beats >= 50


def test_calls_work_in_a_loops_debug_mode(factory: LoopFactory, counter: aio.Counter) -> None:
    async def main() -> None:
        async def work() -> list[int]:
            return [await counter.add("k") for _ in range(10)]

        found = await asyncio.gather(*(work() for _ in range(20)))
        assert sorted(itertools.chain(*found)) == list(range(1, 201))

    with asyncio.Runner(loop_factory=factory, debug=True) as runner:
        runner.run(main())


async def test_an_exception_nobody_asks_for_is_reported(counter: aio.Counter) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    await counter.add("k", 2**63 - 1)
    call: Any = counter.add("k")
    while not call.done():
        await asyncio.sleep(0.001)
    del call
    gc.collect()
    (context,) = told
    assert "never retrieved" in context["message"]
    assert isinstance(context["exception"], hotcount.CounterOverflowError)
    # One that was asked for, by either way, is not.
    seen: Any = counter.add("k")
    while not seen.done():
        await asyncio.sleep(0.001)
    assert isinstance(seen.exception(), hotcount.CounterOverflowError)
    with pytest.raises(hotcount.CounterOverflowError):
        await counter.add("k")
    del seen, context
    gc.collect()
    assert len(told) == 1


async def test_an_exception_may_be_raised_again_without_growing(counter: aio.Counter) -> None:
    await counter.add("k", 2**63 - 1)
    call: Any = counter.add("k")
    depths = []
    for _ in range(5):
        with pytest.raises(hotcount.CounterOverflowError) as raised:
            await call
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1


async def test_cycles_through_a_call_are_collected(counter: aio.Counter) -> None:
    class Holder:
        call: Any

        def told(self, _: object) -> None: ...

    dead = []
    for number in range(3):
        holder = Holder()
        holder.call = counter.add("k")
        if number != 1:
            await holder.call
        if number == 1:
            holder.call.add_done_callback(holder.told)
            holder.call.cancel()
        if number == 2:
            weak = weakref.ref(holder.call)
            assert weak() is holder.call
        dead.append(weakref.ref(holder))
    del holder
    await asyncio.sleep(0.01)
    gc.collect()
    assert [each() for each in dead] == [None] * 3


async def test_memory_does_not_grow(counter: aio.Counter) -> None:
    async def work(count: int) -> None:
        for _ in range(count):
            await counter.add("k")

    async def rounds(count: int) -> None:
        await asyncio.gather(*(work(count // 100) for _ in range(100)))

    await rounds(20_000)
    gc.collect()
    objects = len(gc.get_objects())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await rounds(200_000)
    gc.collect()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # A leak of 50 bytes a call would be 10 MB.
    assert grown < 8 * 1024, f"{grown} KiB"
    assert len(gc.get_objects()) < objects + 500


async def test_driving_await_by_hand_follows_asyncios_protocol(counter: aio.Counter) -> None:
    call: Any = counter.add("k")
    assert call.__await__() is call
    assert call.send(None) is call
    with pytest.raises(RuntimeError, match="await wasn't used with future"):
        call.send(None)
    with pytest.raises(RuntimeError, match="await wasn't used with future"):
        next(call)
    call._asyncio_future_blocking = False
    assert await call == 1
    with pytest.raises(StopIteration) as end:
        call.send(None)
    assert end.value.value == 1
    with pytest.raises(LookupError, match="thrown"):
        call.throw(LookupError("thrown"))
    with pytest.raises(LookupError):
        call.throw(LookupError)
    with pytest.raises(TypeError):
        call.throw(7)
    call.close()
    assert await call == 1
    assert asyncio.isfuture(call)
    assert asyncio.iscoroutine(call)
    with pytest.raises(TypeError):
        type(call)()
