"""When a batch of votes returns, and what single votes beside it wait: Votes.cast_many().

    .venv/bin/python -m loadtest.peers.votes_batches
    .venv/bin/python -m loadtest.peers.votes_batches --only mariadb --votes 100000 --do slow,stopped
    .venv/bin/python -m loadtest.peers.votes_batches --do beside --strategies batched --timeout 20

Private servers with full durability. Each case is a process of its own, which casts --votes votes
on 1,000 items with one call of --timeout seconds:

    healthy   nothing else happens
    slow      each piece of data takes 50 ms, either way; SQLite: another process holds the write
              lock for 45 of every 50 ms
    stopped   at 0.4 of the timeout the server stops (SIGSTOP); SQLite: another process takes the
              write lock and keeps it. The server of write_behind is Redis
    beside    4 threads cast single votes all the time, before the batch and beside it

"late" is how long after its deadline the call returned; "peak" is the memory that the process had
at most. Where the server has votes that were told as not applied, or lacks acknowledged ones, the
exit code is 1.

A table on stdout, progress on stderr; --json FILE has the figures of each round.
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hotcount

from loadtest.peers.options import groups_of
from loadtest.peers.private_servers import (
    far_url,
    name_in,
    say,
    start_database,
    start_redis,
    url_of,
)
from tests.support.server_process import ServerProcess
from tests.support.servers import PostgresServer

DATABASES = ("sqlite", "postgres", "mariadb", "mysql")
STRATEGIES = ("naive", "slotted", "batched", "cached", "write_behind")
STATES = ("healthy", "slow", "stopped", "beside")
ITEMS = 1000
SINGLES = 4
WARM_UP = 20
ALONE_S = 3.0
LINK_S = 0.05
STOPS_AT = 0.4  # Of the timeout.
Figures = dict[str, Any]


# -- one case, in a process of its own -------------------------------------------------------------


class Singles:
    """Threads that cast one vote after the other."""

    def __init__(self, votes: hotcount.Votes, timeout: float) -> None:
        self._votes, self._timeout = votes, timeout
        self._over = threading.Event()
        self.times: list[float] = []
        self.failed = 0
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(SINGLES)]
        for thread in self._threads:
            thread.start()

    def _run(self, index: int) -> None:
        user = 2_000_000_000 + index * 100_000_000 + time.time_ns() % 100_000_000_000 * 10
        while not self._over.is_set():
            user += 1
            begun = time.perf_counter()
            try:
                self._votes.cast(user % ITEMS, user, timeout=self._timeout)
            except hotcount.HotcountError:
                self.failed += 1
            self.times.append(time.perf_counter() - begun)

    def end(self, prefix: str) -> Figures:
        self._over.set()
        for thread in self._threads:
            thread.join()
        each = sorted(self.times)
        at = {"p50": len(each) // 2, "p99": len(each) * 99 // 100}
        figures: Figures = {f"{prefix}_{name}_ms": each[i] * 1e3 for name, i in at.items()}
        return figures | {
            f"{prefix}_calls": len(each),
            f"{prefix}_failed": self.failed,
            f"{prefix}_longest_ms": each[-1] * 1e3,
        }


def cast_batch(votes: hotcount.Votes, size: int, timeout: float) -> Figures:
    import numpy as np

    users = np.arange(1, size + 1)
    items = users % ITEMS
    print("begun", flush=True)
    errors: dict[int, hotcount.HotcountError] = {}
    begun = time.perf_counter()
    try:
        votes.cast_many(items, users, timeout=timeout)
    except hotcount.BatchError as failed:
        errors = failed.errors
    took = time.perf_counter() - begun
    unknown = sum(isinstance(error, hotcount.OutcomeUnknownError) for error in errors.values())
    kinds = {str(error) for error in {id(each): each for each in errors.values()}.values()}
    return {
        "took_s": took,
        "late_ms": max(0.0, took - timeout) * 1e3,
        "applied": size - len(errors),
        "unknown": unknown,
        "not_applied": len(errors) - unknown,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "errors": sorted(kinds)[:3],
    }


def run_case(case: Figures) -> Figures:
    votes = hotcount.Votes(case["url"], case["cache"], case["strategy"], missing_items="refuse")
    for item in range(WARM_UP):
        votes.cast(item, -1 - item)
    figures: Figures = {}
    if case["state"] != "beside":
        return cast_batch(votes, case["votes"], case["timeout"])
    alone = Singles(votes, 1.0)
    time.sleep(ALONE_S)
    figures |= alone.end("alone")
    beside = Singles(votes, 1.0)
    figures |= cast_batch(votes, case["votes"], case["timeout"])
    return figures | beside.end("beside")


# -- servers ---------------------------------------------------------------------------------------


class Held:
    """The write lock of a SQLite file, in another process's hands."""

    def __init__(self, path: str, seconds: str) -> None:
        program = (
            "import sqlite3, sys, time\n"
            "held = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n"
            "held.execute('BEGIN IMMEDIATE'); print(flush=True)\n"
            f"while True:\n time.sleep({seconds}); held.execute('ROLLBACK'); time.sleep(0.005)\n"
            " held.execute('BEGIN IMMEDIATE')"
        )
        command = [sys.executable, "-c", program, path]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Place:
    """A database and a Redis, and how they are kept from answering."""

    def __init__(self, group: str, stack: ExitStack) -> None:
        self.group = group
        self._folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hotcount-"))
        self._redis = start_redis(stack)
        self._server = None if group == "sqlite" else start_database(group, stack)

    def urls(self) -> tuple[str, str]:
        """Of an empty database and an empty Redis."""
        with self._redis.redis() as redis:
            redis.execute("FLUSHALL")
        if isinstance(self._server, PostgresServer):
            self._server.psql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        if self._server is not None:
            return url_of(self._server), self._redis.url
        self.path = f"{self._folder}/{time.time_ns()}.db"
        return f"sqlite:///{self.path}", self._redis.url

    @contextmanager
    def slow_urls(self, url: str, cache: str, on_redis: bool) -> Iterator[tuple[str, str]]:
        if on_redis:
            with far_url(self._redis, LINK_S) as far:
                yield url, far
        elif self._server is not None:
            with far_url(self._server, LINK_S, name_in(url)) as far:
                yield far, cache
        else:
            held = Held(self.path, "0.045")
            yield url, cache
            held.end()

    def stop(self, on_redis: bool) -> Callable[[], None]:
        """Returns what lets it go on."""
        server: ServerProcess | None = self._redis if on_redis else self._server
        if server is None:
            return Held(self.path, "3600").end
        server.send_signal(signal.SIGSTOP)
        return functools.partial(server.send_signal, signal.SIGCONT)


