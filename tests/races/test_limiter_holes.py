"""The limiters of the Redis documentation's INCR page, each with its holes forced, no luck needed.

A hole that a test here no longer finds means that a way has been mended: it is then no longer the
one it is named after.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Union

import hotcount
import pytest

from tests.support.limiters import SAFE, UNSAFE
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

Store = Union[hotcount.Memory, hotcount.Redis]
Way = Any  # One of Limiter's algorithm names; mypy would want the Literal spelled out again.

CALLERS = 13


def rate(way: Way, limit: int) -> str:
    return f"{limit}/second" if way == "per_second_key" else f"{limit}/300 days"


def within_one_second(attempt: Any) -> Any:
    """The result of an attempt that no second's end fell into."""
    while True:
        second = int(time.time())
        result = attempt(second)
        if int(time.time()) == second:
            return result


@pytest.fixture
def direct(own_redis: RedisServer) -> Iterator[hotcount.Redis]:
    with own_redis.redis(timeout=19) as redis:
        yield redis


@pytest.mark.parametrize("way", UNSAFE)
def test_a_limit_of_10_admits_11_because_the_check_is_greater_than(
    counter_store: Store, way: Way
) -> None:
    limiter = hotcount.Limiter(counter_store, rate(way, 10), algorithm=way)

    def count(second: int) -> int:
        return sum(limiter.hit(f"caller at {second}").allowed for _ in range(20))

    assert within_one_second(count) == 11


def wait_for_blocked(direct: hotcount.Redis) -> None:
    """Until all callers are blocked, some of them in a transaction."""
    while len(re.findall(rb" flags=x?b", direct.execute("CLIENT", "LIST"))) < CALLERS:
        time.sleep(0.005)


def admitted_between_check_and_act(server: RedisServer, direct: hotcount.Redis, way: Way) -> int:
    """Callers of a limit of 1 that all have checked before any of them acts."""
    with ExitStack() as stack, ThreadPoolExecutor(CALLERS) as pool:
        # Stores of different options have connections of their own.
        stores = [stack.enter_context(server.redis(timeout=20 + i)) for i in range(CALLERS)]
        limiters = [hotcount.Limiter(store, rate(way, 1), algorithm=way) for store in stores]
        for store in stores:
            store.ping()
        # Reads are answered, writes and scripts wait: each caller stops at its first write.
        direct.execute("CLIENT", "PAUSE", 60_000, "WRITE")
        hits = [pool.submit(limiter.hit, "hot") for limiter in limiters]
        wait_for_blocked(direct)
        direct.execute("CLIENT", "UNPAUSE")
        return sum(hit.result().allowed for hit in hits)


@pytest.mark.parametrize("way", UNSAFE)
def test_all_who_checked_before_anybody_acted_are_admitted(
    own_redis: RedisServer, direct: hotcount.Redis, way: Way
) -> None:
    assert admitted_between_check_and_act(own_redis, direct, way) == CALLERS


@pytest.mark.parametrize("way", SAFE)
def test_the_safe_algorithms_admit_the_limit_to_callers_at_once(
    own_redis: RedisServer, direct: hotcount.Redis, way: Way
) -> None:
    assert admitted_between_check_and_act(own_redis, direct, way) == 1


