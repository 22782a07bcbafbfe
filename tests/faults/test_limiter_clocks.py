"""A store whose clock is set: nobody waits longer than before, and each step admits one burst more.

Redis' clock is set. To a database the rows are written anew as if it had been.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.fired import fired
from tests.support.limiters import OPTIONS, SAFE, periods
from tests.support.servers import RedisServer
from tests.support.sqlalchemy_side import BothSides, both_sides
from tests.support.wrong_clock import WrongClock

pytestmark = pytest.mark.server

HOUR = 3600
MINUTE = 60
FIVE = "5/minute"


class ClockedRedis:
    def __init__(self, folder: Path) -> None:
        self._clock, self._by = WrongClock(folder), 0
        self.server = RedisServer(folder, environment=self._clock.environment(0, "redis")).start()
        self.store = self.server.redis(timeout=20)

    def step(self, seconds: int) -> None:
        self._by += seconds
        self._clock.step("redis", self._by)


class ClockedRows:
    """A step back makes all times later."""

    def __init__(self, sides: BothSides) -> None:
        self._engine = sides.engine
        self.store = sides.database
        hotcount.Limiter(self.store, FIVE).create_table()

    def step(self, seconds: int) -> None:
        fired("clock")

        def later(time: re.Match[str]) -> str:
            return str(int(time[0]) - seconds * 10**6)

        with self._engine.begin() as connection:
            rows = connection.execute(sa.text("SELECT state FROM hotcount_limit")).all()
            for (state,) in rows:
                text = state.decode() if isinstance(state, bytes) else state
                connection.execute(
                    sa.text("UPDATE hotcount_limit SET state = :now WHERE state = :then"),
                    {"now": re.sub(r"\b\d{16}\b", later, text), "then": text},
                )


@pytest.fixture(scope="module")
def redis_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockedRedis]:
    redis = ClockedRedis(tmp_path_factory.mktemp("redis"))
    yield redis
    redis.server.stop()


@pytest.fixture
def redis(redis_of_module: ClockedRedis) -> ClockedRedis:
    redis_of_module.store.execute("FLUSHALL")
    return redis_of_module


@pytest.fixture(params=["redis", "sqlite", "postgresql", "mariadb"])
def clocked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "redis":
        yield request.getfixturevalue("redis")
        return
    sides = both_sides(request, request.param, tmp_path / "limits.db")
    yield ClockedRows(sides)
    sides.close()


def admitted(limiter: hotcount.Limiter, hits: int = 10) -> int:
    return sum(bool(limiter.hit("k")) for _ in range(hits))


def wait_of(refusal: Any) -> float:
    assert not refusal
    assert refusal.retry_after is not None
    return float(refusal.retry_after)


TWO = "5/minute; 5/2 minutes"
# What every store has.
TABLE = [(FIVE, options) for options in OPTIONS]
TABLE += [(TWO, {"algorithm": name}) for name in SAFE]


@pytest.mark.parametrize(
    ("rates", "options"), TABLE, ids=[f"{rates} {[*o.values()]}" for rates, o in TABLE]
)
def test_nobody_waits_longer_than_before_and_each_step_admits_one_burst_more(
    clocked: Any, rates: str, options: dict[str, Any]
) -> None:
    longest = periods(options["algorithm"]) * (2 if rates == TWO else 1) * MINUTE
    limiter = hotcount.Limiter(clocked.store, rates, name=uuid.uuid4().hex, **options)
    goes_on_after_steps(clocked, limiter, longest)


def goes_on_after_steps(clocked: Any, limiter: hotcount.Limiter, longest: int) -> None:
    assert admitted(limiter) == 5
    clocked.step(-HOUR)
    assert wait_of(limiter.test("k")) <= longest
    assert wait_of(limiter.hit("k")) <= longest
    # What was written then goes on from there.
    clocked.step(longest + 1)
    assert 1 <= admitted(limiter) <= 5
    clocked.step(-HOUR)
    assert admitted(limiter) == 0
    clocked.step(2 * HOUR)
    assert admitted(limiter) == 5
    clocked.step(-2 * HOUR)
    assert wait_of(limiter.hit("k")) <= longest


Ask = Callable[[hotcount.Limiter], Any]
ASKS: dict[str, Ask] = {
    "hit": lambda limiter: limiter.hit("k"),
    "hit_many": lambda limiter: limiter.hit_many(["j", "k"]).allowed[1],
    "test": lambda limiter: limiter.test("k"),
    "at_most": lambda limiter: limiter.at_most("k", 3),
    "hit_all": lambda limiter: hotcount.hit_all([(limiter, "j"), (limiter, "k")]),
}


@pytest.mark.parametrize("algorithm", ["gcra", "sliding_log"])
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_whoever_asks_first_sees_to_it(clocked: Any, algorithm: Any, ask: Ask) -> None:
    limiter = hotcount.Limiter(clocked.store, FIVE, name=uuid.uuid4().hex, algorithm=algorithm)
    assert admitted(limiter) == 5
    clocked.step(-HOUR)
    assert not ask(limiter)
    clocked.step(MINUTE + 1)
    assert ask(limiter)


def test_a_block_lasts_no_longer_than_it_was_to(clocked: Any) -> None:
    for algorithm in ("gcra", "sliding_log"):
        limiter = hotcount.Limiter(clocked.store, FIVE, name=uuid.uuid4().hex, algorithm=algorithm)
        limiter.hit("k")
        limiter.block("k", 30)
        clocked.step(-HOUR)
        refusal = limiter.hit("k")
        assert refusal.reason == "blocked"
        assert wait_of(refusal) <= 30
        clocked.step(31)
        assert limiter.hit("k")


# -- what only Redis has --------------------------------------------------------


@pytest.mark.parametrize("joint", [False, True])
def test_a_reservation_is_held_no_longer_than_its_lease(redis: ClockedRedis, joint: bool) -> None:
    limiter = hotcount.Limiter(redis.store, FIVE, name=uuid.uuid4().hex)

    def hit() -> Any:
        return hotcount.hit_all([(limiter, "k", 1)] * 2) if joint else limiter.hit("k", 2)

    limiter.reserve("k", 4, lease=30)
    redis.step(-HOUR)
    assert wait_of(hit()) <= 30
    redis.step(31)
    assert hit()


def test_a_place_is_held_no_longer_than_its_own_lease(redis: ClockedRedis) -> None:
    short, long = (hotcount.ConcurrencyLimit(redis.store, 2, lease=n) for n in (30, 2 * HOUR))
    renewed, kept = short.acquire("k"), long.acquire("k")
    renewed.renew()
    redis.step(-HOUR)
    for limit in (short, long):
        assert wait_of(limit.acquire("k", timeout=0).decision) <= 30
    redis.step(31)
    assert short.acquire("k", timeout=0)
    assert wait_of(short.acquire("k", timeout=0).decision) <= 30
    kept.renew()
