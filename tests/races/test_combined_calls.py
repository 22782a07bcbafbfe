"""Calls of a script that travel together: each gets its own answer, and fails alone."""

from collections import Counter as Tally
from collections.abc import Callable
from typing import Any

import hotcount
import pytest
from hotcount import Redis

from tests.support.servers import RedisServer, calls_of
from tests.support.together import flushing_scripts, together

THREADS = 64
ROUNDS = 40


def add(store: hotcount.Redis) -> Callable[[str], object]:
    counter = hotcount.Counter(store, ttl=600)
    return lambda key: counter.add(key)


def add_once(store: hotcount.Redis) -> Callable[[str], object]:
    counter = hotcount.Counter(store)
    return lambda key: counter.add(key, op_id=hotcount.new_op_id())


def try_add(store: hotcount.Redis) -> Callable[[str], object]:
    counter = hotcount.Counter(store, ttl=600)
    return lambda key: counter.try_add(key, max=10**9).value


def gcra(store: hotcount.Redis) -> Callable[[str], object]:
    limiter = hotcount.Limiter(store, "1000000/day")
    return lambda key: limiter.hit(key).allowed


def fixed_window(store: hotcount.Redis) -> Callable[[str], object]:
    limiter = hotcount.Limiter(store, "1000000/day", algorithm="fixed_window")
    return lambda key: limiter.hit(key).allowed


def sliding_window(store: hotcount.Redis) -> Callable[[str], object]:
    limiter = hotcount.Limiter(store, "1000000/day", algorithm="sliding_window")
    return lambda key: limiter.hit(key).allowed


CALLS = {
    "add": add,
    "add_once": add_once,
    "try_add": try_add,
    "gcra": gcra,
    "fixed_window": fixed_window,
    "sliding_window": sliding_window,
}
ALL = pytest.mark.parametrize("kind", CALLS)
LIMITERS: tuple[Any, ...] = ("gcra", "fixed_window", "sliding_window")


def full_name(kind: str, key: str) -> str:
    return f"limit:default:{kind}:1000000/day:{key}" if kind in LIMITERS else f"count:{key}"


def test_concurrent_calls_of_one_counter_share_sends(own_redis: RedisServer, direct: Redis) -> None:
    with own_redis.redis(timeout=20) as redis:
        counter = hotcount.Counter(redis, ttl=600)
        before = calls_of(direct, "evalsha")
        values = together(lambda _: [counter.add("hot") for _ in range(ROUNDS)], THREADS)
        total = THREADS * ROUNDS
        assert sorted(value for mine in values for value in mine) == list(range(1, total + 1))
        assert all(mine == sorted(mine) for mine in values)
        assert redis.stats()["combined"] > 0
        assert calls_of(direct, "evalsha") - before < total


@pytest.mark.parametrize("kind", [*LIMITERS, "sliding_log"])
def test_hits_of_one_send_are_in_order(own_redis: RedisServer, direct: Redis, kind: Any) -> None:
    with own_redis.redis(timeout=20) as redis:
        # A day, so that nothing is refilled meanwhile.
        limiter = hotcount.Limiter(redis, "500/day", algorithm=kind)
        before = calls_of(direct, "evalsha")
        decisions = together(lambda _: [limiter.hit("hot") for _ in range(ROUNDS)], THREADS)
        allowed = [each.remaining for mine in decisions for each in mine if each.allowed]
        assert sorted(allowed) == list(range(500)), "exactly the limit, each its own place"
        assert redis.stats()["combined"] > 0
        assert calls_of(direct, "evalsha") - before < THREADS * ROUNDS


