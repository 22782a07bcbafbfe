"""Limiter.refund, block and acquire, on every store."""

import random
import time
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.limiters import CHARGING, SAFE
from tests.support.servers import keys_of
from tests.support.stores import AnyStore
from tests.support.together import together

TEN = "10/300 days"
DAY = 86400


def test_what_is_given_back_can_be_taken_again(limiter: hotcount.Limiter) -> None:
    assert [limiter.hit("k", cost).remaining for cost in (3, 3, 4)] == [7, 4, 0]
    assert limiter.refund("k", 5) == 5
    assert limiter.peek("k").remaining == 5
    assert [limiter.hit("k", 2).allowed for _ in range(3)] == [True, True, False]
    assert limiter.hit("k").allowed
    assert limiter.refund("k", 1) == 1


def test_no_refund_goes_beyond_a_full_limit(limiter: hotcount.Limiter) -> None:
    for n in (5, 2**63 - 1):
        assert limiter.refund("absent", n) == 10
        limiter.hit("k", 4)
        assert limiter.refund("k", n) == 10
        assert limiter.hit("k", 10).allowed
        assert not limiter.hit("k").allowed
        assert limiter.refund("k", 10) == 10


@pytest.mark.parametrize("algorithm", CHARGING)
def test_what_denied_hits_cost_is_given_back(limit_store: AnyStore, algorithm: Any) -> None:
    limiter = hotcount.Limiter(limit_store, TEN, algorithm=algorithm, charge_denied=True)
    assert [bool(limiter.hit("k", 10)) for _ in range(3)] == [True, False, False]
    assert limiter.refund("k", 10) == 0
    assert limiter.refund("k", 3) == 3


@pytest.mark.parametrize("algorithm", SAFE)
def test_several_rates_get_it_back_together(limit_store: AnyStore, algorithm: Any) -> None:
    rates = "4/300 days; 6/360 days"
    limiter = hotcount.Limiter(limit_store, rates, algorithm=algorithm)
    assert limiter.hit("k", 4).allowed
    assert limiter.refund("k", 3) == 3
    assert limiter.hit("k", 3).allowed
    assert limiter.refund("k", 9) == 4
    assert limiter.hit("k", 4).allowed
    assert not limiter.hit("k").allowed


def test_a_window_that_was_given_back_begins_with_the_next_hit(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, "9/hour", algorithm="fixed_window", align="first")
    limiter.hit("k", 4)
    time.sleep(0.01)
    assert limiter.refund("k", 4) == 9
    assert limiter.hit("k").reset_after == 3600


@pytest.mark.parametrize("rates", ["10/300 days; 2/360 days", "2/360 days; 10/300 days"])
def test_a_blocked_key_counts_until_rates_are_full(limit_store: AnyStore, rates: str) -> None:
    limiter = hotcount.Limiter(limit_store, rates)
    limiter.hit("k")
    limiter.block("k", 60)
    blocked = limiter.hit("k")
    assert blocked.reason == "blocked"
    assert blocked.reset_after == pytest.approx(180 * DAY, abs=60)


@pytest.mark.parametrize("seed", range(3))
def test_memory_and_redis_agree(redis: hotcount.Redis, options: dict[str, Any], seed: int) -> None:
    chance = random.Random(seed)
    rate = chance.choice(["7/300 days", "7/300 days; 9/360 days"])
    both = [hotcount.Limiter(store, rate, **options) for store in (hotcount.Memory(), redis)]
    for _ in range(60):
        n, refunds = chance.randint(1, 6), chance.random() < 0.4
        answers = [one.refund("k", n) if refunds else one.hit("k", n).remaining for one in both]
        assert answers[0] == answers[1], (rate, n, refunds)


def test_refunds_and_hits_of_many_threads_add_up(limiter: hotcount.Limiter) -> None:

    def work(_: int) -> None:
        for _ in range(10):
            if limiter.hit("hot"):
                limiter.refund("hot", 1)

    together(work)
    assert limiter.peek("hot").remaining == 10


def test_a_blocked_key_is_refused_until_reset(limiter: hotcount.Limiter) -> None:
    for key, hits in (("fresh", 0), ("hit", 3)):
        for _ in range(hits):
            limiter.hit(key)
        limiter.block(key, 400 * DAY / 2)
        looks = (limiter.hit(key), limiter.test(key), limiter.peek(key))
        for refused in (*looks, *limiter.hit_many([key])):
            assert (refused.allowed, refused.reason, refused.violated) == (False, "blocked", ())
            assert refused.remaining == 0
            wait = refused.retry_after or 0
            assert 199 * DAY < wait <= min(200 * DAY, refused.reset_after)
            assert "Retry-After" in refused.headers()
        assert limiter.at_most(key, 5) == 0
        # A block replaces the one before.
        limiter.block(key, 100 * DAY)
        assert (limiter.peek(key).retry_after or 0) <= 100 * DAY
        limiter.reset(key)
        assert limiter.hit(key).remaining == 9


