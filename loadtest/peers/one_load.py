"""One load of this interpreter's hotcount on a Redis: what builds.py compares two builds with.

    python -m loadtest.peers.one_load NAME PORT SECONDS SEED

Prints one line of JSON: calls (or keys, or elements) a second as `rate`, and `added`, the sum that
the counters must hold afterwards, if the load is one of adds. It uses public names of hotcount
that older builds have too.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import hotcount

from loadtest.peers import asyncio_contenders, contenders, keys
from loadtest.peers.rounds import RATE, TIMEOUT_S, Measured

KEYS = 1_000
Run = Callable[[int, float, int], Measured]


def threads(count: int, key_count: int, port: int, seconds: float, seed: int) -> Measured:
    contender = contenders.Hotcount(port)
    try:
        return contenders.singly(contender, count, key_count, seconds, seed)
    finally:
        contender.close()


def tasks(count: int, port: int, seconds: float, seed: int) -> Measured:
    opened = asyncio_contenders.hotcount_aio
    return asyncio_contenders.singly(opened, "", port, count, KEYS, seconds, seed)


def batches(
    made: Callable[[int], list[list[str]]], port: int, seconds: float, seed: int
) -> Measured:
    contender = contenders.Hotcount(port)
    try:
        return contenders.batches(contender, made, seconds, seed)
    finally:
        contender.close()


def calls(
    opened: Callable[[Any], Callable[[str], object]],
    count: int,
    port: int,
    seconds: float,
    seed: int,
    size: int = 1,
) -> Measured:
    """Calls from `threads` threads on one store; the keys that they leave are not summed up."""
    with hotcount.Redis(f"redis://127.0.0.1:{port}", timeout=TIMEOUT_S) as store:
        call = opened(store)
        measured = contenders.drive(
            lambda _thread: call,
            lambda thread: keys.uniform(KEYS, 2_000, seed * 1_000 + thread),
            count,
            seconds,
            size=size,
        )
    return Measured(0, measured.figures)


def limiter(store: Any) -> Callable[[str], object]:
    return hotcount.Limiter(store, rate="1000000/minute").hit


def add_with_op_id(store: Any) -> Callable[[str], object]:
    counter, numbers = hotcount.Counter(store), itertools.count()
    return lambda key: counter.add(key, op_id=f"{key}:{next(numbers)}")


def upsert(store: Any) -> Callable[[str], object]:
    sets = hotcount.LiveSets(store)
    sets.create("feed", 600, [("first", 1.0)])
    return lambda member: sets.upsert("feed", member, 1.5)


def upserts(store: Any) -> Callable[[str], object]:
    """Batches of 250 upserts into sets that live."""
    sets = hotcount.LiveSets(store)
    names = [f"feed:{number}" for number in range(250)]
    for name in names:
        sets.create(name, 600, [("first", 1.0)])
    scores = itertools.count()
    return lambda member: sets.upsert_many([(name, member, float(next(scores))) for name in names])


# By the name of the case, in the groups of report.py.
LOADS: dict[str, dict[str, Run]] = {
    "sync": {
        "1 thread, 1,000 keys": partial(threads, 1, KEYS),
        "32 threads, 1 key": partial(threads, 32, 1),
        "32 threads, 1,000 keys": partial(threads, 32, KEYS),
    },
    "asyncio": {
        "1 task": partial(tasks, 1),
        "64 tasks": partial(tasks, 64),
        "256 tasks": partial(tasks, 256),
    },
    "batch": {
        "each of 1,000 keys once": partial(batches, keys.distinct_batches),
        "Zipf 0.99 over 10,000 keys": partial(batches, keys.zipf_batches),
    },
    "scripts": {
        "Limiter.hit, 1 thread": partial(calls, limiter, 1),
        "Limiter.hit, 32 threads": partial(calls, limiter, 32),
        "Counter.add with op_id, 1 thread": partial(calls, add_with_op_id, 1),
        "Counter.add with op_id, 32 threads": partial(calls, add_with_op_id, 32),
        "LiveSets.upsert, 1 thread": partial(calls, upsert, 1),
        "LiveSets.upsert_many of 250, 1 thread": partial(calls, upserts, 1, size=250),
    },
}


def main(words: list[str]) -> None:
    name, port, seconds, seed = words
    run = next(group[name] for group in LOADS.values() if name in group)
    measured = run(int(port), float(seconds), int(seed))
    print(json.dumps({"added": measured.added, "rate": measured.figures[RATE]}))


if __name__ == "__main__":
    main(sys.argv[1:])
