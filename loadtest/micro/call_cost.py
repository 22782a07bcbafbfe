"""What a call costs in Python where nothing waits: Counter on a memory store, one thread.

    make bench
    python -m loadtest.micro.call_cost --rounds 15 --json calls.json

Nanoseconds a call, or a key for batches, with the loop around it: "loop" is that alone. Cases take
turns in every round. Afterwards each counter must hold what its calls added.

Exit code: 0, or 1 where an add was lost.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import timeit
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hotcount

BATCH = 1_000


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
        # Each element of what comes back as an int of Python's.
        Case("list(add_many(list))", "list(add_many(keys))", BATCH, BATCH),
    ]


class LostAdds(Exception):
    pass


class Bench:
    """A counter of its own for one case."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._keys = [f"user:{number}" for number in range(BATCH)]
        self._counter = hotcount.Counter(hotcount.Memory())
        names = {
            "add": self._counter.add,
            "get": self._counter.get,
            "add_many": self._counter.add_many,
            "get_many": self._counter.get_many,
            "key": self._keys[42],
            "keys": self._keys,
            "fives": [5] * BATCH,
            "packed": array("q", [5] * BATCH),
        }
        self._timer = timeit.Timer(case.statement, globals=names)
        self._number = 1

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
    benches = [Bench(case) for case in measured]
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
        description="What a call of Counter costs in Python, on a memory store.",
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
