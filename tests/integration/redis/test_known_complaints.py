"""What users of other limiters suffer from, by the number of the issue; each does not happen here.

docs/explanation/complaints.md has a table of them all, with those that are tested in other files.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import hotcount
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hotcount import aio, hit_all

from tests.support.commands import output_of
from tests.support.limiters import SAFE
from tests.support.servers import RedisServer, cluster_node
from tests.support.together import together
from tests.support.wrong_clock import WrongClock

pytestmark = pytest.mark.server


def test_slowapi_with_redis_down_a_route_answers_and_not_with_500(own_redis: RedisServer) -> None:
    limiter = aio.Limiter(own_redis.redis(timeout=0.2), "2/300 days", on_error="local")
    app = FastAPI()

    @app.get("/")
    async def index() -> dict[str, Any]:
        decision = await limiter.hit("k")
        return {"allowed": decision.allowed, "reason": decision.reason}

    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get("/").json() == {"allowed": True, "reason": "allowed"}
        own_redis.kill()
        answers = [client.get("/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert [answer.json()["allowed"] for answer in answers] == [True, True, False]
    assert {answer.json()["reason"] for answer in answers} == {"local"}


def test_flask_limiter_319_a_redis_that_is_down_stalls_one_call_and_no_other(
    own_redis: RedisServer,
) -> None:
    limiter = hotcount.Limiter(own_redis.redis(timeout=0.5), "2/minute", on_error="open")
    limiter.hit("k")
    with own_redis.stopped():
        assert limiter.hit("k").reason == "open"
        began = time.monotonic()
        assert {limiter.hit("k").reason for _ in range(1000)} == {"open"}
        # Had each waited for its timeout, they would have taken 500 s.
        assert time.monotonic() - began < 5


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


HITS = """
import sys, time, hotcount
print(int(time.time()))
with hotcount.Redis(sys.argv[1], timeout=20) as redis:
    for name in sys.argv[2:]:
        limiter = hotcount.Limiter(redis, "3/300 days", algorithm=name)
        print(name, sum(limiter.hit("k").allowed for _ in range(2)))
"""


def test_clock_skew_reopens_no_window(own_redis: RedisServer, tmp_path: Path) -> None:
    clock = WrongClock(tmp_path)

    def admitted(seconds: int) -> list[str]:
        environment = clock.environment(seconds)
        said = output_of(HITS, own_redis.url, *SAFE, env=environment).splitlines()
        assert abs(int(said[0]) - time.time() - seconds) < 600
        return said[1:]

    # A window and more, so that any use of these clocks begins another one.
    year = 366 * 86400
    assert admitted(year) == [f"{name} 2" for name in SAFE]
    assert admitted(-year) == [f"{name} 1" for name in SAFE]


def test_pyrate_limiter_126_no_crossslot_where_keys_stand_in_many_slots(tmp_path: Path) -> None:
    with cluster_node(tmp_path) as server, server.redis(timeout=20) as store:
        keys = [f"k{number}" for number in range(40)]

        def admitted(name: Any) -> int:
            limiter = hotcount.Limiter(store, "3/300 days", algorithm=name)
            batch = sum(limiter.hit_many(keys).allowed)
            return batch + sum(
                together(lambda _: sum(limiter.hit(key).allowed for key in keys), threads=4)
            )

        assert {name: admitted(name) for name in SAFE} == dict.fromkeys(SAFE, 120)
        several = hotcount.Limiter(store, "3/300 days; 4/360 days")
        assert sum(several.hit("k").allowed for _ in range(5)) == 3
        # All or none, in one slot, which a hash tag makes, and in two.
        other = hotcount.Limiter(store, "3/300 days", name="other")
        assert hit_all([(several, "{anna}:read"), (other, "{anna}:write")])
        assert hit_all([(several, "ben"), (other, "anna")])
        assert other.hit("anna", 2)
        assert hit_all([(several, "ben"), (other, "anna")]).violated == ("other",)
        assert several.peek("ben").remaining == 2
