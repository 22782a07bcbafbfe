"""aio.LiveSets answers what LiveSets answers, with every method, on every store."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import hotcount
import pytest
from hotcount import Upsert, aio

from tests.support.errors import kinds
from tests.support.eventually import eventually
from tests.support.servers import RedisServer
from tests.support.stores import Store

METHODS = ["script", "ttl_gate"]


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def sets(counter_store: Store, method: Any) -> aio.LiveSets:
    return aio.LiveSets(counter_store, method=method)


async def test_many_tasks_upsert_where_the_set_lives_and_nowhere_else(sets: aio.LiveSets) -> None:
    await sets.create("k", 60, {"a": 1})
    calls = [sets.upsert(key, f"m{n}", n) for n in range(100) for key in ("k", "never")]
    assert await asyncio.gather(*calls) == [Upsert.APPLIED, Upsert.ABSENT] * 100
    assert len(await sets.range("k", 0, -1)) == 101
    assert await sets.top("k", 2) == [("m99", 99.0), ("m98", 98.0)]
    assert await sets.top("k", 0) == []
    assert await sets.top("never", 1) == []
    assert await sets.rank("k", "m98") == 1
    assert await sets.rank("k", "nobody") is None


async def test_sync_and_async_see_the_same_sets(counter_store: Store, sets: aio.LiveSets) -> None:
    waiting = hotcount.LiveSets(counter_store)
    waiting.create("k", 60, {"a": 1})
    assert await sets.upsert("k", b"b\xff", 2)
    assert waiting.top("k", 9) == [(b"b\xff", 2.0), ("a", 1.0)]
    assert await sets.remove("k", "a")
    assert not await sets.remove("k", "a")
    assert waiting.range("k", 0, -1) == [(b"b\xff", 2.0)]


async def test_a_batch_of_any_size_is_in_order(sets: aio.LiveSets) -> None:
    await sets.create("k", 60, {"a": 0})
    rows = [("k" if n % 2 else "never", f"m{n % 40}", n) for n in range(700)]
    upserts = await sets.upsert_many(rows, 100)
    assert list(upserts.applied) == [n % 2 == 1 for n in range(700)]
    assert await sets.top("k", 1) == [("m19", 699.0)]
    assert await sets.upsert_many([]) == []
    by_columns = await sets.upsert_many(keys=["k"], members=["last"], scores=[1e6])
    assert by_columns == [Upsert.APPLIED]
    assert by_columns.to_dict() == {"status": [1], "applied": [True]}


async def test_one_bad_element_hurts_no_other(counter_store: Store, sets: aio.LiveSets) -> None:
    hotcount.Counter(counter_store, "other", ttl=60).add("type")
    await sets.create("k", 60, {"a": 1})
    rows: list[Any] = [("k", "b", 1), ("other:type", "b", 1), ("", "b", 1), ("k", "c", 1)]
    with pytest.raises(hotcount.BatchError) as caught:
        await sets.upsert_many(rows)
    assert kinds(caught.value.errors) == {1: "WrongTypeError", 2: "ConfigError"}
    assert caught.value.result == [Upsert.APPLIED, Upsert.FAILED, Upsert.FAILED, Upsert.APPLIED]
    kept = await sets.upsert_many(rows, errors="return")
    assert list(kept.errors) == [1, 2]
    with pytest.raises(hotcount.WrongTypeError):
        await sets.upsert("other:type", "b", 1)
    with pytest.raises(hotcount.WrongTypeError):
        await sets.create("other:type", 60, {"a": 1})


async def test_versions_decide_among_tasks(counter_store: Store) -> None:
    sets = aio.LiveSets(counter_store)
    await sets.create("k", 60, {"a": 0})
    calls = [sets.upsert("k", "a", n, version=n % 100) for n in range(200)]
    outcomes = await asyncio.gather(*calls)
    assert set(outcomes) <= {Upsert.APPLIED, Upsert.STALE}
    assert (await sets.top("k", 1))[0][1] % 100 == 99
    assert await sets.remove("k", "a", 100)
    assert await sets.upsert("k", "a", 1, version=100) is Upsert.STALE


async def test_a_sweep_finds_keys_without_a_ttl(direct: hotcount.Redis) -> None:
    sets = aio.LiveSets(direct)
    for n in range(20):
        direct.execute("ZADD", f"leak{n}", 1, "a")
    await sets.create("good", 60, {"a": 1})
    dry = await sets.sweep("*", dry_run=True)
    assert (dry.scanned, dry.found, dry.deleted) == (21, 20, 0)
    report = await sets.sweep("leak*")
    assert report.deleted == 20
    assert sorted(map(str, report.keys)) == sorted(f"leak{n}" for n in range(20))
    assert (await sets.sweep("*")).scanned == 1


async def test_what_is_wrong_with_an_argument_is_raised_by_the_call(sets: aio.LiveSets) -> None:
    for key, member, score, name in (("", "a", 1, "key"), ("k", "", 1, "member")):
        with pytest.raises(hotcount.ConfigError, match=name):
            sets.upsert(key, member, score)  # type: ignore[unused-coroutine]
    with pytest.raises(hotcount.ConfigError, match="nan"):
        sets.upsert("k", "a", float("nan"))  # type: ignore[unused-coroutine]
    with pytest.raises(TypeError, match="score must be"):
        sets.upsert("k", "a", "1")  # type: ignore[arg-type, unused-coroutine]
    with pytest.raises(hotcount.ConfigError, match="batch"):
        sets.upsert_many([], 301)  # type: ignore[unused-coroutine]
    with pytest.raises(hotcount.ConfigError, match="n is -1"):
        sets.top("k", -1)  # type: ignore[unused-coroutine]
    with pytest.raises(hotcount.ConfigError, match="match"):
        sets.sweep("")  # type: ignore[unused-coroutine]


async def test_a_closed_object_leaves_its_store_open(counter_store: Store, method: Any) -> None:
    async with aio.LiveSets(counter_store, method=method) as sets:
        await sets.create("k", 60, {"a": 1})
    assert sets.closed
    with pytest.raises(hotcount.ClosedError):
        sets.upsert("k", "a", 1)  # type: ignore[unused-coroutine]
    assert await aio.LiveSets(counter_store).rank("k", "a") == 0


@asynccontextmanager
async def patient_sets(server: RedisServer, method: Any) -> AsyncIterator[aio.LiveSets]:
    """With a set "k", over an open connection that is kept while the server says nothing."""
    async with aio.Redis(server.url, timeout=20, silence_limit=60) as redis:
        sets = aio.LiveSets(redis, method=method)
        await sets.create("k", 60, {"a": 1})
        await sets.upsert("k", "a", 1)
        yield sets


async def test_a_loop_goes_on_while_a_server_is_silent(own_redis: RedisServer, method: Any) -> None:
    async with patient_sets(own_redis, method) as sets:
        threads = threading.active_count()
        with own_redis.stopped():
            calls: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(sets.upsert("k", "a", n)) for n in range(100)
            ]
            calls.append(asyncio.ensure_future(sets.upsert_many([("k", "a", 2)] * 3)))
            sweep = asyncio.ensure_future(sets.sweep("none*"))
            for _ in range(20):
                await asyncio.sleep(0.001)
            # A call that blocked its loop would have ended before the first beat.
            assert not any(call.done() for call in [*calls, sweep])
            assert threading.active_count() == threads
        await asyncio.gather(*calls)
        assert (await sweep).scanned == 0


async def test_calls_end_by_their_timeout(own_redis: RedisServer, method: Any) -> None:
    """So do calls that find no thread because calls with more time have them all."""
    async with patient_sets(own_redis, method) as sets:
        with own_redis.stopped():
            patient = [asyncio.ensure_future(sets.upsert("k", "a", 1)) for _ in range(20)]
            hasty = [sets.upsert("k", "b", 1, timeout=0.1) for _ in range(20)]
            outcomes = await asyncio.gather(*hasty, return_exceptions=True)
            kinds = {type(outcome) for outcome in outcomes}
            assert kinds <= {hotcount.DeadlineError, hotcount.OutcomeUnknownError}
            assert not any(call.done() for call in patient)
        assert set(await asyncio.gather(*patient)) == {Upsert.APPLIED}


async def test_a_call_cancelled_unsent_applies_nothing(own_redis: RedisServer, method: Any) -> None:
    async with patient_sets(own_redis, method) as sets:
        with own_redis.stopped():
            # Enough to keep each thread busy.
            before = [asyncio.ensure_future(sets.upsert("k", "a", 1)) for _ in range(16)]
            if method != "script":
                await asyncio.sleep(0.05)
            call = asyncio.ensure_future(sets.upsert("k", "b", 5))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        await asyncio.gather(*before)
        assert await sets.upsert("k", "last", 1)
        assert await sets.rank("k", "b") is None


async def test_a_call_cancelled_after_it_is_sent_ends(own_redis: RedisServer, method: Any) -> None:
    async with patient_sets(own_redis, method) as sets:
        with own_redis.stopped():
            call = asyncio.ensure_future(sets.upsert("k", "b", 5))
            other = asyncio.ensure_future(sets.upsert("k", "c", 6))
            await asyncio.sleep(0.05)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert await other
        assert await sets.upsert("k", "b", 7)
        assert await sets.top("k", 1) == [("b", 7.0)]


async def test_a_call_of_several_steps_sends_none_when_cancelled(own_redis: RedisServer) -> None:
    """Its answer would come after the next write of whoever cancelled it, and undo that."""
    async with patient_sets(own_redis, "ttl_gate") as sets:
        with hotcount.Redis(own_redis.url) as direct:
            for n in range(5):
                direct.execute("ZADD", f"leak{n}", 1, "a")
        with own_redis.stopped():
            calls: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(sets.upsert("k", "b", 5)),
                asyncio.ensure_future(sets.upsert_many([("k", "c", 5), ("k", "d", 5)], batch=1)),
                asyncio.ensure_future(sets.sweep("leak*")),
            ]
            await asyncio.sleep(0.1)
            for call in calls:
                call.cancel()
        assert await sets.upsert("k", "e", 7)
        await asyncio.sleep(0.1)
        assert await sets.range("k", 0, -1) == [("e", 7.0), ("a", 1.0)]
        assert (await sets.sweep("leak*", dry_run=True)).found == 5


async def test_calls_end_as_the_store_is_closed(own_redis: RedisServer, method: Any) -> None:
    sets = aio.LiveSets(own_redis.url, method=method)
    await sets.create("k", 60, {"a": 1}, timeout=20)
    await sets.upsert("k", "a", 1, timeout=20)
    with own_redis.stopped():
        calls = [asyncio.ensure_future(sets.upsert("k", "a", 1, timeout=20)) for _ in range(30)]
        await asyncio.sleep(0.05)
        await sets.aclose()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    kinds = {type(outcome) for outcome in outcomes}
    assert kinds <= {hotcount.ClosedError, hotcount.OutcomeUnknownError}


def test_a_loop_that_ends_leaves_what_its_calls_wait_for(own_redis: RedisServer) -> None:
    redis = hotcount.Redis(own_redis.url, timeout=20, silence_limit=60)
    sets = aio.LiveSets(redis, method="ttl_gate")
    waiting = hotcount.LiveSets(redis)
    waiting.create("k", 60, {"a": 1})

    async def leave() -> None:
        calls = [asyncio.ensure_future(sets.upsert("k", f"m{n}", n)) for n in range(20)]
        await asyncio.sleep(0.05)
        assert not any(call.done() for call in calls)

    with own_redis.stopped():
        # asyncio.run cancels what is left.
        asyncio.run(leave())

    async def again() -> None:
        assert await sets.upsert("k", "z", 100)

    asyncio.run(again())
    eventually(lambda: waiting.top("k", 1) == [("z", 100.0)])