def test_racy_incr_leaves_an_immortal_key_when_expire_never_arrives(
    own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    # A user who may not EXPIRE stands for a caller that dies between the two commands.
    direct.execute("ACL", "SETUSER", "dying", "on", ">pw", "~*", "&*", "+@all", "-expire")
    with hotcount.Redis(own_redis.login("dying", "pw")) as dying:
        limiter = hotcount.Limiter(dying, "10/second", algorithm="racy_incr")
        with pytest.raises(hotcount.PermissionDeniedError):
            limiter.hit("k")
    key = "limit:default:racy_incr:10/second:k"
    assert direct.execute("PTTL", key) == -1
    limiter = hotcount.Limiter(direct, "10/second", algorithm="racy_incr")
    assert [limiter.hit("k").allowed for _ in range(12)] == [True] * 10 + [False] * 2
    # The second that the rate speaks of has no end: nobody sets an expiry any more.
    assert direct.execute("PTTL", key) == -1
    assert limiter.test("k").retry_after is None


def test_incr_expire_never_heals_a_key_without_an_expiry(direct: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(direct, "10/minute", algorithm="incr_expire")
    key = "limit:default:incr_expire:10/minute:k"
    limiter.hit("k")
    assert direct.execute("TTL", key) > 0
    direct.execute("PERSIST", key)
    assert [limiter.hit("k").allowed for _ in range(12)] == [True] * 10 + [False] * 2
    assert direct.execute("PTTL", key) == -1
    assert limiter.test("k").retry_after is None


def test_per_second_key_counts_by_the_callers_clock(direct: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(direct, "10/second", algorithm="per_second_key")

    def names(second: int) -> tuple[list[bytes], bytes]:
        direct.execute("FLUSHALL")
        limiter.hit("k")
        keys: list[bytes] = direct.execute("KEYS", "*")
        return keys, b"limit:default:per_second_key:10/second:k:%d" % second

    # Not the server's second: a caller whose clock is off has a limit of its own.
    keys, expected = within_one_second(names)
    assert keys == [expected]
    assert 0 < direct.execute("TTL", keys[0]) <= 10


def test_racy_list_lets_any_number_pass_uncounted(
    own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    limiter = hotcount.Limiter(direct, rate("racy_list", 1), algorithm="racy_list")
    assert limiter.hit("k", who="first")
    (key,) = direct.execute("KEYS", "*")
    with ExitStack() as stack, ThreadPoolExecutor(CALLERS) as pool:
        stores = [stack.enter_context(own_redis.redis(timeout=20 + i)) for i in range(CALLERS)]
        limiters = [
            hotcount.Limiter(store, limiter.rate, algorithm="racy_list") for store in stores
        ]
        for store in stores:
            store.ping()
        assert direct.execute("PEXPIRE", key, 2000) == 1
        direct.execute("CLIENT", "PAUSE", 60_000, "WRITE")
        hits = [pool.submit(each.hit, "k", who="uncounted") for each in limiters]
        # All have asked EXISTS and wait with RPUSHX. A key does not expire during the pause, and is
        # gone at its end.
        wait_for_blocked(direct)
        time.sleep(2.1)
        direct.execute("CLIENT", "UNPAUSE")
        assert all(hit.result().allowed for hit in hits)
    assert direct.execute("EXISTS", key) == 0
    assert limiter.entries("k") == []


def test_racy_list_remembers_callers_and_expires_with_its_first(counter_store: Store) -> None:
    limiter = hotcount.Limiter(counter_store, "2/second", algorithm="racy_list")

    def callers(second: int) -> list[str]:
        for who in ("a", "b", "c"):
            assert limiter.hit(("k", str(second)), who=who)
        assert not limiter.hit(("k", str(second)), who="d")
        return limiter.entries(("k", str(second)))

    assert within_one_second(callers) == ["a", "b", "c"]


def test_a_transaction_whose_multi_is_refused_is_unknown(
    own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    direct.execute("ACL", "SETUSER", "single", "on", ">pw", "~*", "&*", "+@all", "-multi")
    with hotcount.Redis(own_redis.login("single", "pw")) as single:
        limiter = hotcount.Limiter(single, "10/second", algorithm="per_second_key")
        with pytest.raises(hotcount.OutcomeUnknownError, match="MULTI was refused"):
            limiter.hit("k")
    assert direct.execute("KEYS", "limit:*")  # INCR was run by itself.


@pytest.mark.parametrize("way", UNSAFE)
def test_an_unsafe_algorithm_takes_no_cost(counter_store: Store, way: Way) -> None:
    limiter = hotcount.Limiter(counter_store, rate(way, 10), algorithm=way)
    with pytest.raises(hotcount.ConfigError, match="cost must be 1"):
        limiter.hit("k", 2)
    assert list(limiter.hit_many(["a", "a", "b"]).allowed) == [True] * 3
    limiter.reset("a")
    assert limiter.peek("a").remaining == 10
    with pytest.raises(hotcount.ConfigError, match="charge_denied"):
        hotcount.Limiter(counter_store, rate(way, 10), algorithm=way, charge_denied=True)


def test_per_second_key_takes_rates_per_second_only() -> None:
    with pytest.raises(hotcount.ConfigError, match=r"per_second_key.*10/minute"):
        hotcount.Limiter("memory://", "10/minute", algorithm="per_second_key")