def test_a_block_that_ends_leaves_what_was_taken(limiter: hotcount.Limiter) -> None:
    limiter.hit("k", 4)
    limiter.hit("k", 2)
    limiter.block("k", 0.05)
    assert limiter.refund("k", 1) == 5
    ended = limiter.acquire("k", timeout=20)
    assert (ended.allowed, ended.remaining) == (True, 4)
    assert limiter.refund("k", 1) == 5
    limiter.block("other", timeout=20, seconds=0.001)
    assert limiter.acquire("other").remaining == 9


async def test_aio_answers_the_same(limit_store: AnyStore, options: dict[str, Any]) -> None:
    limiter = aio.Limiter(limit_store, TEN, **options)
    await limiter.hit("k", 10)
    assert await limiter.refund("k", 4) == 4
    await limiter.block("k", 0.05)
    assert (await limiter.hit("k")).reason == "blocked"
    assert (await limiter.wait("k", timeout=20)).remaining == 3


def test_an_amount_and_a_time_that_are_none_are_refused() -> None:
    limiter = hotcount.Limiter("memory://", TEN)
    for bad in (0, -1, -(2**63), 2**63):
        with pytest.raises(hotcount.ConfigError, match="n "):
            limiter.refund("k", bad)
    for seconds in (0, -1.0, 367 * DAY, float("inf"), float("nan")):
        with pytest.raises(hotcount.ConfigError, match="seconds"):
            limiter.block("k", seconds)


def test_acquire_waits_as_long_as_it_must_and_no_longer(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, "1/20 ms")
    begun = time.monotonic()
    assert all(limiter.acquire("k") for _ in range(4))
    assert time.monotonic() - begun >= 0.059
    slow = hotcount.Limiter(limit_store, TEN)
    slow.hit("k", 10)
    begun = time.monotonic()
    for refused in (slow.acquire("k", timeout=DAY), slow.acquire("k", 11), slow.wait("k", 1, 0)):
        assert not refused
    assert time.monotonic() - begun < DAY
    for wrong in ("1", True):
        with pytest.raises(TypeError, match="timeout"):
            slow.acquire("k", timeout=wrong)  # type: ignore[arg-type]
    for bad in (-1.0, float("nan")):
        with pytest.raises(hotcount.ConfigError, match="timeout"):
            slow.acquire("k", timeout=bad)


def test_a_blocked_key_expires(redis: hotcount.Redis, options: dict[str, Any]) -> None:
    limiter = hotcount.Limiter(redis, "5/second", **options)
    limiter.block("fresh", 60)
    limiter.hit("k", 5)
    limiter.block("k", 60)
    for key in keys_of(redis):
        assert 59_000 < redis.execute("PTTL", key) <= 60_000
        redis.execute("PERSIST", key)
        assert not limiter.hit(key.decode().rsplit(":", 1)[1])
        assert 59_000 < redis.execute("PTTL", key) <= 60_000
    redis.execute("SCRIPT", "FLUSH")
    assert limiter.peek("k").reason == "blocked"
    (key,) = keys_of(redis, "*:k")
    for command, value in (("SET", "!9 1"), ("RPUSH", "!x"), ("SADD", "!9")):
        redis.execute("DEL", key)
        redis.execute(command, key, value)
        with pytest.raises(hotcount.WrongTypeError):
            limiter.hit("k")
        for call in (limiter.block, limiter.refund):
            with pytest.raises(hotcount.WrongTypeError):
                call("k", 1)


def test_a_batch_keeps_its_order(redis: hotcount.Redis, options: dict[str, Any]) -> None:
    limiter = hotcount.Limiter(redis, TEN, **options)
    limiter.hit("k")
    (key,) = keys_of(redis)
    redis.execute("PERSIST", key)
    decisions = limiter.hit_many(["new", "k", "k", "new"], [1, 11, 9, 1])
    assert list(decisions.allowed) == [True, False, True, True]
    assert list(decisions.remaining) == [9, 9, 0, 8]
    assert redis.execute("PTTL", key) > 0
