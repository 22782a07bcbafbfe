"""No limiter over-admits: threads, loops and processes together, no scripts kept, wrong clocks."""

import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.limiters import SAFE
from tests.support.servers import RedisServer
from tests.support.wrong_clock import WrongClock

ROOT = Path(__file__).resolve().parents[2]
CLOCKS = (0, 3600, -3600, 86400)  # Seconds.


@pytest.fixture(scope="module")
def wrong_clock(tmp_path_factory: pytest.TempPathFactory) -> WrongClock:
    return WrongClock(tmp_path_factory.mktemp("clock"))


def storm(
    redis: hotcount.Redis, url: str, clock: WrongClock, *what: object, processes: int
) -> tuple[int, float]:
    """How many hits were admitted, and how long it took on the server's clock."""
    callers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.limiter_storm", url, *map(str, what)],
            cwd=ROOT,
            env=clock.environment(CLOCKS[i % 4]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    stop = threading.Event()

    def flush() -> None:
        while not stop.wait(0.1):
            redis.execute("SCRIPT", "FLUSH")

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        for i, caller in enumerate(callers):
            assert caller.stdout is not None
            word, clock_says = caller.stdout.readline().split()
            assert word == "ready"
            assert abs(int(clock_says) - time.time() - CLOCKS[i % 4]) < 600
        begun = server_time(redis)
        for caller in callers:
            assert caller.stdin is not None
            caller.stdin.write("\n")
            caller.stdin.flush()
        admitted = sum(int(caller.communicate(timeout=120)[0]) for caller in callers)
        return admitted, server_time(redis) - begun
    finally:
        stop.set()
        flusher.join()
        for caller in callers:
            caller.kill()
            caller.wait()


def server_time(redis: hotcount.Redis) -> float:
    seconds, microseconds = (int(part) for part in redis.execute("TIME"))
    return seconds + microseconds / 1e6


def check(
    server: RedisServer,
    clock: WrongClock,
    algorithm: Any,
    *,
    processes: int,
    threads: int,
    hits: int,
) -> None:
    with server.redis(timeout=60) as redis:
        # Far more is asked for than there is, and no window ends: the limit, exactly.
        attempts = processes * (2 * threads - 1) * hits
        limit = attempts // 3
        rate = f"{limit}/300 days"
        admitted, _ = storm(
            redis,
            server.url,
            clock,
            uuid.uuid4().hex,
            algorithm,
            rate,
            threads,
            hits,
            processes=processes,
        )
        assert admitted == limit
        # And while windows pass: no more than one limit more than the time has room for.
        limit = attempts // 20
        admitted, took = storm(
            redis,
            server.url,
            clock,
            uuid.uuid4().hex,
            algorithm,
            f"{limit}/100 ms",
            threads,
            hits,
            processes=processes,
        )
        assert limit <= admitted <= limit * (took / 0.1 + 2)


@pytest.mark.parametrize("algorithm", ["gcra", "sliding_log"])
def test_two_processes_are_admitted_the_limit(
    redis_server: RedisServer, wrong_clock: WrongClock, algorithm: str
) -> None:
    check(redis_server, wrong_clock, algorithm, processes=2, threads=4, hits=25)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", SAFE)
def test_four_processes_of_sixteen_threads_are_admitted_the_limit(
    redis_server: RedisServer, wrong_clock: WrongClock, algorithm: str
) -> None:
    check(redis_server, wrong_clock, algorithm, processes=4, threads=16, hits=60)
