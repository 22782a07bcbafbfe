"""Hits of one Limiter a second, over Redis and over each database, all on this machine.

    python -m loadtest.peers.sql_limits [--seconds 1.5] [--rounds 3] [--stores redis,postgresql,...]

Prints for each store the median of the rounds, and the range, with one caller, with 32 threads and
with four processes of one thread. "1,000 keys": each hit takes a drawn one of them and is admitted.
"one key": all take the same one. "denied": one caller hits a key that has nothing left.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import hotcount

from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import MySqlServer
from tests.support.servers import PostgresServer, RedisServer

STORES = ("redis", "sqlite", "postgresql", "mariadb", "mysql")
# What is hit: how many keys, threads, processes, and whether hits are denied.
CASES: dict[str, tuple[int, int, int, bool]] = {
    "1 caller, 1,000 keys": (1000, 1, 1, False),
    "1 caller, denied": (1, 1, 1, True),
    "32 threads, 1,000 keys": (1000, 32, 1, False),
    "32 threads, one key": (1, 32, 1, False),
    "4 processes, 1,000 keys": (1000, 1, 4, False),
    "4 processes, one key": (1, 1, 4, False),
}
WIDE, NARROW = "1000000000/day", "1/300 days"


def limiter_of(url: str, denied: bool) -> hotcount.Limiter:
    name = "denied" if denied else "wide"
    return hotcount.Limiter(
        hotcount.connect(url, timeout=20), NARROW if denied else WIDE, name=name
    )


def hits(url: str, keys: int, threads: int, denied: bool, seconds: float) -> int:
    """How many hits the threads of this process come to; they begin when stdin says so."""
    limiter = limiter_of(url, denied)
    limiter.hit("k0")
    counts = [0] * threads
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + seconds

    def work(thread: int) -> None:
        draw = random.Random()
        while time.monotonic() < end:
            key = f"k{draw.randrange(keys)}" if keys > 1 else "k0"
            assert limiter.hit(key).allowed is not denied
            counts[thread] += 1

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts)


def load(url: str, case: str, seconds: float) -> float:
    """Hits a second of all processes of a case."""
    callers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "loadtest.peers.sql_limits", "--hit", url),
                case,
                str(seconds),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(CASES[case][2])
    ]
    for caller in callers:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "ready\n"
    said = []
    for caller in callers:
        assert caller.stdin is not None
        caller.stdin.write("go\n")
        caller.stdin.flush()
    for caller in callers:
        said.append(int(caller.communicate(timeout=60)[0]))
    return sum(said) / seconds


@contextmanager
def opened(store: str) -> Iterator[str]:
    """The URL of a private one, with the limiters' table and the keys that are denied."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if store == "redis":
            redis = RedisServer(folder)
            stack.callback(redis.stop)
            url = redis.start().url
        elif store == "postgresql":
            postgres = PostgresServer()
            stack.callback(postgres.remove)
            url = postgres.start().url()
        elif store in ("mariadb", "mysql"):
            mariadb = MariaDbServer() if store == "mariadb" else MySqlServer()
            stack.callback(mariadb.remove)
            url = mariadb.start().url(mariadb.create_database())
        else:
            url = f"sqlite:///{folder}/limits.db"
        limiter = limiter_of(url, denied=True)
        limiter.create_table()
        limiter.hit("k0")
        yield url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--hit", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hit:
        url, case, seconds = options.hit
        keys, threads, _, denied = CASES[case]
        print(hits(url, keys, threads, denied, float(seconds)))
        return
    for store in options.stores.split(","):
        with opened(store) as url:
            for case in CASES:
                rates = [load(url, case, options.seconds) for _ in range(options.rounds)]
                middle = statistics.median(rates)
                print(f"{store:12}{case:26}{middle:9,.0f}  {min(rates):,.0f}-{max(rates):,.0f}")


if __name__ == "__main__":
    main()
