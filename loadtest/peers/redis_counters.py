"""Counters on Redis: hotcount beside redis-py, on one private server, in alternating rounds.

    make peers
    python -m loadtest.peers.redis_counters --rounds 7 --json peers.json

Sync calls with 1 and 32 threads, on one key and on 1,000, and batches of 1,000 adds (add_many
beside a pipeline). Every contender adds to keys of its own; after each round their sum must be what
was added, or the run fails. Only the ratios within one run say something: they move less than the
figures do.

Exit code: 0, or 1 where an add was lost or doubled, 2 where something is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import hotcount

from tests.servers import RedisServer, free_port

BATCH = 1_000
TIMEOUT_S = 30.0

Add = Callable[[list[str]], object]


@dataclass
class Case:
    name: str
    threads: int
    keys: int
    batched: bool = False
    rates: dict[str, list[float]] = field(default_factory=dict)


def cases() -> list[Case]:
    return [
        *(
            Case(
                f"add, {threads} thread{'s'[: threads > 1]}, {keys:,} key{'s'[: keys > 1]}",
                threads,
                keys,
            )
            for threads in (1, 32)
            for keys in (1, 1_000)
        ),
        *(
            Case(
                f"batches of {BATCH:,}, 1 thread, {keys:,} key{'s'[: keys > 1]}",
                1,
                keys,
                batched=True,
            )
            for keys in (1, 1_000)
        ),
    ]


class Hotcount:
    name = "hotcount"

    def __init__(self, server: RedisServer) -> None:
        self._store = hotcount.Redis(f"redis://127.0.0.1:{server.port}", timeout=TIMEOUT_S)
        self._counter = hotcount.Counter(self._store, prefix="hotcount")

    def prefix(self) -> str:
        return "hotcount:"

    def add(self, keys: list[str]) -> None:
        add = self._counter.add
        for key in keys:
            add(key)

    def add_batch(self, keys: list[str]) -> None:
        self._counter.add_many(keys)

    def close(self) -> None:
        self._store.close()


class RedisPy:
    name = "redis-py"

    def __init__(self, server: RedisServer) -> None:
        import redis

        self._client = redis.Redis(
            host="127.0.0.1", port=server.port, max_connections=64, socket_timeout=TIMEOUT_S
        )

    def prefix(self) -> str:
        return "redis-py:"

    def add(self, keys: list[str]) -> None:
        incr = self._client.incr
        for key in keys:
            incr("redis-py:" + key)

    def add_batch(self, keys: list[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.incr("redis-py:" + key)
        pipeline.execute()

    def close(self) -> None:
        self._client.close()


def drive(add: Add, case: Case, seconds: float, seed: int) -> tuple[int, float]:
    """Adds from all threads for so long; returns how many adds were acknowledged, in what time."""
    gate = threading.Barrier(case.threads + 1)
    ends_at = [0.0]
    done = [0] * case.threads
    failures: list[BaseException] = []

    def work(index: int) -> None:
        draw = random.Random(seed * 1_000 + index)
        # Few enough that a thread notices the end, enough that looking costs nothing.
        size = BATCH if case.batched else 20
        names = [f"k{draw.randrange(case.keys)}" for _ in range(100 * size)]
        at = 0
        gate.wait()
        try:
            while time.perf_counter() < ends_at[0]:
                add(names[at : at + size])
                done[index] += size
                at = (at + size) % len(names)
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(case.threads)]
    for worker in workers:
        worker.start()
    # Set before the gate opens; the time starts when the last thread has come to it.
    ends_at[0] = float("inf")
    gate.wait()
    started = time.perf_counter()
    ends_at[0] = started + seconds
    for worker in workers:
        worker.join()
    elapsed = time.perf_counter() - started
    if failures:
        raise failures[0]
    return sum(done), elapsed


def found(server: RedisServer, prefix: str, keys: int) -> int:
    """What is in the server, over a connection of its own; and takes it away."""
    with server.redis(timeout=TIMEOUT_S) as store:
        values = store.execute("MGET", *(f"{prefix}k{index}" for index in range(keys)))
        store.execute("FLUSHALL")
    return sum(int(value) for value in values if value is not None)


def measure(
    server: RedisServer, contenders: list[Any], measured: list[Case], rounds: int, seconds: float
) -> None:
    """Fills in the cases' rates; an add that is lost or doubled is an error."""
    for number in range(rounds):
        for case in measured:
            # Who is first changes from round to round.
            for contender in contenders if number % 2 == 0 else contenders[::-1]:
                add = contender.add_batch if case.batched else contender.add
                added, elapsed = drive(add, case, seconds, seed=number)
                there = found(server, contender.prefix(), case.keys)
                if there != added:
                    raise LostAdds(f"{contender.name}: {case.name}: {added} added, {there} there")
                case.rates.setdefault(contender.name, []).append(added / elapsed)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)


