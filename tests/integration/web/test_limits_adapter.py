"""hotcount as a storage of `limits`: alone, under Flask-Limiter and under slowapi."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import suppress
from typing import Any

import flask
import flask_limiter
import hotcount.integrations.limits
import pytest
import slowapi
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from flask_limiter.util import get_remote_address
from limits import RateLimitItemPerDay, RateLimitItemPerSecond, parse
from limits.aio import strategies as aio_strategies
from limits.errors import StorageError
from limits.storage import storage_from_string
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address as slow_address

from tests.support.eventually import eventually
from tests.support.servers import RedisServer
from tests.support.together import in_child, together

pytestmark = pytest.mark.server
# slowapi asks asyncio what inspect answers: https://github.com/laurentS/slowapi has it open.
slow_api_asks_asyncio = pytest.mark.filterwarnings(
    "ignore:.*iscoroutinefunction:DeprecationWarning"
)
STRATEGIES: list[Any] = [
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
]
NAMES = ["fixed-window", "moving-window", "sliding-window-counter"]
TWO_A_DAY = RateLimitItemPerDay(2)
_numbers = itertools.count()


@pytest.fixture(params=["memory", "redis"])
def uri(request: pytest.FixtureRequest) -> str:
    """A storage that no other test uses."""
    if request.param == "memory":
        return f"hotcount+memory://adapter{next(_numbers)}"
    server: RedisServer = request.getfixturevalue("own_redis")
    return f"hotcount+{server.url}"


def made(uri: str, **options: Any) -> Any:
    return storage_from_string(uri, **options)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_limits(uri: str, strategy: Any) -> None:
    limiter = strategy(made(uri))
    assert limiter.get_window_stats(TWO_A_DAY, "anna").remaining == 2
    assert [limiter.hit(TWO_A_DAY, "anna") for _ in range(3)] == [True, True, False]
    assert not limiter.test(TWO_A_DAY, "anna")
    assert limiter.test(TWO_A_DAY, "ben")
    reset, remaining = limiter.get_window_stats(TWO_A_DAY, "anna")
    assert remaining == 0
    # A sliding window ends with the day.
    least = 0 if strategy is SlidingWindowCounterRateLimiter else 86_000
    assert least < reset - time.time() <= 86_400
    # A fixed window has counted what it refused.
    assert limiter.hit(TWO_A_DAY, "anna", cost=0) == (strategy is not FixedWindowRateLimiter)
    limiter.clear(TWO_A_DAY, "anna")
    assert not limiter.hit(TWO_A_DAY, "carl", cost=3)
    assert limiter.hit(TWO_A_DAY, "anna", cost=2)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_each_strategy_limits_in_a_loop(uri: str, strategy: Any) -> None:
    limiter = getattr(aio_strategies, strategy.__name__)(made(f"async+{uri}"))
    hits = await asyncio.gather(*(limiter.hit(TWO_A_DAY, "anna") for _ in range(9)))
    assert sum(hits) == 2
    assert not await limiter.test(TWO_A_DAY, "anna")
    assert (await limiter.get_window_stats(TWO_A_DAY, "anna")).remaining == 0
    nothing = await limiter.hit(TWO_A_DAY, "anna", cost=0)
    assert nothing == (strategy is not FixedWindowRateLimiter)
    await limiter.clear(TWO_A_DAY, "anna")
    assert await limiter.hit(TWO_A_DAY, "anna", cost=2)
    assert await limiter.storage.check()


def test_a_moving_window_begins_with_its_oldest_hit(uri: str) -> None:
    storage = made(uri)
    storage.acquire_entry("k", 5, 1000)
    first, _ = storage.get_moving_window("k", 5, 1000)
    for held in (2, 3, 4, 5):
        assert storage.acquire_entry("k", 5, 1000)
        start, count = storage.get_moving_window("k", 5, 1000)
        assert count == held
        assert start == pytest.approx(first, abs=0.5)
    assert not storage.acquire_entry("k", 5, 1000)
    assert not storage.acquire_entry("other", 5, 1000, amount=6)


def test_a_part_of_a_hit_in_the_window_before_refuses_nothing(
    own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    now = int(time.time())
    # A window that is half over.
    period = min(range(10_000, 20_000), key=lambda seconds: abs(now % seconds / seconds - 0.5))
    limiter = SlidingWindowCounterRateLimiter(made(f"hotcount+{own_redis.url}"))
    limit = RateLimitItemPerSecond(5, period)
    assert limiter.hit(limit, "anna")
    (key,) = direct.execute("KEYS", "*")
    direct.execute("SET", key, f"{now - now % period}000000 0 3000000", "KEEPTTL")
    # Of three hits, one and a half count: as one.
    reset, remaining = limiter.get_window_stats(limit, "anna")
    assert remaining == 4
    assert reset - now == pytest.approx(period / 6, rel=0.01)
    assert limiter.test(limit, "anna", cost=4)
    assert not limiter.test(limit, "anna", cost=5)
    assert [limiter.hit(limit, "anna") for _ in range(5)] == [True] * 4 + [False]
    assert not limiter.test(limit, "anna")


def test_a_sliding_window_whose_key_names_no_rate_is_found(uri: str) -> None:
    storage = made(uri)
    assert storage.get_sliding_window("k", 1000) == (0, 0.0, 0, 0.0)
    for limit, amount in ((10**12, 7), (9, 5)):
        assert storage.acquire_sliding_window_entry("k", limit, 1000, amount)
    assert storage.get_sliding_window("k", 1000)[:3] == (0, 0.0, 7)
    assert storage.get_sliding_window("k", 999)[2] == 0
    storage.clear_sliding_window("k", 1000)
    assert storage.get_sliding_window("k", 1000)[2] == 0


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_another_process_clears_what_this_one_hit(own_redis: RedisServer, strategy: Any) -> None:
    uri = f"hotcount+{own_redis.url}"
    limiter = strategy(made(uri))
    assert limiter.hit(TWO_A_DAY, "anna", cost=2)

    def child() -> bool:
        strategy(made(uri)).clear(TWO_A_DAY, "anna")
        return True

    assert in_child(child)
    assert limiter.hit(TWO_A_DAY, "anna", cost=2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_threads_never_pass_the_limit(uri: str, strategy: Any) -> None:
    limiter = strategy(made(uri))
    hits = together(lambda _: sum(limiter.hit(TWO_A_DAY, "hot") for _ in range(5)))
    assert sum(hits) == 2


def test_every_key_expires(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    storage = made(f"hotcount+{own_redis.url}")
    storage.incr("a", 60)
    storage.incr("a", 60, 5)
    assert storage.acquire_entry("b", 2, 60)
    assert storage.acquire_entry("x" * 5000, 2, 60)
    assert storage.acquire_sliding_window_entry("x" * 5000, 2, 30)
    keys = direct.execute("KEYS", "*")
    assert len(keys) == 4
    assert all(0 < direct.execute("TTL", key) <= 60 for key in keys)
    assert storage.get("a") == 6
    assert storage.reset() == 4
    assert direct.execute("DBSIZE") == 0


def test_reset_leaves_the_keys_of_others(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    mine = made(f"hotcount+{own_redis.url}", key_prefix="mine")
    other = made(f"async+hotcount+{own_redis.url}", key_prefix="other")
    mine.incr("a", 60)
    asyncio.run(other.incr("a", 60))
    direct.execute("SET", "mine", "no key of ours")
    assert asyncio.run(other.reset()) == 1
    assert direct.execute("DBSIZE") == 2
    assert mine.reset() == 1


def test_a_store_in_memory_is_emptied_if_it_has_no_name() -> None:
    storage = made("hotcount+memory://")
    storage.incr("a", 60)
    assert storage.reset() == 1
    assert storage.get("a") == 0
    with pytest.raises(NotImplementedError):
        made("hotcount+memory://shared").reset()


def test_a_server_that_is_away_is_told_as_asked(own_redis: RedisServer) -> None:
    plain = made(f"hotcount+{own_redis.url}", timeout=0.2)
    wrapping = made(f"hotcount+{own_redis.url}", timeout=0.2, wrap_exceptions=True)
    own_redis.kill()
    assert not plain.check()
    with pytest.raises(hotcount.UnavailableError):
        plain.incr("a", 60)
    with pytest.raises(StorageError):
        wrapping.acquire_entry("a", 2, 60)


def test_what_it_does_not_do_is_said() -> None:
    with pytest.raises(hotcount.ConfigError, match="key_prefix is 'a:b'"):
        made("hotcount+memory://", key_prefix="a:b")
    with pytest.raises(hotcount.ConfigError, match="URI 'redis' is not hotcount's"):
        hotcount.integrations.limits.HotcountStorage("redis://user:secret@localhost")


@pytest.mark.parametrize("strategy", NAMES)
def test_flask_limiter_switches_by_a_uri(uri: str, strategy: str) -> None:
    app = flask.Flask(__name__)
    limiter = flask_limiter.Limiter(
        get_remote_address, app=app, storage_uri=uri, strategy=strategy, headers_enabled=True
    )

    @app.get("/")
    @limiter.limit("2/day")
    def index() -> str:
        return "here"

    client = app.test_client()
    answers = [client.get("/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    # flask-limiter#105: each header once, and what remains counts down.
    for answer, remaining in zip(answers, ("1", "0", "0")):
        assert answer.headers.getlist("X-RateLimit-Remaining") == [remaining]
        assert answer.headers.getlist("X-RateLimit-Limit") == ["2"]
    least = 0 if strategy == "sliding-window-counter" else 86_000
    assert least < int(answers[2].headers["Retry-After"]) <= 86_401
    limiter.storage.clear(parse("2/day").key_for("127.0.0.1", "index"))


@slow_api_asks_asyncio
@pytest.mark.parametrize("strategy", NAMES)
def test_slowapi_switches_by_a_uri(uri: str, strategy: str) -> None:
    limiter = slowapi.Limiter(key_func=slow_address, storage_uri=uri, strategy=strategy)
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, slowapi._rate_limit_exceeded_handler)  # type: ignore[arg-type]

    @app.get("/")
    @limiter.limit("2/day")
    async def index(request: Request) -> str:
        return "here"

    with TestClient(app) as client:
        assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]


def test_a_flask_app_falls_back_while_redis_is_paused(own_redis: RedisServer) -> None:
    app = flask.Flask(__name__)
    limiter = flask_limiter.Limiter(
        get_remote_address,
        app=app,
        storage_uri=f"hotcount+{own_redis.url}",
        storage_options={"timeout": 0.2},  # type: ignore[dict-item]
        in_memory_fallback=["1/day"],
        in_memory_fallback_enabled=True,
    )

    @app.get("/")
    @limiter.limit("9/day")
    def index() -> str:
        return "here"

    client = app.test_client()
    assert client.get("/").status_code == 200
    with own_redis.stopped():
        assert [client.get("/").status_code for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("kind", ["", "async+"])
def test_a_store_that_is_away_stalls_one_call_a_second(kind: str, own_redis: RedisServer) -> None:
    storage = made(f"{kind}hotcount+{own_redis.url}", timeout=0.3)

    loop = asyncio.new_event_loop()

    async def awaited(key: str) -> Any:
        return await storage.incr(key, 1000)

    def incr(key: str) -> int:
        return int(loop.run_until_complete(awaited(key)) if kind else storage.incr(key, 1000))

    assert incr("k") == 1
    with own_redis.stopped():
        with pytest.raises((hotcount.DeadlineError, hotcount.OutcomeUnknownError)):
            incr("k")
        for _ in range(5):
            with pytest.raises(hotcount.UnavailableError, match="less than a second ago"):
                incr("other")

    def answers() -> bool:
        with suppress(hotcount.UnavailableError):
            return incr("other") == 1
        return False

    eventually(answers)
    assert incr("other") == 2
    loop.close()


def test_an_outage_that_ends_during_a_look_at_it_is_the_outage_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = made("hotcount+redis://127.0.0.1:1", wrap_exceptions=True)
    with pytest.raises(StorageError):
        storage.incr("k", 60)
    clock = time.monotonic

    def answered() -> float:
        storage._outage.__exit__(None, None, None)  # The thread that asks, while this one looks.
        return clock()

    monkeypatch.setattr(time, "monotonic", answered)
    with pytest.raises(StorageError) as failed:
        storage.incr("k", 60)
    assert isinstance(failed.value.storage_error, hotcount.UnavailableError)


def test_threads_that_use_many_rates_and_clear_keys_do_not_meet() -> None:
    storage = made("hotcount+memory://")

    def work(index: int) -> None:
        for i in range(400):
            storage.acquire_entry("k", 1 + i, 60 + index)
            storage.incr("k", 1 + (7 * i + index) % 2000)
            if i % 20 == 0:
                storage.clear("k")

    together(work, 8)
