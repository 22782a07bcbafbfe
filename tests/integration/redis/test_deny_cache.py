"""Limiter(deny_cache=n): a process remembers denials, and nothing longer than the server would."""

from __future__ import annotations

import asyncio
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.servers import Asked, RedisServer
from tests.support.together import in_child, together

pytestmark = pytest.mark.server
RATE = "2/300 days"


@pytest.fixture
def store(own_redis: RedisServer) -> hotcount.Redis:
    return own_redis.redis(timeout=20)


def spent(store: hotcount.Redis, **options: Any) -> hotcount.Limiter:
    """A limiter whose key "k" has just been denied."""
    options.setdefault("deny_cache", 10)
    limiter = hotcount.Limiter(store, RATE, **options)
    assert [bool(limiter.hit("k")) for _ in range(3)] == [True, True, False]
    return limiter


def test_a_known_denial_is_not_asked_about(store: hotcount.Redis, direct: hotcount.Redis) -> None:
    limiter = spent(store)
    first = limiter.test("k")
    asked = Asked(direct)
    denied = [limiter.hit("k") for _ in range(50)]
    assert list(limiter.hit_many(["k", "k"]).allowed) == [False, False]
    assert asked.times == 0
    assert {(one.reason, one.remaining, one.violated) for one in denied} == {
        ("limited", 0, ("2/300 days",))
    }
    waits = [one.retry_after for one in [first, *denied] if one.retry_after is not None]
    assert len(waits) == 51
    assert waits == sorted(waits, reverse=True)


def test_by_default_each_hit_is_asked_about(store: hotcount.Redis, direct: hotcount.Redis) -> None:
    limiter = spent(store, deny_cache=0)
    asked = Asked(direct)
    for _ in range(5):
        limiter.hit("k")
    assert asked.times == 5


def test_a_denied_cost_says_nothing_of_a_smaller_one(store: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, "5/300 days", deny_cache=10)
    assert limiter.hit("k", 3)
    assert not limiter.hit("k", 3)
    assert limiter.hit("k", 2)
    assert not limiter.hit("k", 1)
    # And of a larger one not when it will be admitted.
    one, two = limiter.hit("k", 1).retry_after, limiter.hit("k", 2).retry_after
    assert one is not None
    assert two is not None
    assert two > one * 1.5


def test_a_denial_ends_when_the_server_admits(store: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, "20/s burst 1", deny_cache=10)
    assert limiter.hit("k")
    decision = limiter.acquire("k", timeout=10)
    assert decision.allowed


@pytest.mark.parametrize("how", ["reset", "refund", "block"])
def test_what_this_process_does_to_a_key_is_seen_at_once(how: str, store: hotcount.Redis) -> None:
    limiter = spent(store)
    other = hotcount.Limiter(store, RATE)  # Another object, of the same keys.
    if how == "block":
        other.block("k", 60)
        assert limiter.hit("k").reason == "blocked"
        other.reset("k")
    elif how == "reset":
        other.reset("k")
    else:
        other.refund("k", 1)
    assert limiter.hit("k")


async def test_the_same_from_a_loop(store: hotcount.Redis, direct: hotcount.Redis) -> None:
    limiter = aio.Limiter(store, RATE, deny_cache=10)
    assert [bool(await limiter.hit("k")) for _ in range(3)] == [True, True, False]
    asked = Asked(direct)
    assert not await limiter.hit("k")
    assert list((await limiter.hit_many(["k", "k"])).allowed) == [False, False]
    assert asked.times == 0
    await limiter.reset("k")
    assert await limiter.hit("k")
    await limiter.refund("k", 1)
    assert [bool(await limiter.hit("k")) for _ in range(3)] == [True, True, False]


async def test_a_denial_from_before_a_reset_is_not_kept(own_redis: RedisServer) -> None:
    store = aio.Redis(own_redis.url, timeout=20)
    limiter = aio.Limiter(store, RATE, deny_cache=10)
    await limiter.hit("k", 2)
    # All of one turn, in this order: the denial arrives when the reset has begun.
    denied, _ = await asyncio.gather(limiter.hit("k"), limiter.reset("k"))
    assert not denied
    assert await limiter.hit("k")


def test_it_holds_no_more_keys_than_it_may(store: hotcount.Redis, direct: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, "1/300 days", deny_cache=3)
    for i in range(10):
        limiter.hit(f"k{i}", 1)
        assert not limiter.hit(f"k{i}", 1)
    asked = Asked(direct)
    denied = [bool(limiter.hit(f"k{i}")) for i in range(10)]
    assert denied == [False] * 10
    assert 7 <= asked.times <= 10


def test_a_forked_child_begins_with_an_empty_cache(
    store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    limiter = spent(store)
    asked = Asked(direct)
    assert in_child(lambda: bool(limiter.hit("k"))) is False
    assert asked.times == 1
    assert not limiter.hit("k")
    assert asked.times == 1


def test_threads_share_it(store: hotcount.Redis, direct: hotcount.Redis) -> None:
    limiter = spent(store)
    asked = Asked(direct)
    assert not any(together(lambda _: any(limiter.hit("k") for _ in range(50))))
    assert asked.times == 0


def test_test_and_peek_and_at_most_ask(store: hotcount.Redis, direct: hotcount.Redis) -> None:
    limiter = spent(store)
    asked = Asked(direct)
    assert not limiter.test("k")
    assert not limiter.peek("k")
    assert limiter.at_most("k", 1) == 0
    assert asked.times == 3


def test_shadow_is_as_without_it(store: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, RATE, deny_cache=10, shadow=True)
    assert [limiter.hit("k").reason for _ in range(5)] == ["allowed"] * 2 + ["shadow"] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deny_cache": -1}, "deny_cache is -1; it takes 0 to 10000000"),
        ({"deny_cache": 10**7 + 1}, "deny_cache is 10000001"),
        ({"deny_cache": 1, "charge_denied": True}, "deny_cache is not for charge_denied"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=message):
        hotcount.Limiter("memory://", RATE, **options)
