"""`hotcount demo`: counts under load without a server, and their check."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hotcount

DESCRIPTION = "count under load on memory and SQLite, and check it"
STRATEGIES = ("naive", "slotted", "batched")


def add_arguments(
    parser: argparse.ArgumentParser, count: Callable[[str], int], positive: Callable[[str], float]
) -> None:
    add: Any = parser.add_argument
    add("--threads", type=count, default=8, help="callers at once (default: 8)")
    add("--seconds", type=positive, default=1.0, help="how long each way runs (default: 1)")
    add("--json", action="store_true", help="the result as JSON")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Outcome:
    """The throughput of one way of counting under load, and whether its count is right."""

    what: str
    acknowledged: int
    counted: int
    per_second: int
    check: str

    @property
    def ok(self) -> bool:
        return self.check == "exact"


def hammer(threads: int, seconds: float, call: Callable[[int], object]) -> tuple[list[int], float]:
    """Calls call(number) from many threads for a while: (calls returned by thread, seconds).

    Thread t's numbers are t, t + threads, t + 2 * threads ...: none comes twice.
    """
    done = [0] * threads
    failures: list[BaseException] = []
    started = time.perf_counter()

    def work(thread: int) -> None:
        try:
            number = thread
            while time.perf_counter() - started < seconds:
                call(number)
                done[thread] += 1
                number += threads
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return done, time.perf_counter() - started


def outcome(what: str, acknowledged: int, elapsed: float, **counts: int) -> Outcome:
    wrong = [f"{name} says {count}" for name, count in counts.items() if count != acknowledged]
    return Outcome(
        what=what,
        acknowledged=acknowledged,
        counted=next(iter(counts.values())),
        per_second=round(acknowledged / elapsed),
        check="; ".join(wrong) or "exact",
    )


def demo_counter(threads: int, seconds: float) -> Outcome:
    with hotcount.Counter("memory://") as counter:
        calls, elapsed = hammer(threads, seconds, lambda _: counter.add("hot"))
        return outcome("Counter, memory://", sum(calls), elapsed, get=counter.get("hot"))


def demo_slotted(folder: Path, threads: int, seconds: float) -> Outcome:
    file = folder / "slotted.db"
    with hotcount.SlottedCounter(f"sqlite:///{file}") as counter:
        counter.create_table()
        calls, elapsed = hammer(threads, seconds, lambda _: counter.add("hot"))
        with closing(sqlite3.connect(file)) as other:
            ((rows,),) = other.execute("SELECT SUM(count) FROM hotcount_slot")
        return outcome(
            "SlottedCounter, sqlite://", sum(calls), elapsed, get=counter.get("hot"), rows=rows
        )


def demo_votes(folder: Path, strategy: str, threads: int, seconds: float) -> Outcome:
    file = folder / f"{strategy}.db"
    with hotcount.Votes(f"sqlite:///{file}", strategy=strategy) as votes:  # type: ignore[arg-type]
        votes.create_tables()
        votes.add_items([1])
        calls, elapsed = hammer(threads, seconds, lambda user: votes.cast(1, user))
        # A retry of what is counted must change nothing.
        users = range(0, min(calls[0], 100) * threads, threads)
        changed = sum(votes.cast_many([1] * len(users), users, timeout=60).changed)
        votes.flush()
        with closing(sqlite3.connect(file)) as other:
            ((rows,),) = other.execute("SELECT COUNT(*) FROM vote_live")
            ((stored,),) = other.execute("SELECT vote_count FROM item WHERE id = 1")
        return outcome(
            f"Votes, {strategy}, sqlite://",
            sum(calls),
            elapsed,
            count=int(votes.count(1)),
            rows=rows,
            vote_count=stored,
            retries=sum(calls) + changed,
        )


def run(options: argparse.Namespace) -> int:
    """Exit code: 0 every count is right, 1 one is not."""
    _say(
        f"hotcount {hotcount.__version__}: {options.threads} threads on one hot key, "
        f"{options.seconds:g} s each; memory and SQLite, no server"
    )
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="hotcount-demo-") as name:
        folder = Path(name)
        runs: list[Callable[[], Outcome]] = [
            lambda: demo_counter(options.threads, options.seconds),
            lambda: demo_slotted(folder, options.threads, options.seconds),
            *(
                lambda strategy=strategy: demo_votes(
                    folder, strategy, options.threads, options.seconds
                )
                for strategy in STRATEGIES
            ),
        ]
        for number, run in enumerate(runs, 1):
            _say(f"  {number}/{len(runs)} ...")
            outcomes.append(run())
    if options.json:
        print(
            json.dumps(
                {
                    "version": hotcount.__version__,
                    "threads": options.threads,
                    "outcomes": [asdict(each) for each in outcomes],
                    "ok": all(each.ok for each in outcomes),
                },
                indent=2,
            )
        )
    else:
        print(f"{'what':<28} {'acknowledged':>12} {'counted':>9} {'per second':>11}  check")
        for each in outcomes:
            print(
                f"{each.what:<28} {each.acknowledged:>12,} {each.counted:>9,} "
                f"{each.per_second:>11,}  {each.check}"
            )
    return 0 if all(each.ok for each in outcomes) else 1
