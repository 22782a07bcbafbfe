"""The cost of a Python call that waits for nothing: on a memory store, from one thread.

    make bench
    python -m loadtest.micro.call_cost --rounds 15 --json calls.json

Nanoseconds a call, or a key for batches, with the loop around it: "loop" is that alone. Votes have
no memory store: theirs is a SQLite file in /dev/shm, where a flush costs nothing. Cases take turns
in every round. Afterwards each counter must hold what its calls added. `make compare-builds` runs
it with two builds.

Exit code: 0, or 1 if an add was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import sys
import tempfile
import timeit
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hotcount
from hotcount import aio

BATCH = 1_000
GATHERED = 256
SHARED = "/dev/shm" if Path("/dev/shm").is_dir() else None


@dataclass
class Case:
    name: str
    statement: str
    keys: int = 1
    adds: int = 0  # By one run of the statement, in sum over all keys.
    ns: list[float] = field(default_factory=list)
    runs: int = 0


def cases() -> list[Case]:
    return [
        Case("loop", "pass"),
        Case("add(key)", "add(key)", adds=1),
        Case("add(key, 5)", "add(key, 5)", adds=5),
        Case("add(key, timeout=1.0)", "add(key, timeout=1.0)", adds=1),
        Case("get(key)", "get(key)"),
        Case(f"add_many(list of {BATCH:,} str)", "add_many(keys)", BATCH, BATCH),
        Case("add_many(list, list of int)", "add_many(keys, fives)", BATCH, 5 * BATCH),
        Case("add_many(list, array('q'))", "add_many(keys, packed)", BATCH, 5 * BATCH),
        Case(f"get_many(list of {BATCH:,} str)", "get_many(keys)", BATCH),
        Case("try_add(key, max=n)", "try_add(key, max=most)", adds=1),
        Case("try_add(key).value", "try_add(key).value", adds=1),
        Case("Limiter.hit(key)", "hit(key)"),
        Case("bool(Limiter.hit(key))", "bool(hit(key))"),
        Case("Limiter.hit(key).remaining", "hit(key).remaining"),
        Case("Decision.remaining", "decision.remaining"),
        Case("LiveSets.upsert", "upsert('feed', key, 1.5)"),
        Case("Votes.cast, SQLite", "cast(7, 1)"),
        Case("Votes.cast(...).changed, SQLite", "cast(7, 1).changed"),
        Case("Votes.count, SQLite", "int(count(7))"),
        Case(f"aio add in gather of {GATHERED}", "gathered()", GATHERED, GATHERED),
        # Each element of what comes back as an int of Python's.
        Case("list(add_many(list))", "list(add_many(keys))", BATCH, BATCH),
    ]


class LostAdds(Exception):
    pass


class Bench:
    """A counter of its own for one case, and what else calls need."""

    def __init__(self, case: Case, folder: Path, ends: ExitStack) -> None:
        self._case = case
        self._keys = [f"user:{number}" for number in range(BATCH)]
        store = ends.enter_context(hotcount.Memory())
        self._counter = hotcount.Counter(store)
        limiter = hotcount.Limiter(store, "1000000000/minute")
        sets = hotcount.LiveSets(store)
        sets.create("feed", 3_600, [("first", 1.0)])
        names: dict[str, Any] = {
            "hit": limiter.hit,
            "decision": limiter.hit("first"),
            "upsert": sets.upsert,
            "try_add": self._counter.try_add,
            "most": 1 << 62,
            "add": self._counter.add,
            "get": self._counter.get,
            "add_many": self._counter.add_many,
            "get_many": self._counter.get_many,
            "key": self._keys[42],
            "keys": self._keys,
            "fives": [5] * BATCH,
            "packed": array("q", [5] * BATCH),
        }
        if "SQLite" in case.name:
            names |= self._votes(folder, ends)
        if "gathered" in case.statement:
            names["gathered"] = self._gathered(aio.Counter(store), ends)
        self._timer = timeit.Timer(case.statement, globals=names)
        self._number = 1

    def _votes(self, folder: Path, ends: ExitStack) -> dict[str, Any]:
        file = folder / f"{len(list(folder.iterdir()))}.db"
        votes = ends.enter_context(hotcount.Votes(f"sqlite:///{file}"))
        votes.create_tables()
        votes.add_items([7])
        return {"cast": votes.cast, "count": votes.count}

    def _gathered(self, counter: aio.Counter, ends: ExitStack) -> Callable[[], object]:
        loop, key = asyncio.new_event_loop(), self._keys[42]
        ends.callback(loop.close)

        async def calls() -> object:
            return await asyncio.gather(*(counter.add(key) for _ in range(GATHERED)))

        return lambda: loop.run_until_complete(calls())

    def calibrate(self, seconds: float) -> None:
        """Finds how many runs take about so long; warms up meanwhile."""
        while (took := self._time()) < seconds:
            self._number = max(2 * self._number, int(self._number * seconds / max(took, 1e-9)))

    def round(self) -> None:
        self._case.ns.append(self._time() / self._number / self._case.keys * 1e9)

    def check(self) -> None:
        expected = self._case.runs * self._case.adds
        there = sum(self._counter.get_many(self._keys))
        if there != expected:
            raise LostAdds(f"{self._case.name}: {expected} added, {there} there")

    def _time(self) -> float:
        self._case.runs += self._number
        return self._timer.timeit(self._number)


def measure(measured: list[Case], rounds: int, seconds: float) -> None:
    with ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="calls-", dir=SHARED))
        benches = [Bench(case, Path(folder), ends) for case in measured]
        for bench in benches:
            bench.calibrate(seconds)
        for number in range(rounds):
            # The other way round every other time: no case always follows the same one.
            for bench in benches if number % 2 == 0 else benches[::-1]:
                bench.round()
        for bench in benches:
            bench.check()


def summary(case: Case) -> dict[str, Any]:
    return {
        "case": case.name,
        "per": "call" if case.keys == 1 else "key",
        "ns": {"median": statistics.median(case.ns), "min": min(case.ns), "max": max(case.ns)},
    }


def table(summaries: list[dict[str, Any]]) -> str:
    lines = [f"{'':32}{'ns':>8}  min .. max"]
    for one in summaries:
        ns = one["ns"]
        spread = f"{ns['min']:.1f} .. {ns['max']:.1f}"
        lines.append(f"{one['case']:32}{ns['median']:8.1f}  {spread} a {one['per']}")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.micro.call_cost",
        description="What a call costs in Python where nothing waits.",
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each case [9]")
    parser.add_argument("--seconds", type=float, default=0.05, help="length of each round [0.05]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    chosen = parser.parse_args(words)
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds takes 1 or more, --seconds more than 0")
    measured = cases()
    try:
        measure(measured, chosen.rounds, chosen.seconds)
    except LostAdds as lost:
        print(f"FAILED: {lost}", file=sys.stderr)
        return 1
    summaries = [summary(case) for case in measured]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"hotcount {hotcount.__version__}, {python}: medians of {chosen.rounds} rounds\n")
    print(table(summaries))
    if chosen.json:
        document = {
            "hotcount": hotcount.__version__,
            "python": python,
            "rounds": chosen.rounds,
            "seconds": chosen.seconds,
            "cases": summaries,
        }
        chosen.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
