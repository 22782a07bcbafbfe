"""A Limiter of several rates takes from all of them or from none, on every store."""

import asyncio
import math
import pickle
import time
from typing import Any

import hotcount
import pytest
from hotcount import aio, hit_all

from tests.support.limiters import SAFE, periods
from tests.support.servers import keys_of
from tests.support.stores import AnyStore
from tests.support.together import together

# Windows that no test run crosses the edge of.
BOTH = "4/300 days; 10/360 days"
SHORT, LONG = "4/300 days", "10/360 days"

ALGORITHMS = pytest.mark.parametrize("algorithm", SAFE)


@ALGORITHMS
def test_a_hit_that_one_rate_refuses_takes_nothing(limit_store: AnyStore, algorithm: Any) -> None:
    limiter = hotcount.Limiter(limit_store, BOTH, algorithm=algorithm)
    first = limiter.hit("k", 3)
    assert (first.allowed, first.violated, first.remaining, first.limit) == (True, (), 1, 4)
    for _ in range(5):
        refused = limiter.hit("k", 2)
        assert (refused.allowed, refused.violated) == (False, (SHORT,))
        assert (refused.reason, refused.limit, refused.period) == ("limited", 4, 300 * 86400)
    # The long one holds what was admitted, and nothing of what was refused.
    assert limiter.hit("k", 1).remaining == 0
    above = limiter.hit("k", 5)
    assert (above.reason, above.retry_after, above.violated) == ("cost_above_limit", None, (SHORT,))
    assert limiter.hit("other", 11).violated == (SHORT, LONG)


@ALGORITHMS
def test_the_rate_that_refuses_for_longest_speaks(limit_store: AnyStore, algorithm: Any) -> None:
    limiter = hotcount.Limiter(limit_store, "5/day; 5/300 days", algorithm=algorithm)
    limiter.hit("k", 5)
    refused = limiter.hit("k")
    assert refused.violated == ("5/day", "5/300 days")
    assert refused.period == 300 * 86400
    assert 0 < (refused.retry_after or 0) <= refused.reset_after
    assert refused.reset_after <= periods(algorithm) * 300 * 86400 + 0.001
    assert refused.headers()["RateLimit-Policy"] == '"default";q=5;w=25920000'


@ALGORITHMS
def test_the_times_are_those_of_the_rate_that_speaks(limit_store: AnyStore, algorithm: Any) -> None:
    short, long, day = "4/3 days", "10/300 days", 86400
    limiter = hotcount.Limiter(limit_store, f"{short}; {long}", algorithm=algorithm)
    most = periods(algorithm) * 3 * day
    first = limiter.hit("k", 3)
    assert (first.limit, first.remaining, first.allowed) == (4, 1, True)
    assert 0 < first.reset_after <= most + 0.001
    assert f";t={math.ceil(first.reset_after)}" in first.headers()["RateLimit"]
    refused = limiter.hit("k", 2)
    assert refused.violated == (short,)
    assert 0 < (refused.retry_after or 0) <= refused.reset_after <= most + 0.001
    told = refused.headers("legacy")
    assert told["X-RateLimit-Limit"] == "4"
    assert int(told["Retry-After"]) <= int(told["X-RateLimit-Reset"]) <= most + 1
    # Of several limiters, in one step or in two.
    for store in (limit_store, hotcount.Memory()):
        few = hotcount.Limiter(limit_store, short, name="few", algorithm=algorithm)
        many = hotcount.Limiter(store, long, name="many", algorithm=algorithm)
        decision = hit_all([(few, "k"), (many, "k")])
        assert decision.limit == 4
        assert 0 < decision.reset_after <= most + 0.001


@ALGORITHMS
def test_a_key_outlives_its_shorter_rate(limit_store: AnyStore, algorithm: Any) -> None:
    limiter = hotcount.Limiter(
        limit_store,
        (hotcount.Rate(2, 0.05, 2), hotcount.Rate(3, 300 * 86400, 3)),
        algorithm=algorithm,
    )
    for hits in (2, 1):
        assert limiter.hit("k", hits).allowed
        time.sleep(0.15)
    assert limiter.hit("k").violated == ("3/300 days",)


@ALGORITHMS
def test_exactly_the_least_limit_is_admitted(limit_store: AnyStore, algorithm: Any) -> None:
    limiter = hotcount.Limiter(limit_store, BOTH, algorithm=algorithm)
    assert sum(together(lambda _: sum(limiter.hit("k").allowed for _ in range(5)))) == 4