@ALL
def test_a_key_of_another_type_fails_own(own_redis: RedisServer, direct: Redis, kind: Any) -> None:
    direct.execute("RPUSH", full_name(kind, "bad"), "x")
    with own_redis.redis(timeout=20) as redis:
        call = CALLS[kind](redis)

        def work(index: int) -> Tally[str]:
            ends: Tally[str] = Tally()
            for number in range(ROUNDS):
                key = "bad" if (index + number) % 8 == 0 else f"k{(index + number) % 8}"
                try:
                    call(key)
                    ends[f"{key} ok"] += 1
                except hotcount.WrongTypeError:
                    ends[f"{key} wrong"] += 1
            return ends

        ends = sum(together(work, THREADS), Tally())
        assert ends["bad wrong"] == THREADS * ROUNDS // 8
        assert ends["bad ok"] == 0
        assert all(
            ends[f"k{n} wrong"] == 0 and ends[f"k{n} ok"] == THREADS * ROUNDS // 8
            for n in range(1, 8)
        )
        assert redis.stats()["combined"] > 0
    if kind not in LIMITERS:
        values = [direct.execute("GET", f"count:k{n}") for n in range(1, 8)]
        assert values == [b"%d" % (THREADS * ROUNDS // 8)] * 7
    assert direct.execute("LRANGE", full_name(kind, "bad"), 0, -1) == [b"x"]


@ALL
def test_a_key_that_an_acl_denies_fails(own_redis: RedisServer, direct: Redis, kind: Any) -> None:
    direct.execute("ACL", "SETUSER", "u", "on", ">p", "+@all", "~*k*", "resetchannels")
    with hotcount.Redis(own_redis.login("u", "p"), timeout=20) as redis:
        call = CALLS[kind](redis)

        def work(index: int) -> Tally[str]:
            ends: Tally[str] = Tally()
            for number in range(ROUNDS):
                key = "no" if (index + number) % 16 == 0 else f"k{(index + number) % 4}"
                try:
                    call(key)
                    ends[f"{key} ok"] += 1
                except hotcount.PermissionDeniedError:
                    ends[f"{key} denied"] += 1
            return ends

        ends = sum(together(work, THREADS), Tally())
        assert redis.stats()["combined"] > 0
    assert ends["no denied"] == THREADS * ROUNDS // 16
    assert sum(ends.values()) == THREADS * ROUNDS
    assert not [name for name in ends if name in ("no ok", *(f"k{n} denied" for n in range(4)))]
    if kind not in LIMITERS:
        values = [int(direct.execute("GET", f"count:k{n}")) for n in range(4)]
        assert values == [ends[f"k{n} ok"] for n in range(4)]
    assert direct.execute("EXISTS", full_name(kind, "no")) == 0


@ALL
def test_scripts_that_are_flushed(own_redis: RedisServer, direct: Redis, kind: Any) -> None:
    with own_redis.redis(timeout=20) as redis, flushing_scripts(direct) as flushes:
        call = CALLS[kind](redis)

        def work(_: int) -> int:
            done = 0
            while flushes() < 5:
                call("hot")
                done += 1
            return done

        done = sum(together(work, THREADS))
        assert redis.stats()["combined"] > 0
    if kind not in LIMITERS:
        assert int(direct.execute("GET", "count:hot")) == done
    else:
        left = hotcount.Limiter(direct, "1000000/day", algorithm=kind).hit("hot").remaining
        # gcra gives back 11.6 a second.
        assert 0 <= left - (1_000_000 - done - 1) <= (30 if kind == "gcra" else 0)


def test_a_large_batch_is_a_few_round_trips(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    keys = [f"k{number}" for number in range(1000)]
    with own_redis.redis(timeout=20) as redis:
        counter = hotcount.Counter(redis, ttl=600)
        limiter = hotcount.Limiter(redis, "5/minute")
        counter.add_many(keys[:1])
        limiter.hit_many(keys[:1])
        before, sends = calls_of(direct, "evalsha"), redis.stats()["sends"]
        assert counter.add_many(keys) == [2] + [1] * 999
        assert all(limiter.hit_many(keys).allowed)
        assert calls_of(direct, "evalsha") - before <= 8
        assert redis.stats()["sends"] - sends <= 16
        assert counter.add_many(["same"] * 600) == list(range(1, 601))
        assert list(limiter.hit_many(["same"] * 600).allowed).count(True) == 5


def test_denied_keys_of_a_batch_fail_alone(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    direct.execute("ACL", "SETUSER", "u", "on", ">p", "+@all", "~*k*", "resetchannels")
    keys = [f"no{number}" if number in (0, 17, 299) else f"k{number}" for number in range(300)]
    direct.execute("RPUSH", "count:k5", "x")
    with hotcount.Redis(own_redis.login("u", "p"), timeout=20) as redis:
        batch = hotcount.Counter(redis, ttl=600).add_many(keys, errors="return")
        decisions = hotcount.Limiter(redis, "5/minute").hit_many(keys, errors="return")
    assert sorted(batch.errors) == [0, 5, 17, 299]
    assert isinstance(batch.errors[5], hotcount.WrongTypeError)
    assert isinstance(batch.errors[17], hotcount.PermissionDeniedError)
    assert [value for index, value in enumerate(batch) if index not in batch.errors] == [1] * 296
    assert sorted(decisions.errors) == [0, 17, 299]
