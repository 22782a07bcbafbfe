"""What rebuild() and rebuild_many() of aio promise: the same as the blocking ones."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import hotcount
import pytest
from hotcount import Upsert, aio

from tests.support.stores import Store


@pytest.fixture
def sets(counter_store: Store) -> aio.LiveSets:
    return aio.LiveSets(counter_store)


async def members(sets: aio.LiveSets, key: str = "k") -> dict[Any, float]:
    return dict(await sets.range(key, 0, -1))


async def test_a_rebuild_publishes_at_its_end_with_what_came_meanwhile(sets: aio.LiveSets) -> None:
    await sets.create("k", 60, {"old": 1, "gone": 1})
    async with sets.rebuild("k", ttl=60) as build:
        await build.add("a", 1)
        await build.add_many([("b", 1), ("c", 1, 4), ("gone", 1)])
        assert await sets.upsert("k", "a", 2) is Upsert.APPLIED
        assert await sets.upsert("k", "c", 2, version=5) is Upsert.APPLIED
        assert await sets.remove("k", "gone") is Upsert.APPLIED
        await build.renew()
        assert (await members(sets))["old"] == 1.0
    assert await members(sets) == {"a": 2.0, "b": 1.0, "c": 2.0}


async def test_many_tasks_add_to_one_build(sets: aio.LiveSets) -> None:
    async with sets.rebuild("k", ttl=60) as build:
        await asyncio.gather(*(build.add(f"m{n}", n) for n in range(2000)))
    assert len(await members(sets)) == 2000


async def test_a_block_that_raises_gives_the_build_up(sets: aio.LiveSets) -> None:
    async def fail() -> None:
        async with sets.rebuild("k", ttl=60) as build:
            await build.add("a", 1)
            raise ZeroDivisionError

    await sets.create("k", 60, {"old": 1})
    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await members(sets) == {"old": 1.0}
    async with sets.rebuild("k", ttl=60) as build:
        await build.publish()
    assert await members(sets) == {}


async def test_a_task_that_is_cancelled_in_the_block_publishes_nothing(sets: aio.LiveSets) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        async with sets.rebuild("k", ttl=60) as build:
            await build.add("a", 1)
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await members(sets) == {}
    async with sets.rebuild("k", ttl=60):
        pass


async def test_a_lease_of_another_builder_is_an_error(sets: aio.LiveSets) -> None:
    async with sets.rebuild("k", ttl=60):
        with pytest.raises(hotcount.LeaseLostError):
            await sets.rebuild("k", ttl=60).__aenter__()


async def test_rebuild_many_takes_iterables_and_async_iterables(sets: aio.LiveSets) -> None:
    async def rows(count: int) -> AsyncIterator[tuple[str, float]]:
        for n in range(count):
            yield f"m{n}", n

    async def source() -> AsyncIterator[tuple[str, Any]]:
        for n in range(15):
            yield f"s{n}", rows(n * 50) if n % 2 else {f"m{i}": i for i in range(n * 50)}
        yield "s0", {}

    async with sets.rebuild("s3", ttl=60):
        report = await sets.rebuild_many(source(), ttl=60)
    assert report.published == 15
    assert list(report.failed) == ["s3"]
    assert isinstance(report.failed["s3"], hotcount.LeaseLostError)
    sizes = [len(await members(sets, f"s{n}")) for n in range(15)]
    assert sizes == [0 if n == 3 else n * 50 for n in range(15)]
    assert await sets.rebuild_many([("t", {"a": 1})], ttl=60) == hotcount.RebuildReport(1, {})


async def test_rebuild_many_renews_the_lease_while_members_come_slowly(sets: aio.LiveSets) -> None:
    async def slow() -> AsyncIterator[tuple[str, float]]:
        until = asyncio.get_running_loop().time() + 0.8
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
            yield "a", 1

    report = await sets.rebuild_many([("slow", slow())], ttl=60, lease=0.5)
    assert report == hotcount.RebuildReport(published=1, failed={})


async def test_what_the_source_raises_ends_rebuild_many(sets: aio.LiveSets) -> None:
    async def source() -> AsyncIterator[tuple[str, Any]]:
        yield "a", {"x": 1}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await sets.rebuild_many(source(), ttl=60)
    assert await members(sets, "a") == {"x": 1.0}