class LostAdds(Exception):
    pass


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summary(case: Case) -> dict[str, Any]:
    ours, theirs = case.rates[Hotcount.name], case.rates[RedisPy.name]
    return {
        "case": case.name,
        "threads": case.threads,
        "keys": case.keys,
        "batch": BATCH if case.batched else 1,
        "adds_per_s": {name: spread(rates) for name, rates in case.rates.items()},
        # Within a round, then the median: what slows the machine down slows both.
        "ratio": spread([our / their for our, their in zip(ours, theirs)]),
    }


def table(summaries: list[dict[str, Any]]) -> str:
    rows = [("", "hotcount/s", "min .. max", "redis-py/s", "min .. max", "ratio", "min .. max")]
    for one in summaries:
        row = [one["case"]]
        for name in (Hotcount.name, RedisPy.name):
            figures = one["adds_per_s"][name]
            row += [f"{figures['median']:,.0f}", f"{figures['min']:,.0f} .. {figures['max']:,.0f}"]
        ratio = one["ratio"]
        row += [f"{ratio['median']:.1f}", f"{ratio['min']:.1f} .. {ratio['max']:.1f}"]
        rows.append(tuple(row))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    )


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.peers.redis_counters",
        description="Counters on Redis: hotcount beside redis-py, in alternating rounds.",
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each [5]")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each load [1]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    chosen = parser.parse_args(words)
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds takes 1 or more, --seconds more than 0")
    return chosen


def versions(server: RedisServer) -> dict[str, str]:
    with server.redis() as store:
        info = store.execute("INFO", "server").decode()
    return {
        "hotcount": hotcount.__version__,
        "redis-py": metadata.version("redis"),
        "hiredis": metadata.version("hiredis"),
        "python": platform.python_version(),
        "server": re.findall(r"(?:redis|valkey)_version:(\S+)", info)[-1],
    }


def report(document: dict[str, Any]) -> str:
    named = ", ".join(f"{name} {value}" for name, value in document["versions"].items())
    return (
        "Counters on a private Redis over loopback TCP, closed loop: adds acknowledged a second\n"
        f"{named}\n"
        f"{document['rounds']} rounds of {document['seconds']:g} s in changing order; medians, "
        f"ratios within rounds\n\n{table(document['cases'])}\n\n"
        "Every add is there, in every round, of both."
    )


def main(words: list[str] | None = None) -> int:
    chosen = arguments(words)
    for package in ("redis", "hiredis"):
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed: run `make peers`", file=sys.stderr)
            return 2
    measured = cases()
    with tempfile.TemporaryDirectory(prefix="hotcount-peers-") as folder:
        server = RedisServer(Path(folder), port=free_port())
        contenders: list[Any] = []
        try:
            server.start()
            contenders = [Hotcount(server), RedisPy(server)]
            measure(server, contenders, measured, chosen.rounds, chosen.seconds)
            document = {
                "rounds": chosen.rounds,
                "seconds": chosen.seconds,
                "versions": versions(server),
                "cases": [summary(case) for case in measured],
            }
        except LostAdds as lost:
            print(f"FAILED: {lost}", file=sys.stderr)
            return 1
        except RuntimeError as missing:
            print(missing, file=sys.stderr)
            return 2
        finally:
            for contender in contenders:
                contender.close()
            server.stop()
    print(report(document))
    if chosen.json:
        chosen.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