@ALGORITHMS
def test_looks_batches_and_reset_know_all_rates(limit_store: AnyStore, algorithm: Any) -> None:
    limiter = hotcount.Limiter(limit_store, BOTH, algorithm=algorithm)
    assert limiter.test("k", 5).violated == (SHORT,)
    decisions = limiter.hit_many(["k", "k", "j", "k"], [3, 2, 4, 1])
    assert list(decisions.allowed) == [True, False, True, True]
    assert [decision.violated for decision in decisions] == [(), (SHORT,), (), ()]
    assert pickle.loads(pickle.dumps(decisions)) == decisions
    assert limiter.peek("k").remaining == 0
    limiter.reset("k")
    assert limiter.peek("k").remaining == 4


@ALGORITHMS
async def test_aio_answers_the_same(limit_store: AnyStore, algorithm: Any) -> None:
    limiter = aio.Limiter(limit_store, BOTH, algorithm=algorithm)
    decisions = await asyncio.gather(*(limiter.hit("k") for _ in range(20)))
    assert sum(decision.allowed for decision in decisions) == 4
    assert {decision.violated for decision in decisions} == {(), (SHORT,)}
    batch = await limiter.hit_many(["j", "j"], 3)
    assert [decision.violated for decision in batch] == [(), (SHORT,)]


def test_a_blocked_key_is_told_of_with_the_first_rate_on_every_store(limit_store: AnyStore) -> None:
    limiter = hotcount.Limiter(limit_store, "5/day; 6/300 days")
    limiter.hit("k", 5)
    assert limiter.hit("k", 2).limit == 6, "the second one refuses for longer"
    limiter.block("k", 60)
    for decision in (limiter.hit("k", 2), limiter.test("k", 2), hit_all([(limiter, "k", 2)])):
        assert (decision.limit, decision.reason) == (5, "blocked")


def test_rates_are_given_as_text_or_in_a_tuple() -> None:
    rates = (hotcount.Rate(10, 1, 10), hotcount.Rate(1000, 3600, 1000))
    texts = "10/second; 1000/hour", "10/s;1000/h", "10 per second, 1000 per hour", "10/s|1000/h"
    for text in texts:
        assert hotcount.Rate.parse_many(text) == rates
        assert hotcount.Limiter("memory://", text).rates == rates
    limiter = hotcount.Limiter("memory://", (rates[0], "1000/hour"))
    assert limiter.rates == rates
    assert limiter.rate == rates[0]
    assert "rate='10/second; 1000/hour'" in repr(limiter)
    assert hotcount.Limiter("memory://", (rates[0],)).rates == rates[:1]


def test_rates_that_cannot_stand_together_are_refused() -> None:
    many = "; ".join(f"{number}/s" for number in range(1, 10))
    bad: list[Any] = [many, (), "5/s; 5/s", "5/s; 5/1000 ms", "5/s;", "5/s; often", ("5/s; 6/m",)]
    for rate in bad:
        with pytest.raises(hotcount.ConfigError, match="rate"):
            hotcount.Limiter("memory://", rate)
    wrong: list[Any] = [["5/s"], ("5/s", 5), (5,), 5, 5.0, None, b"5/s", True]
    for rate in wrong:
        with pytest.raises(TypeError, match="rate"):
            hotcount.Limiter("memory://", rate)
    with pytest.raises(hotcount.ConfigError, match="burst"):
        hotcount.Limiter("memory://", "5/s; 6/m burst 7", algorithm="sliding_window")


@ALGORITHMS
def test_all_rates_of_a_key_stand_in_one_key(redis: hotcount.Redis, algorithm: Any) -> None:
    limiter = hotcount.Limiter(redis, "5/second; 10/minute", algorithm=algorithm)
    limiter.hit("k", 5)
    (key,) = keys_of(redis)
    assert key == f"{redis.prefix!s}limit:default:{algorithm}:5/second;10/minute:k".encode()
    most = periods(algorithm) * 60_000
    assert 0 < redis.execute("PTTL", key) <= most
    for cost in (1, 11):
        assert redis.execute("PERSIST", key) == 1
        limiter.hit("k", cost)
        assert 0 < redis.execute("PTTL", key) <= most
    redis.execute("SCRIPT", "FLUSH")
    assert limiter.peek("k").remaining >= 0
    for command, value in (("SET", "1 2"), ("RPUSH", "x")):
        redis.execute("DEL", key)
        redis.execute(command, key, value)
        with pytest.raises(hotcount.WrongTypeError, match="limit:default"):
            limiter.hit("k")
