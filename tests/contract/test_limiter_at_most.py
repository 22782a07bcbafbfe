"""Limiter.at_most takes what fits, and a shadow limiter admits all, on every store."""

import asyncio
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.limiters import SAFE
from tests.support.stores import AnyStore
from tests.support.together import together

TEN = "10/300 days"


def test_what_fits_is_taken_and_no_more(limiter: hotcount.Limiter) -> None:
    assert [limiter.at_most("k", 4) for _ in range(4)] == [4, 4, 2, 0]
    assert limiter.peek("k").remaining == 0
    assert not limiter.hit("k")
    assert limiter.at_most("other", 2**63 - 1) == 10
    assert limiter.at_most(("a", "b"), 1) == 1


def test_many_threads_take_the_limit_together(limiter: hotcount.Limiter) -> None:
    taken = together(lambda _: sum(limiter.at_most("hot", 3) for _ in range(5)))
    assert sum(taken) == 10


@pytest.mark.parametrize("algorithm", SAFE)
def test_of_several_rates_the_least_room_counts(limit_store: AnyStore, algorithm: Any) -> None:
    rates = "4/300 days; 6/360 days"
    limiter = hotcount.Limiter(limit_store, rates, algorithm=algorithm)
    assert [limiter.at_most("k", 3) for _ in range(3)] == [3, 1, 0]
    assert limiter.peek("k").violated == ("4/300 days",)
    # Hits that the first rate denied were not taken from the second.
    assert not limiter.test("k", 2).allowed


def test_a_call_that_takes_nothing_is_not_charged(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, TEN, charge_denied=True)
    assert limiter.at_most("k", 10) == 10
    before = limiter.peek("k").reset_after
    assert limiter.at_most("k", 10) == 0
    assert limiter.peek("k").reset_after <= before


async def test_aio_takes_the_same(limit_store: AnyStore, options: dict[str, Any]) -> None:
    limiter = aio.Limiter(limit_store, TEN, **options)
    assert sum(await asyncio.gather(*(limiter.at_most("k", 3) for _ in range(9)))) == 10
    shadow = aio.Limiter(limit_store, TEN, shadow=True, **options)
    assert (await shadow.hit("k")).reason == "shadow"


@pytest.mark.parametrize("n", [0, -1, -(2**63), 2**63])
def test_an_amount_that_is_none_is_refused(n: int) -> None:
    with pytest.raises(hotcount.ConfigError, match="n "):
        hotcount.Limiter("memory://", TEN).at_most("k", n)


def test_a_shadow_limiter_admits_and_tells(limit_store: AnyStore, options: dict[str, Any]) -> None:
    shadow = hotcount.Limiter(limit_store, TEN, shadow=True, **options)
    assert shadow.hit("k", 10).reason == "allowed"
    for decision in (shadow.hit("k"), shadow.test("k"), shadow.hit_many(["k"])[0]):
        assert (decision.allowed, decision.reason) == (True, "shadow")
        assert decision.violated == (TEN,)
        assert (decision.retry_after or 0) > 0
        assert "Retry-After" not in decision.headers()
    assert shadow.hit("k", 11).retry_after is None
    assert shadow.at_most("k", 5) == 5
    # On the same keys, which what was let through has not changed.
    strict = hotcount.Limiter(limit_store, TEN, **options)
    refused = strict.hit("k")
    assert (refused.allowed, refused.remaining) == (False, 0)