def child(case: Figures, begun: Callable[[], None]) -> Figures:
    command = [sys.executable, "-m", "loadtest.peers.votes_batches", "--case", json.dumps(case)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "begun\n":
                begun()
            else:
                figures: Figures = json.loads(line)
                return figures
    raise SystemExit(f"{case}: no figures")


def audit(votes: hotcount.Votes, strategy: str, figures: Figures) -> None:
    """Checks that each acknowledged vote is counted, and none that was reported as not applied."""
    counts = votes.count_many(range(ITEMS), consistency="exact", timeout=60)
    singles = WARM_UP + sum(figures.get(f"{which}_calls", 0) for which in ("alone", "beside"))
    doubtful = sum(figures.get(f"{which}_failed", 0) for which in ("alone", "beside"))
    there = sum(counts.value)
    if strategy == "write_behind":
        there += votes.stats(timeout=60)["pending_votes"]
    least = figures["applied"] + singles - doubtful
    if not least <= there <= least + figures["unknown"] + doubtful:
        raise SystemExit(f"{there:,} votes are there, {least:,} were acknowledged: {figures}")


def measure(place: Place, strategy: Any, state: str, size: int, timeout: float) -> Figures:
    url, cache = place.urls()
    needs_cache = strategy in ("cached", "write_behind")
    on_redis = strategy == "write_behind"
    with hotcount.Votes(url, cache if needs_cache else None, strategy) as votes:
        votes.create_tables()
        votes.add_items(range(ITEMS))
        go_on: list[Callable[[], None]] = []

        def begun() -> None:
            if state == "stopped":
                time.sleep(timeout * STOPS_AT)
                go_on.append(place.stop(on_redis))

        case = {"strategy": strategy, "state": state, "votes": size, "timeout": timeout}
        with ExitStack() as stack:
            if state == "slow":
                url, cache = stack.enter_context(place.slow_urls(url, cache, on_redis))
            try:
                figures = child(case | {"url": url, "cache": cache if needs_cache else None}, begun)
            finally:
                for call in go_on:
                    call()
        audit(votes, strategy, figures)
    return case | figures


def row(group: str, rounds: list[Figures]) -> list[str]:
    def median(name: str, format: str = "{:,.0f}") -> str:
        values = sorted(each[name] for each in rounds)
        if len(values) == 1:
            return format.format(values[0])
        least, most = format.format(values[0]), format.format(values[-1])
        return f"{format.format(statistics.median(values))} ({least}-{most})"

    first = rounds[0]
    cells = [group, first["strategy"], first["state"], f"{first['votes']:,}"]
    cells += [f"{first['timeout']:g}", median("took_s", "{:.2f}"), median("late_ms")]
    cells += [median("applied"), median("unknown"), median("peak_mb")]
    if first["state"] == "beside":
        cells += [median("alone_p99_ms", "{:.1f}"), median("beside_p99_ms", "{:.1f}")]
        cells += [median("beside_failed")]
    return cells


HEADINGS = ["database", "strategy", "state", "votes", "timeout s", "returned s", "late ms"]
HEADINGS += ["applied", "unknown", "peak MB"]
BESIDE_HEADINGS = [*HEADINGS, "singles' p99 alone, ms", "beside, ms", "failed"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.peers.votes_batches",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("--only", type=groups_of(DATABASES), default=list(DATABASES[:3]))
    parser.add_argument("--strategies", type=groups_of(STRATEGIES), default=list(STRATEGIES))
    parser.add_argument("--do", type=groups_of(STATES), default=list(STATES))
    parser.add_argument("--votes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--timeout", type=float, default=2.0, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.case:
        print(json.dumps(run_case(chosen.case)), flush=True)
        return 0
    rounds: dict[tuple[object, ...], list[Figures]] = {}
    for _ in range(chosen.rounds):
        for group in chosen.only:
            with ExitStack() as stack:
                place = Place(group, stack)
                for strategy in chosen.strategies:
                    for state in chosen.do:
                        for size in chosen.votes if state != "beside" else chosen.votes[-1:]:
                            figures = measure(place, strategy, state, size, chosen.timeout)
                            say(f"{group} {figures}")
                            key = (group, strategy, state, size)
                            rounds.setdefault(key, []).append(figures)
    for beside, headings in ((False, HEADINGS), (True, BESIDE_HEADINGS)):
        rows = [row(str(k[0]), each) for k, each in rounds.items() if (k[2] == "beside") == beside]
        if rows:
            lines = [headings, ["---"] * len(headings), *rows]
            print("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    if chosen.json:
        chosen.json.write_text(json.dumps([each for some in rounds.values() for each in some]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
