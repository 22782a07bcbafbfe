"""A retry queue beside clocks that differ: an add that may have been counted is not counted again.

An answer that is lost is a journal that does not know it: its bytes are put back as they were.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Queued, RetryQueue

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.servers import RedisServer
from tests.support.wrong_clock import WrongClock

pytestmark = pytest.mark.server

MINUTE = 60
HOUR = 60 * MINUTE


@dataclass
class Clocked:
    """A Redis whose clock the test sets."""

    server: RedisServer
    clock: WrongClock

    def step_to(self, seconds: int) -> None:
        self.clock.step("redis", seconds)

    def memory(self) -> float:
        """Seconds for which the one writer of the key is remembered."""
        redis = self.server.redis()
        (name,) = redis.execute("KEYS", "{count:k}:retry.*")
        return float(redis.execute("PTTL", name)) / 1000


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[Clocked]:
    clock = WrongClock(tmp_path)
    config = ("--appendonly", "yes")
    server = RedisServer(tmp_path, config=config, environment=clock.environment(0, "redis"))
    try:
        yield Clocked(server.start(), clock)
    finally:
        server.stop()


def drained(counter: Any) -> hotcount.RetryStats:
    eventually(lambda: counter.retry_stats().waiting == 0, 30)
    stats: hotcount.RetryStats = counter.retry_stats()
    return stats


def leave(counter: Any, waiting: int) -> None:
    with pytest.warns(RuntimeWarning, match=f"{waiting} adds still wait"):
        counter.close()


def leave_unsent(clocked: Clocked, path: Path, **options: Any) -> None:
    """A journal with an add of a max_age of an hour that no server has seen."""
    clocked.server.kill()
    retry = RetryQueue(path=path, max_age=HOUR)
    counter: Any = hotcount.Counter(clocked.server.redis(timeout=0.3), retry=retry, **options)
    assert isinstance(counter.add("k"), Queued)
    leave(counter, 1)
    clocked.server.start()


def replay(clocked: Clocked, path: Path, max_age: float, **options: Any) -> hotcount.RetryStats:
    """What becomes of the journal's adds in the next process."""
    retry = RetryQueue(path=path, max_age=max_age)
    with hotcount.Counter(clocked.server.redis(), retry=retry, **options) as counter:
        return drained(counter)


OPTIONS = pytest.mark.parametrize(
    "options", [{}, {"ttl": 10 * HOUR}], ids=["immortal", "with a ttl"]
)


@OPTIONS
def test_a_number_is_known(clocked: Clocked, tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "adds"
    leave_unsent(clocked, path, **options)
    waits = path.read_bytes()
    assert replay(clocked, path, 5, **options).replayed == 1
    assert HOUR < clocked.memory() <= HOUR + 10 * MINUTE
    path.write_bytes(waits)
    clocked.step_to(11 * MINUTE)
    assert replay(clocked, path, HOUR, **options).replayed == 1
    assert hotcount.Counter(clocked.server.redis(), **options).get("k") == 1


def test_a_shorter_max_age_lets_no_add_expire(clocked: Clocked, tmp_path: Path) -> None:
    path = tmp_path / "adds"
    leave_unsent(clocked, path)
    assert replay(clocked, path, 0.001).expired == 0
    assert hotcount.Counter(clocked.server.redis()).get("k") == 1


@OPTIONS
@pytest.mark.parametrize("next_process", [False, True], ids=["the same", "the next"])
@pytest.mark.parametrize("passed", [59 * MINUTE, 75 * MINUTE], ids=["known", "forgotten"])
def test_an_add_that_redis_may_have_forgotten_is_not_counted_again(
    clocked: Clocked, tmp_path: Path, options: dict[str, Any], next_process: bool, passed: int
) -> None:
    path = tmp_path / "adds"
    with FaultProxy(clocked.server.socket) as proxy:
        store = hotcount.Redis(proxy.url, timeout=0.5)
        retry = RetryQueue(path=path, max_age=HOUR)
        counter: Any = hotcount.Counter(store, retry=retry, **options)
        assert counter.add("k") == 1
        proxy.hold(SERVER_TO_CLIENT)
        assert isinstance(counter.add("k"), Queued)
        eventually(lambda: hotcount.Counter(clocked.server.redis()).get("k") == 2)
        clocked.step_to(passed)
        if next_process:
            leave(counter, 1)
            stats = replay(clocked, path, HOUR, **options)
        else:
            proxy.heal()
            stats = drained(counter)
    # Nobody knows whether it was counted: it is in neither number twice.
    assert (stats.replayed, stats.expired) == ((1, 0) if passed < HOUR else (0, 1))
    assert hotcount.Counter(clocked.server.redis(), **options).get("k") == 2


@pytest.mark.parametrize("step", [2 * HOUR, -2 * HOUR], ids=["ahead", "back"])
def test_adds_that_were_never_sent_count(clocked: Clocked, step: int) -> None:
    counter: Any = hotcount.Counter(clocked.server.redis(timeout=2), retry=RetryQueue())
    assert counter.add("k") == 1
    clocked.server.kill()
    for _ in range(5):
        assert isinstance(counter.add("k"), Queued)
    clocked.step_to(step)
    clocked.server.start()
    stats = drained(counter)
    assert (stats.replayed, stats.expired) == (5, 0)
    assert counter.get("k") == 6


@pytest.mark.parametrize("step", [2 * HOUR, -2 * HOUR], ids=["ahead", "back"])
def test_adds_go_on_when_the_clock_of_redis_steps(clocked: Clocked, step: int) -> None:
    counter: Any = hotcount.Counter(clocked.server.redis(), retry=RetryQueue(max_age=MINUTE))
    assert counter.add("k") == 1
    clocked.step_to(step)
    assert [counter.add("k") for _ in range(3)] == [2, 3, 4]
    assert counter.add_many(["k", "k"]) == [5, 6]
    clocked.step_to(0)
    assert counter.add("k") == 7
    assert counter.retry_stats().queued == 0


def test_a_memory_is_never_shortened_by_a_clock(clocked: Clocked, tmp_path: Path) -> None:
    path = tmp_path / "adds"
    with FaultProxy(clocked.server.socket) as proxy:
        retry = RetryQueue(path=path, max_age=HOUR)
        counter: Any = hotcount.Counter(hotcount.Redis(proxy.url, timeout=0.5), retry=retry)
        assert counter.add("k") == 1
        proxy.hold(SERVER_TO_CLIENT)
        assert isinstance(counter.add("k"), Queued)
        assert isinstance(counter.add("k"), Queued)
        leave(counter, 2)
    waits = path.read_bytes()
    clocked.step_to(-2 * HOUR)
    assert replay(clocked, path, HOUR).replayed == 2
    clocked.step_to(50 * MINUTE)
    path.write_bytes(waits)
    assert replay(clocked, path, HOUR).replayed == 2
    assert hotcount.Counter(clocked.server.redis()).get("k") == 3
