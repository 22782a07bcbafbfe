"""Calls with a rate of their own: a key has a state at each rate, on every store."""

import asyncio
from typing import Any

import hotcount
import pytest
from hotcount import Rate, aio

from tests.support.servers import calls_of
from tests.support.stores import AnyStore
from tests.support.together import in_child, together

TEN, FOUR = "10/300 days", "4/300 days"


def test_a_key_has_a_state_of_its_own_at_each_rate(limiter: hotcount.Limiter) -> None:
    assert [limiter.hit("k", rate=FOUR).allowed for _ in range(5)] == [True] * 4 + [False]
    denied = limiter.hit("k", rate=FOUR)
    assert (denied.limit, denied.remaining, denied.violated) == (4, 0, (FOUR,))
    assert limiter.hit("k", 3).remaining == 7
    assert limiter.peek("k", rate=FOUR).remaining == 0
    assert limiter.test("k", 5, rate=FOUR).reason == "cost_above_limit"
    assert limiter.at_most("k", 9, rate=FOUR) == 0
    assert limiter.at_most("other", 9, rate=FOUR) == 4
    limiter.reset("k", rate=FOUR)
    assert limiter.peek("k", rate=FOUR).remaining == 4
    assert limiter.peek("k").remaining == 7
    batch = limiter.hit_many(["k"] * 5, rate=FOUR)
    assert list(batch.allowed) == [True] * 4 + [False]
    assert batch[4].violated == (FOUR,)


def test_limiters_share_the_state_of_a_rate(limit_store: AnyStore, options: dict[str, Any]) -> None:
    limiter = hotcount.Limiter(limit_store, TEN, **options)
    plan = hotcount.Limiter(limit_store, FOUR, **options)
    assert plan.hit("k").remaining == 3
    assert limiter.hit("k", rate="4 per 300 days").remaining == 2
    assert limiter.hit("k", rate=Rate.parse(FOUR)).remaining == 1
    assert limiter.hit("k", rate=(FOUR,)).remaining == 0
    assert limiter.hit("k", rate=TEN).remaining == 9
    assert limiter.peek("k").remaining == 9


def test_what_was_taken_is_given_back_and_blocked_at_its_rate(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, TEN)
    limiter.hit("k", 4, rate=FOUR)
    assert limiter.refund("k", 3) == 10
    assert limiter.refund("k", 3, rate=FOUR) == 3
    limiter.block("k", 600, rate=FOUR)
    assert limiter.hit("k", rate=FOUR).reason == "blocked"
    assert limiter.hit("k").allowed
    assert not limiter.acquire("k", 4, 0, rate=FOUR)


def test_several_rates_of_a_call_are_taken_from_together(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, TEN)
    both = f"{FOUR}; 6/360 days"
    assert [limiter.hit("k", 3, rate=both).allowed for _ in range(2)] == [True, False]
    assert limiter.peek("k", rate=both).remaining == 1
    assert limiter.hit("k", 3, rate=(FOUR, Rate.parse("6/360 days"))).violated == (FOUR,)


@pytest.mark.parametrize(
    "rate",
    ["", "none", "5/fortnight", "0/s", "5/s; 5/s", (), Rate(0, 1, 1), Rate(5, float("nan"), 5)],
)
def test_a_bad_rate_is_named_and_nothing_is_taken(rate: Any) -> None:
    limiter = hotcount.Limiter("memory://", TEN)
    named = repr(rate) if isinstance(rate, str) and rate in ("none", "5/fortnight") else "rate"
    for call in (limiter.hit, limiter.peek, limiter.reset):
        with pytest.raises(hotcount.ConfigError, match=named):
            call("k", rate=rate)
    assert limiter.peek("k").remaining == 10


