"""What users of other limiters suffer from, by the number of the issue; each does not happen here.

Others of that kind: burst and headers (redis_rate#24, flask-limiter#105) in
tests/integration/web/test_limits_adapter.py and tests/cpp/limiter/limiter_test.cpp, refunds in
tests/contract/test_limiter_refund.py, rates that are kept in tests/cpp/limiter/algorithms_test.cpp.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.limiters import SAFE
from tests.support.servers import RedisServer, calls_of

pytestmark = pytest.mark.server


@pytest.mark.parametrize("algorithm", SAFE)
def test_limits_14_pyrate_limiter_74_ratelimit_js_95_every_key_has_an_expiry(
    algorithm: Any, own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    limiter = hotcount.Limiter(own_redis.redis(timeout=20), "2/minute", algorithm=algorithm)
    for _ in range(4):
        limiter.hit("k")
        limiter.hit_many(["a", "b"])
    keys = direct.execute("KEYS", "*")
    assert len(keys) == 3
    assert all(0 < direct.execute("PTTL", key) <= 120_000 for key in keys)


def test_pyrate_limiter_182_fastapi_limiter_19_scripts_that_are_gone_are_sent_again(
    own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    limiter = hotcount.Limiter(own_redis.redis(timeout=20), "9/300 days")
    for used in range(1, 5):
        assert limiter.hit("k").remaining == 9 - used
        direct.execute("SCRIPT", "FLUSH")
    own_redis.stop()
    own_redis.start()
    assert limiter.hit("k").remaining == 8


@pytest.mark.parametrize("policy", ["open", "local"])
def test_django_ratelimit_333_fail_open_admits_and_says_so(
    policy: Any, own_redis: RedisServer
) -> None:
    limiter = hotcount.Limiter(own_redis.redis(timeout=0.2), "2/minute", on_error=policy)
    own_redis.kill()
    decision = limiter.hit("k")
    assert decision.allowed
    assert decision.reason == policy


def test_flask_limiter_319_a_redis_that_is_down_stalls_one_call_and_no_other(
    own_redis: RedisServer,
) -> None:
    limiter = hotcount.Limiter(own_redis.redis(timeout=0.5), "2/minute", on_error="open")
    limiter.hit("k")
    own_redis.send_signal(signal.SIGSTOP)
    assert limiter.hit("k").reason == "open"
    began = time.monotonic()
    assert {limiter.hit("k").reason for _ in range(1000)} == {"open"}
    # Had each waited for its timeout, they would have taken 500 s.
    assert time.monotonic() - began < 5
    own_redis.send_signal(signal.SIGCONT)


def test_slowapi_3_a_hit_does_not_block_the_loop(own_redis: RedisServer) -> None:
    async def program() -> int:
        limiter = aio.Limiter(own_redis.redis(timeout=20), "2/minute")
        own_redis.send_signal(signal.SIGSTOP)
        hit = asyncio.ensure_future(limiter.hit("k"))
        turns = 0
        while turns < 20:
            await asyncio.sleep(0)
            turns += 1
        assert not hit.done()
        own_redis.send_signal(signal.SIGCONT)
        return (await hit).remaining

    assert asyncio.run(program()) == 1


def test_pyrate_limiter_153_each_user_has_a_limit_of_his_own(own_redis: RedisServer) -> None:
    limiter = hotcount.Limiter(own_redis.redis(timeout=20), "1/minute")
    keys: list[Any] = [
        "a:b:c",
        ("a:b", "c"),
        ("a", "b:c"),
        ("a", "b", "c"),
        ("a%3Ab", "c"),
        "a%3Ab:c",
    ]
    for one, other in itertools.pairwise(keys):
        assert one != other
    assert all(limiter.hit(key) for key in keys)
    assert not any(limiter.hit(key) for key in keys)


@pytest.mark.parametrize("algorithm", ["gcra", "token_bucket", "fixed_window", "sliding_window"])
def test_limits_268_memory_does_not_grow_with_the_limit(
    algorithm: Any, own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    limiter = hotcount.Limiter(
        own_redis.redis(timeout=20), "100000/day", algorithm=algorithm, name="n"
    )
    limiter.hit("k")
    (key,) = direct.execute("KEYS", "*")
    limiter.hit_many(["k"] * 2000)
    assert direct.execute("MEMORY", "USAGE", key) < 400


def test_rate_limiter_flexible_286_a_refused_cost_is_not_charged(own_redis: RedisServer) -> None:
    limiter = hotcount.Limiter(own_redis.redis(timeout=20), "5/300 days")
    assert limiter.hit("k", 3)
    for _ in range(10):
        assert not limiter.hit("k", 3)
    assert limiter.hit("k", 2)


def test_ratelimit_js_17_a_look_takes_nothing(
    own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    limiter = hotcount.Limiter(own_redis.redis(timeout=20), "5/minute")
    assert [limiter.peek("k").remaining for _ in range(3)] == [5, 5, 5]
    assert calls_of(direct, "set") == 0
    assert direct.execute("DBSIZE") == 0


def test_redis_rate_24_a_burst_is_told_apart_from_the_rate() -> None:
    decision = hotcount.Limiter("memory://", "5/minute burst 9", name="api").hit("k")
    assert (decision.limit, decision.quota, decision.remaining) == (9, 5, 8)
    assert decision.headers()["RateLimit-Policy"] == '"api";q=5;w=60;burst=9'
    plain = hotcount.Limiter("memory://", "5/minute", name="api").hit("k")
    assert plain.headers()["RateLimit-Policy"] == '"api";q=5;w=60'
