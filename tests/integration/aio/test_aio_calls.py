"""The calls of hotcount.aio: the values they come to, in every way that asyncio has to wait."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.loops import LOOPS

pytestmark = pytest.mark.parametrize("factory", LOOPS)

Store = hotcount.Memory | hotcount.Redis


async def test_each_awaited_call_of_a_counter_answers_as_its_name_says(
    counter_store: Store,
) -> None:
    counter = aio.Counter(counter_store, "calls", ttl=60)
    assert await counter.add("k") == 1
    assert await counter.add("k", 41) == 42
    assert await counter.get("k") == 42
    left = await counter.ttl("k")
    assert left is not None
    assert 50 < left <= 60
    assert await counter.try_add("k", -50, min=0) == hotcount.TryAdd(False, 42)
    assert await counter.try_add("k", -2, min=0, max=100) == hotcount.TryAdd(True, 40)
    assert await counter.add_many(["a", "k", "a"], [1, 2, 3]) == [1, 42, 4]
    assert await counter.get_many(["a", "k", "none"]) == [4, 42, 0]
    assert await counter.reset("k") == 42
    assert await counter.reset("k") == 0
    assert await counter.ttl("k") is None


@pytest.mark.parametrize("keys", [1, 40])
@pytest.mark.parametrize("tasks", [64, 256])
async def test_every_task_gets_its_own_value(counter_store: Store, tasks: int, keys: int) -> None:
    counter = aio.Counter(counter_store, "own")
    seen: list[list[int]] = [[] for _ in range(keys)]

    async def work(index: int) -> None:
        mine = []
        for round_ in range(30):
            key = (index + round_) % keys
            value = await counter.add(str(key))
            seen[key].append(value)
            mine.append(value)
        if keys == 1:
            assert mine == sorted(mine)

    await asyncio.gather(*(work(index) for index in range(tasks)))
    for values in seen:
        assert sorted(values) == list(range(1, len(values) + 1))
    assert sum(map(len, seen)) == 30 * tasks


async def awaited(call: Callable[[], Any]) -> Any:
    return await call()


async def by_gather(call: Callable[[], Any]) -> Any:
    first, second = await asyncio.gather(call(), call())
    assert second == first + 1
    return second


async def by_wait_for(call: Callable[[], Any]) -> Any:
    return await asyncio.wait_for(call(), 20)


async def by_shield(call: Callable[[], Any]) -> Any:
    return await asyncio.shield(call())


async def by_timeout(call: Callable[[], Any]) -> Any:
    async with asyncio.timeout(20):
        return await call()


async def by_create_task(call: Callable[[], Any]) -> Any:
    return await asyncio.create_task(call())


async def by_task_group(call: Callable[[], Any]) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(call())
    return task.result()


async def by_wait(call: Callable[[], Any]) -> Any:
    done, waiting = await asyncio.wait({asyncio.create_task(call())}, timeout=20)
    assert not waiting
    return done.pop().result()


async def by_as_completed(call: Callable[[], Any]) -> Any:
    (first,) = asyncio.as_completed([call()])
    return await first


async def by_callback(call: Callable[[], Any]) -> Any:
    made = call()
    called = asyncio.Event()
    made.add_done_callback(lambda _: called.set())
    await called.wait()
    return made.result()


async def by_many(call: Callable[[], Any]) -> Any:
    made = call()

    async def wait() -> Any:
        return await made

    values = await asyncio.gather(wait(), wait(), made)
    assert len(set(values)) == 1
    return values[0]


async def by_yield_from(call: Callable[[], Any]) -> Any:
    class Wrapped:
        def __await__(self) -> Any:
            return (yield from call().__await__())

    return await Wrapped()


async def by_python_task(call: Callable[[], Any]) -> Any:
    # asyncio's task that is written in Python, which is not resumed in place.
    kind: Any = getattr(asyncio.tasks, "_PyTask")  # noqa: B009 (mypy does not know it)
    return await kind(awaited(call), loop=asyncio.get_running_loop())


@pytest.mark.parametrize(
    "way",
    [
        awaited,
        by_gather,
        by_wait_for,
        by_shield,
        by_timeout,
        by_create_task,
        by_task_group,
        by_wait,
        by_as_completed,
        by_callback,
        by_many,
        by_yield_from,
        by_python_task,
    ],
)
async def test_a_call_may_be_waited_for_in_any_way(
    counter_store: Store, way: Callable[[Callable[[], Any]], Any]
) -> None:
    counter = aio.Counter(counter_store, "ways")
    await counter.add("k", 10)
    assert await way(lambda: counter.add("k")) in (11, 12)
    # An error comes the same way.
    big = aio.Counter(counter_store, "big")
    await big.add("k", 2**63 - 1)
    with pytest.raises(Exception) as raised:  # noqa: PT011 (a group's is inside of it)
        await way(lambda: big.add("k"))
    (error,) = getattr(raised.value, "exceptions", [raised.value])
    assert isinstance(error, hotcount.CounterOverflowError)


async def test_context_variables_and_the_current_task_are_the_awaiting_tasks_own(
    counter_store: Store,
) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=-1)
    counter = aio.Counter(counter_store, "context")

    async def work(index: int) -> None:
        me = asyncio.current_task()
        variable.set(index)
        for _ in range(10):
            await counter.add("k")
            assert variable.get() == index
            assert asyncio.current_task() is me

    await asyncio.gather(*(work(index) for index in range(50)))
    assert variable.get() == -1


async def test_a_call_starts_when_it_is_made(counter_store: Store) -> None:
    counter = aio.Counter(counter_store, "start")
    first = counter.add("k")
    second = counter.add("k")
    assert await second == 2
    assert await first == 1
    assert await first == 1
    counter.add("k")  # type: ignore[unused-coroutine]
    assert await counter.add("k") == 4


async def test_bad_arguments_are_raised_by_the_call(counter_store: Store) -> None:
    counter: Any = aio.Counter(counter_store, "bad")
    wrong: list[Callable[[], Any]] = [
        lambda: counter.add(7),
        lambda: counter.add("k", 1.5),
        lambda: counter.add("k", True),
        lambda: counter.add(),
        lambda: counter.add("k", timeout="soon"),
        lambda: counter.add_many(["k", 7]),
        lambda: counter.add_many("k"),
        lambda: counter.get(None),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()
    for call in (
        lambda: counter.add(""),
        lambda: counter.add("k" * 1001),
        lambda: counter.add("k", timeout=0),
        lambda: counter.add_many(["k"], errors="ignore"),
        lambda: counter.get("\udc80"),
    ):
        with pytest.raises(hotcount.ConfigError):
            call()
    with pytest.raises(hotcount.CounterOverflowError):
        counter.add("k", 2**63)
    assert await counter.get("k") == 0


async def test_a_batch_says_which_elements_failed(counter_store: Store) -> None:
    counter = aio.Counter(counter_store, "batch")
    await counter.add("full", 2**63 - 1)
    with pytest.raises(hotcount.BatchError) as raised:
        await counter.add_many(["a", "full", "", "b"], 1)
    assert list(raised.value.result) == [1, 0, 0, 1]
    assert {index: type(error) for index, error in raised.value.errors.items()} == {
        1: hotcount.CounterOverflowError,
        2: hotcount.ConfigError,
    }
    batch = await counter.add_many(["a", "full", "", "b"], [1, 1, 1, 2**63], errors="return")
    assert list(batch) == [2, 0, 0, 0]
    assert sorted(batch.errors) == [1, 2, 3]
    assert await counter.add_many([]) == []
    assert list(await counter.get_many(["a", "b"])) == [2, 1]


async def test_a_large_batch_and_single_calls_beside_it_are_all_answered(
    counter_store: Store,
) -> None:
    counter = aio.Counter(counter_store, "large")
    keys = [f"k{number % 1000}" for number in range(20_000)]
    outcomes: list[Any] = await asyncio.gather(
        counter.add_many(keys), *(counter.add("single") for _ in range(100))
    )
    batch, *singles = outcomes
    assert sorted(singles) == list(range(1, 101))
    assert len(batch) == 20_000
    assert list(await counter.get_many([f"k{number}" for number in range(1000)])) == [20] * 1000


async def test_an_op_id_counts_once(counter_store: Store) -> None:
    counter = aio.Counter(counter_store, "once")
    assert [await counter.add("k", op_id="a") for _ in range(3)] == [1, 1, 1]
    assert await counter.add("k", op_id="b") == 2
    op_id = hotcount.new_op_id()
    values = await asyncio.gather(*(counter.add("k", op_id=op_id) for _ in range(20)))
    assert values == [3] * 20


async def test_in_memory_a_call_is_done_when_it_returns() -> None:
    counter = aio.Counter("memory://")
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1

    asyncio.get_running_loop().call_soon(turn)
    call: Any = counter.add("k")
    assert call.done()
    assert await call == 1
    assert turns == 0
