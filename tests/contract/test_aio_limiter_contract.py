"""aio.Limiter answers what Limiter answers, with every algorithm, on every store."""

import asyncio
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.errors import kinds
from tests.support.limiters import occupy
from tests.support.servers import RedisServer
from tests.support.stores import AnyStore, Store

TEN = "10/300 days"


@pytest.fixture
def limiter(limit_store: AnyStore, options: dict[str, Any]) -> aio.Limiter:
    return aio.Limiter(limit_store, TEN, **options)


async def test_exactly_the_limit_is_admitted_to_many_tasks(limiter: aio.Limiter) -> None:
    decisions = await asyncio.gather(*(limiter.hit("hot") for _ in range(100)))
    assert sum(decision.allowed for decision in decisions) == 10
    assert {decision.limit for decision in decisions} == {10}
    assert min(decision.remaining for decision in decisions) == 0


async def test_sync_and_async_share_a_keys_state(
    limit_store: AnyStore, limiter: aio.Limiter, options: dict[str, Any]
) -> None:
    waiting = hotcount.Limiter(limit_store, TEN, **options)
    assert waiting.hit(("a", "b"), 4)
    assert (await limiter.hit(("a", "b"), 6)).remaining == 0
    assert not await limiter.peek(("a", "b"))
    assert not waiting.peek(("a", "b"))
    await limiter.reset(("a", "b"))
    assert waiting.hit(("a", "b"), 10)


async def test_looking_takes_nothing(limiter: aio.Limiter) -> None:
    await limiter.hit("k", 4)
    assert (await limiter.test("k", 6)).allowed
    assert not (await limiter.test("k", 7)).allowed
    assert (await limiter.peek("k")).remaining == 6
    assert (await limiter.test("k", 11)).retry_after is None


async def test_a_batch_decides_equal_keys_one_after_another(limiter: aio.Limiter) -> None:
    decisions = await limiter.hit_many(["a", "b", "a", b"a", ("c", "d")], [6, 6, 6, 4, 10])
    assert list(decisions.allowed) == [True, True, False, True, True]
    assert list(decisions.remaining) == [4, 4, 4, 0, 0]
    assert await limiter.hit_many([]) == []
    keys = [f"k{number % 50}" for number in range(700)]
    many = await limiter.hit_many(keys)
    assert list(many.allowed) == [number < 500 for number in range(700)]


async def test_one_bad_element_hurts_no_one(counter_store: Store, options: dict[str, Any]) -> None:
    limiter = aio.Limiter(counter_store, TEN, **options)
    occupy(counter_store, options, "taken")
    if isinstance(counter_store, hotcount.Redis):
        # Each hit that is a script of its own comes back for its text, and keeps its place.
        counter_store.execute("SCRIPT", "FLUSH")
    keys: list[Any] = ["a", "taken", "", "a", "b"]
    with pytest.raises(hotcount.BatchError) as caught:
        await limiter.hit_many(keys, [1, 1, 1, 1, 0])
    assert kinds(caught.value.errors) == {1: "WrongTypeError", 2: "ConfigError", 4: "ConfigError"}
    assert list(caught.value.result.remaining) == [9, 0, 0, 8, 0]
    with pytest.raises(hotcount.WrongTypeError):
        await limiter.hit("taken")


async def test_what_is_wrong_with_an_argument_is_raised_by_the_call(limiter: aio.Limiter) -> None:
    with pytest.raises(TypeError, match="key must be"):
        limiter.hit(5)  # type: ignore[arg-type, unused-coroutine]
    for cost in (0, -1, 2**63):
        with pytest.raises(hotcount.ConfigError, match="cost"):
            limiter.hit("k", cost)  # type: ignore[unused-coroutine]
    with pytest.raises(hotcount.ConfigError, match="key"):
        limiter.hit("")  # type: ignore[unused-coroutine]
    assert (await limiter.peek("k")).remaining == 10


async def test_a_closed_limiter_refuses_and_its_store_goes_on(limit_store: AnyStore) -> None:
    async with aio.Limiter(limit_store, TEN) as limiter:
        assert (await limiter.hit("k")).remaining == 9
    assert limiter.closed
    with pytest.raises(hotcount.ClosedError):
        limiter.hit("k")  # type: ignore[unused-coroutine]
    assert (await aio.Limiter(limit_store, TEN).peek("k")).remaining == 9


async def test_a_hit_cancelled_before_it_is_sent_takes_nothing(counter_store: Store) -> None:
    limiter = aio.Limiter(counter_store, TEN)
    # In memory a call is done when it returns: there is nothing to withdraw.
    done = isinstance(counter_store, hotcount.Memory)
    await limiter.peek("k")
    call = asyncio.ensure_future(limiter.hit("k", 5))
    assert call.cancel() != done
    await asyncio.gather(call, return_exceptions=True)
    assert call.cancelled() != done
    assert (await limiter.peek("k")).remaining == (5 if done else 10)


async def test_a_loop_goes_on_while_the_server_answers_nothing(own_redis: RedisServer) -> None:
    async with aio.Redis(own_redis.url, timeout=20) as redis:
        limiter = aio.Limiter(redis, TEN)
        await limiter.hit("k")
        with own_redis.stopped():
            call = asyncio.ensure_future(limiter.hit("k"))
            for _ in range(20):
                await asyncio.sleep(0.001)
            # A call that blocked its loop would have ended before the first beat.
            assert not call.done()
        assert (await call).remaining == 8
