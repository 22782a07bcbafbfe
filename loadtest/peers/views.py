"""Adds a second of a WriteBehindCounter, for each ack, beside Counter, SlottedCounter, and what is
written without hotcount: a plain INSERT that updates one row of SQL, and redis-py's INCR.

    .venv/bin/python -m loadtest.peers.views
    .venv/bin/python -m loadtest.peers.views --only postgres --threads 1 --rounds 7

A private Redis (appendonly no) and private databases with full durability. --threads threads of one
process add 1 to keys drawn from --keys for --seconds, each way in turn, in changing order, for
--rounds rounds; adds a second, median (least .. most). While a WriteBehindCounter is measured, a
worker brings its counts to SQL in a process of its own. After each way all its counts are read: a
sum that is not what was acknowledged ends the program with exit code 1.

A plain statement commits by itself, on a connection for each thread (psycopg, PyMySQL, sqlite3).
redis-py has one client for all threads; without the package in .venv its row is left out.

A line of JSON for each database on stdout, progress on stderr.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import hotcount

from loadtest.peers.other_clients import connect
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import MySqlServer
from tests.support.servers import PostgresServer, RedisServer

DATABASES = ("postgres", "mariadb", "sqlite", "mysql")
TIMEOUT_S = 30.0

Add = Callable[[str], object]


def say(line: str) -> None:
    print(f"{time.strftime('%X')} {line}", file=sys.stderr, flush=True)


def database_url(name: str, folder: Path, stack: ExitStack) -> str:
    """Of a private server, which ends with the stack."""
    if name == "sqlite":
        return f"sqlite:///{folder / 'views.db'}"
    if name in ("mariadb", "mysql"):
        maria = MariaDbServer() if name == "mariadb" else MySqlServer()
        stack.callback(maria.remove)
        maria.start()
        return str(maria.url(maria.create_database()))
    postgres = PostgresServer()
    stack.callback(postgres.remove)
    postgres.start()
    return postgres.url()


class Way:
    """One way to count, and what its rounds came to."""

    def __init__(self, add: Add, read: Callable[[], int]) -> None:
        self._add = add
        self._read = read
        self._acknowledged = 0
        self.rates: list[float] = []

    def run(self, threads: int, keys: list[str], seconds: float) -> None:
        done = [0] * threads
        until = time.perf_counter() + seconds

        def work(thread: int) -> None:
            drawn = random.Random(thread)
            mine = [drawn.choice(keys) for _ in range(1000)]
            while time.perf_counter() < until:
                for key in mine[done[thread] % 1000 :][:20]:
                    self._add(key)
                    done[thread] += 1

        began = time.perf_counter()
        workers = [threading.Thread(target=work, args=(each,)) for each in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.rates.append(sum(done) / (time.perf_counter() - began))
        self._acknowledged += sum(done)
        counted = self._read()
        if counted != self._acknowledged:
            raise SystemExit(f"{self._acknowledged} acknowledged, {counted} counted")

    def figures(self) -> dict[str, int]:
        return {
            "median": round(statistics.median(self.rates)),
            "least": round(min(self.rates)),
            "most": round(max(self.rates)),
        }


def views_way(views: hotcount.WriteBehindCounter, ack: str, keys: list[str]) -> Way:
    """Each ack has keys of its own, so that its sum can be read."""
    names = {key: f"{ack}:{key}" for key in keys}

    def add(key: str) -> None:
        views.add(names[key], ack=ack)  # type: ignore[arg-type]

    return Way(add, lambda: sum(views.get_many(names.values()).value))


class PlainRows:
    """One row for each key, which every add updates in a transaction of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._mine = threading.local()
        mark = "?" if url.startswith("sqlite:") else "%s"
        found = (
            "ON DUPLICATE KEY UPDATE n = n + 1"
            if url.startswith(("mysql:", "mariadb:"))
            else "ON CONFLICT (name) DO UPDATE SET n = plain.n + 1"
        )
        self._statement = f"INSERT INTO plain (name, n) VALUES ({mark}, 1) {found}"
        self._run("CREATE TABLE plain (name VARCHAR(100) PRIMARY KEY, n BIGINT NOT NULL)")

    def _run(self, statement: str, *values: str) -> Any:
        if not hasattr(self._mine, "connection"):
            self._mine.connection = self._connect()
        cursor = self._mine.connection.cursor()
        cursor.execute(statement, values)
        return cursor

    def _connect(self) -> Any:
        if not self._url.startswith("sqlite:"):
            return connect(self._url, autocommit=True)
        path = self._url.removeprefix("sqlite:///")
        connection = sqlite3.connect(path, timeout=TIMEOUT_S, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def add(self, key: str) -> None:
        self._run(self._statement, key)

    def sum(self) -> int:
        return int(self._run("SELECT COALESCE(SUM(n), 0) FROM plain").fetchone()[0])


def redis_py(path: Path, keys: list[str]) -> Way:
    import redis

    client = redis.Redis(unix_socket_path=str(path), max_connections=64, socket_timeout=TIMEOUT_S)
    return Way(
        lambda key: client.incr("redis-py:" + key),
        lambda: sum(int(n or 0) for n in client.mget(["redis-py:" + key for key in keys])),
    )


def measure(name: str, chosen: argparse.Namespace) -> dict[str, object]:
    keys = [f"page:{number}" for number in range(chosen.keys)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hotcount-")))
        redis = RedisServer(folder)
        stack.callback(redis.stop)
        redis.start()
        url = database_url(name, folder, stack)
        store = hotcount.Redis(redis.url, timeout=TIMEOUT_S)
        database = hotcount.Database(url, timeout=TIMEOUT_S)
        counter = hotcount.Counter(store)
        slotted = hotcount.SlottedCounter(database)
        slotted.create_table()
        views = hotcount.WriteBehindCounter(database, store)
        views.create_tables()
        plain = PlainRows(url)
        ways = {
            "Counter": Way(counter.add, lambda: sum(counter.get_many(keys))),
            "SlottedCounter": Way(slotted.add, lambda: sum(slotted.get_many(keys))),
            "plain SQL": Way(plain.add, plain.sum),
            **{f"ack={ack}": views_way(views, ack, keys) for ack in ("cache", "local", "sql")},
        }
        if importlib.util.find_spec("redis") is not None:
            ways["redis-py"] = redis_py(redis.socket, keys)
        command = [sys.executable, "-m", "hotcount", "sync", "--views", "--db", url]
        for number in range(chosen.rounds):
            for what, way in list(ways.items())[:: 1 if number % 2 else -1]:
                run = partial(way.run, chosen.threads, keys, chosen.seconds)
                if not what.startswith("ack="):
                    run()
                    continue
                worker = subprocess.Popen(
                    [*command, "--cache", redis.url], stderr=subprocess.DEVNULL
                )
                try:
                    run()
                finally:
                    worker.kill()
                    worker.wait()
            say(f"{name}: round {number + 1} of {chosen.rounds}")
        views.close()
        figures = {what: way.figures() for what, way in ways.items()}
        return {"database": name, "threads": chosen.threads, "adds_per_s": figures}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.peers.views", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--only", choices=DATABASES, action="append", help="(default: all)")
    parser.add_argument("--threads", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--keys", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    chosen = parser.parse_args()
    if min(chosen.threads, chosen.keys, chosen.rounds) < 1 or chosen.seconds <= 0:
        parser.error("--threads, --keys and --rounds take 1 or more, --seconds more than 0")
    for name in chosen.only or DATABASES:
        print(json.dumps(measure(name, chosen)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
