"""The limiters of the Redis documentation's INCR page, each with its holes forced, no luck needed.

A hole that a test here no longer finds means that a way has been mended: it is then no longer the
one it is named after. The algorithms of hotcount stand beside them and have none.
"""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import hotcount
import pytest
import redis
from hotcount import Redis

from notebooks import ways
from tests.support.limiters import SAFE
from tests.support.servers import RedisServer

Way = Callable[..., bool]
LONG = 300 * 86400
CALLERS = 13
WAYS: dict[str, Way] = {
    "per_second_key": ways.per_second_key,
    "racy_incr": partial(ways.racy_incr, seconds=LONG),
    "incr_expire": partial(ways.incr_expire, seconds=LONG),
    "racy_list": partial(ways.racy_list, seconds=LONG),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def within_one_second(attempt: Callable[[int], Any]) -> Any:
    """The result of an attempt that no second's end fell into."""
    while True:
        second = int(time.time())
        result = attempt(second)
        if int(time.time()) == second:
            return result


@each_way
def test_a_limit_of_10_admits_11(plain: redis.Redis, way: Way) -> None:
    def count(second: int) -> int:
        return sum(way(plain, f"caller at {second}") for _ in range(20))

    assert within_one_second(count) == 11


def wait_for_blocked(direct: hotcount.Redis) -> None:
    """Until all callers are blocked, some of them in a transaction."""
    while len(re.findall(rb" flags=x?b", direct.execute("CLIENT", "LIST"))) < CALLERS:
        time.sleep(0.005)


def admitted_between_check_and_act(direct: Redis, calls: list[Callable[[], object]]) -> int:
    """Callers of a limit of 1 that all have checked before any of them acts."""
    with ThreadPoolExecutor(CALLERS) as pool:
        # Reads are answered, writes and scripts wait: each caller stops at its first write.
        direct.execute("CLIENT", "PAUSE", 60_000, "WRITE")
        hits = [pool.submit(call) for call in calls]
        wait_for_blocked(direct)
        direct.execute("CLIENT", "UNPAUSE")
        return sum(bool(hit.result()) for hit in hits)


@each_way
def test_all_who_checked_are_admitted(direct: hotcount.Redis, plain: redis.Redis, way: Way) -> None:
    calls: list[Callable[[], object]] = [
        partial(way, plain, "hot", limit=1) for _ in range(CALLERS)
    ]
    assert admitted_between_check_and_act(direct, calls) == CALLERS


def hits_of(
    server: RedisServer, stack: ExitStack, algorithm: Any
) -> Iterator[Callable[[], object]]:
    for i in range(CALLERS):
        # Stores of different options, also than `direct`, have connections of their own.
        store = stack.enter_context(server.redis(timeout=21 + i))
        store.ping()
        limiter = hotcount.Limiter(store, "1/300 days", algorithm=algorithm)
        yield partial(limiter.hit, "hot")


@pytest.mark.parametrize("algorithm", SAFE)
def test_library_limits_are_exact(own_redis: RedisServer, direct: Redis, algorithm: str) -> None:
    with ExitStack() as stack:
        calls = list(hits_of(own_redis, stack, algorithm))
        assert admitted_between_check_and_act(direct, calls) == 1


def test_the_list_in_one_script_admits_the_limit(plain: redis.Redis) -> None:
    assert [ways.list_(plain, "k", limit=10, seconds=LONG) for _ in range(12)] == [
        *[True] * 10,
        *[False] * 2,
    ]
    assert plain.lrange("k", 0, -1) == [b"k"] * 10


def test_racy_incr_leaves_an_immortal_key_when_expire_never_arrives(
    own_redis: RedisServer, direct: hotcount.Redis, plain: redis.Redis
) -> None:
    # A user who may not EXPIRE stands for a caller that dies between the two commands.
    direct.execute("ACL", "SETUSER", "dying", "on", ">pw", "~*", "&*", "+@all", "-expire")
    with (
        redis.Redis(
            unix_socket_path=str(own_redis.socket), username="dying", password="pw"
        ) as dying,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        ways.racy_incr(dying, "k")
    assert plain.pttl("k") == -1
    assert [ways.racy_incr(plain, "k") for _ in range(12)] == [True] * 10 + [False] * 2
    # The second that the rate speaks of has no end: nobody sets an expiry any more.
    assert plain.pttl("k") == -1


def test_incr_expire_never_heals_a_key_without_an_expiry(plain: redis.Redis) -> None:
    ways.incr_expire(plain, "k", seconds=60)
    assert plain.ttl("k") > 0
    plain.persist("k")
    admitted = [ways.incr_expire(plain, "k", seconds=60) for _ in range(12)]
    assert admitted == [True] * 10 + [False] * 2
    assert plain.pttl("k") == -1


def test_per_second_key_counts_by_the_callers_clock(plain: redis.Redis) -> None:
    def names(second: int) -> tuple[list[bytes], bytes]:
        plain.flushall()
        ways.per_second_key(plain, "k")
        return plain.keys("*"), b"k:%d" % second

    # Not the server's second: a caller whose clock is off has a limit of its own.
    keys, expected = within_one_second(names)
    assert keys == [expected]
    assert 0 < plain.ttl(keys[0]) <= 10


def test_racy_list_lets_any_number_pass(direct: hotcount.Redis, plain: redis.Redis) -> None:
    assert ways.racy_list(plain, "k", 1, LONG, who="first")
    with ThreadPoolExecutor(CALLERS) as pool:
        assert plain.pexpire("k", 2000) == 1
        direct.execute("CLIENT", "PAUSE", 60_000, "WRITE")
        hits = [
            pool.submit(ways.racy_list, plain, "k", 1, LONG, who="uncounted")
            for _ in range(CALLERS)
        ]
        # All have asked EXISTS and wait with RPUSHX. A key does not expire during the pause, and is
        # gone at its end.
        wait_for_blocked(direct)
        time.sleep(2.1)
        direct.execute("CLIENT", "UNPAUSE")
        assert all(hit.result() for hit in hits)
    assert plain.exists("k") == 0


def test_racy_list_remembers_callers_and_expires_with_its_first(plain: redis.Redis) -> None:
    def callers(second: int) -> list[bytes]:
        key = f"k:{second}"
        for who in ("a", "b", "c"):
            assert ways.racy_list(plain, key, 2, who=who)
        assert not ways.racy_list(plain, key, 2, who="d")
        return list(plain.lrange(key, 0, -1))

    assert within_one_second(callers) == [b"a", b"b", b"c"]