@pytest.mark.parametrize("rate", [5, b"5/s", ["5/s"], object()])
def test_what_is_no_rate_is_a_type_error(rate: Any) -> None:
    with pytest.raises(TypeError, match="rate must be"):
        hotcount.Limiter("memory://", TEN).hit("k", rate=rate)
    with pytest.raises(hotcount.ConfigError, match="burst"):
        hotcount.Limiter("memory://", TEN, algorithm="fixed_window").hit("k", rate="5/s burst 9")


def test_more_rates_than_are_kept_ready_lose_no_state() -> None:
    limiter = hotcount.Limiter("memory://", TEN, algorithm="fixed_window")
    rates = [f"{number}/300 days" for number in range(1, 1201)]
    for rate in rates:
        assert limiter.hit("k", rate=rate).allowed
    assert [limiter.peek("k", rate=rate).remaining for rate in rates] == list(range(1200))


def test_threads_and_tasks_share_the_state_of_a_rate(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, TEN)
    limit = "50/300 days"

    def work(index: int) -> int:
        if index % 2:
            return sum(limiter.hit("k", rate=limit).allowed for _ in range(5))

        async def tasks() -> int:
            shared = aio.Limiter(limit_store, TEN)
            hits = await asyncio.gather(*(shared.hit("k", rate=limit) for _ in range(5)))
            return sum(hit.allowed for hit in hits)

        return asyncio.run(tasks())

    assert sum(together(work, 16)) == 50


async def test_aio_takes_a_rate_wherever_the_blocking_limiter_does(limit_store: AnyStore) -> None:
    limiter = aio.Limiter(limit_store, TEN)
    assert (await limiter.hit("k", rate=FOUR)).remaining == 3
    assert (await limiter.hit_many(["k"], rate=FOUR))[0].remaining == 2
    assert await limiter.at_most("k", 1, rate=FOUR) == 1
    assert await limiter.refund("k", 1, rate=FOUR) == 2
    assert (await limiter.acquire("k", rate=FOUR)).remaining == 1
    assert (await limiter.test("k", rate=FOUR)).limit == 4
    await limiter.block("k", 60, rate=FOUR)
    assert (await limiter.peek("k", rate=FOUR)).reason == "blocked"
    await limiter.reset("k", rate=FOUR)
    assert (await limiter.peek("k", rate=FOUR)).remaining == 4
    with pytest.raises(hotcount.ConfigError, match="nonsense"):
        await limiter.hit("k", rate="nonsense")


async def test_a_call_outlives_its_rate_in_the_cache(redis: hotcount.Redis) -> None:
    limiter = aio.Limiter(redis, TEN, algorithm="fixed_window")
    calls = [limiter.hit("k", rate=f"{number}/300 days") for number in range(1, 2501)]
    decisions = await asyncio.gather(*calls)
    assert [decision.limit for decision in decisions] == list(range(1, 2501))


def test_a_closed_limiter_refuses_every_rate(redis: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(redis, TEN)
    assert limiter.hit("k", rate=FOUR)
    limiter.close()
    for rate in (FOUR, "9/300 days"):
        with pytest.raises(hotcount.ClosedError):
            limiter.hit("k", rate=rate)


def test_a_forked_child_uses_the_rates_of_its_parent(redis: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(redis, TEN)
    assert limiter.hit("k", rate=FOUR).remaining == 3
    assert in_child(lambda: limiter.hit("k", rate=FOUR).remaining) == 2
    assert limiter.hit("k", rate=FOUR).remaining == 1


def test_denials_of_all_rates_share_the_bound_of_the_deny_cache(redis: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(redis, TEN, deny_cache=1)
    one, two = "1/300 days", "2/300 days"
    for rate in (one, two):
        assert limiter.hit("k", int(rate[0]), rate=rate)
        assert not limiter.hit("k", rate=rate)
    before = calls_of(redis, "evalsha")
    assert not limiter.hit("k", rate=two)
    assert calls_of(redis, "evalsha") == before, "the last denial is remembered"
    assert not limiter.hit("k", rate=one)
    assert calls_of(redis, "evalsha") == before + 1, "which took the place of the first"
