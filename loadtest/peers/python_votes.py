"""Voters in Python: threads, asyncio tasks or processes that vote in a closed loop.

    python -m loadtest.peers.python_votes URL STRATEGY threads|tasks WIDTH PROCESSES SECONDS \
        [--items 10000] [--reads 0.15]

One item, unless told otherwise: then items are drawn by Zipf's law with exponent 0.99. Makes tables
of its own in the database, or uses what an earlier run has left, and prints one line of JSON:
`votes` acknowledged and `reads` answered in `seconds` after a warm-up, the 99th percentiles of
their latencies in us, and `right`: whether each item's count grew by the votes acknowledged.

Strategy "alone" is another client's (psycopg, PyMySQL) and nothing but the vote's row: an
autocommit INSERT for each vote, on a connection for each thread. It has no tasks and no reads.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import hotcount
import hotcount.aio

from loadtest.peers.other_clients import connect

WARM_UP_S = 0.3
TIMEOUT_S = 30.0
ITEM = 1
ZIPF_EXPONENT = 0.99
DRAWS = 10_007
ALONE = "alone"
TABLES: dict[str, Any] = {"item_table": "python_item", "vote_table": "python_vote"}
# Returns when the voters of all processes are ready.
Start = Callable[[], object]
INSERT = "INSERT INTO python_vote (item_id, user_id, val, prev) VALUES (%s, %s, 1, 0)"


class Voter:
    """One closed loop: what it votes for, and its measurements."""

    def __init__(self, items: int, reads: float) -> None:
        self.acknowledged: Counter[int] = Counter()
        self.votes: list[float] = []
        self.reads: list[float] = []
        if items == 1:
            drawn = [ITEM]
        else:
            weights = list(
                itertools.accumulate(1 / rank**ZIPF_EXPONENT for rank in range(1, items + 1))
            )
            drawn = random.choices(range(1, items + 1), cum_weights=weights, k=DRAWS)
        self._items = itertools.cycle(drawn)
        self._reads = reads

    def next(self) -> tuple[int, bool]:
        """An item, and whether to read its count instead of voting."""
        return next(self._items), self._reads > 0 and random.random() < self._reads

    def note(self, item: int, reads: bool, began: float, opens: float, closes: float) -> None:
        now = time.perf_counter()
        if not reads:
            self.acknowledged[item] += 1
        if opens <= now < closes:
            (self.reads if reads else self.votes).append(now - began)


def user() -> int:
    return random.getrandbits(62)


def run_threads(
    voters: list[Voter], seconds: float, start: Start, calls: list[Callable[[int, bool], object]]
) -> None:
    """calls: each thread's own way to vote and read."""
    start()
    opens = time.perf_counter() + WARM_UP_S
    closes = opens + seconds
    failures: list[BaseException] = []

    def loop(voter: Voter, call: Callable[[int, bool], object]) -> None:
        try:
            began = time.perf_counter()
            while began < closes:
                item, reads = voter.next()
                call(item, reads)
                voter.note(item, reads, began, opens, closes)
                began = time.perf_counter()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=loop, args=pair) for pair in zip(voters, calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def with_threads(
    url: str, strategy: Any, voters: list[Voter], seconds: float, start: Start
) -> None:
    width = len(voters)
    with hotcount.Votes(
        hotcount.Database(url, max_writers=width), strategy=strategy, **TABLES
    ) as v:

        def call(item: int, reads: bool) -> object:
            if reads:
                return v.count(item, timeout=TIMEOUT_S)
            return v.cast(item, user(), timeout=TIMEOUT_S)

        v.count(ITEM, timeout=TIMEOUT_S)  # It is connected.
        run_threads(voters, seconds, start, [call] * width)


def with_another_client(
    url: str, _strategy: Any, voters: list[Voter], seconds: float, start: Start
) -> None:
    connections = [connect(url, autocommit=True) for _ in voters]

    def caller(cursor: Any) -> Callable[[int, bool], object]:
        return lambda item, _reads: cursor.execute(INSERT, (item, user()))

    run_threads(voters, seconds, start, [caller(one.cursor()) for one in connections])
    for connection in connections:
        connection.close()


def with_tasks(url: str, strategy: Any, voters: list[Voter], seconds: float, start: Start) -> None:
    async def main() -> None:
        async with hotcount.aio.Votes(url, strategy=strategy, **TABLES) as v:
            await v.count(ITEM, timeout=TIMEOUT_S)  # It is connected.
            start()
            opens = time.perf_counter() + WARM_UP_S
            closes = opens + seconds

            async def loop(voter: Voter) -> None:
                began = time.perf_counter()
                while began < closes:
                    item, reads = voter.next()
                    if reads:
                        await v.count(item, timeout=TIMEOUT_S)
                    else:
                        await v.cast(item, user(), timeout=TIMEOUT_S)
                    voter.note(item, reads, began, opens, closes)
                    began = time.perf_counter()

            await asyncio.gather(*(loop(voter) for voter in voters))

    asyncio.run(main())


MODES = {"threads": with_threads, "tasks": with_tasks}


def work(chosen: argparse.Namespace, gate: Any, results: Any) -> None:
    voters = [Voter(chosen.items, chosen.reads) for _ in range(chosen.width)]
    run = with_another_client if chosen.strategy == ALONE else MODES[chosen.mode]
    try:
        run(chosen.url, chosen.strategy, voters, chosen.seconds, gate.wait)
    except BaseException as failure:
        gate.abort()
        results.put(repr(failure))
        return
    results.put(
        (
            sum((voter.acknowledged for voter in voters), Counter()),
            [latency for voter in voters for latency in voter.votes],
            [latency for voter in voters for latency in voter.reads],
        )
    )


def p99_us(latencies: list[float]) -> float:
    return 1e6 * sorted(latencies)[int(0.99 * (len(latencies) - 1))] if latencies else 0.0


def counts(votes: hotcount.Votes, items: int) -> list[int]:
    return [int(count) for count in votes.count_many(list(range(1, items + 1)))]


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    strategy: Any = "naive" if chosen.strategy == ALONE else chosen.strategy
    with hotcount.Votes(chosen.url, strategy=strategy, **TABLES) as votes:
        votes.create_tables()
        votes.add_items(range(1, chosen.items + 1))
        before = counts(votes, chosen.items)
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    gate = context.Barrier(chosen.processes, timeout=TIMEOUT_S)
    workers = [
        context.Process(target=work, args=(chosen, gate, results)) for _ in range(chosen.processes)
    ]
    for worker in workers:
        worker.start()
    parts = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    failures = [part for part in parts if isinstance(part, str)]
    if failures:
        sys.exit(f"voters failed: {'; '.join(failures)}")
    acknowledged: Counter[int] = sum((part[0] for part in parts), Counter())
    with hotcount.Votes(chosen.url, strategy=strategy, **TABLES) as votes:
        if chosen.strategy == ALONE:
            votes.reconcile()  # Nobody has counted them.
        grown = [after - earlier for after, earlier in zip(counts(votes, chosen.items), before)]
    latencies = [latency for part in parts for latency in part[1]]
    if not latencies:
        sys.exit(f"no vote was answered within {chosen.seconds} s: the database stood still")
    reads = [latency for part in parts for latency in part[2]]
    return {
        "votes": len(latencies),
        "reads": len(reads),
        "seconds": chosen.seconds,
        "p99_us": p99_us(latencies),
        "read_p99_us": p99_us(reads),
        "right": grown == [acknowledged[item] for item in range(1, chosen.items + 1)],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.peers.python_votes")
    parser.add_argument("url")
    parser.add_argument("strategy", choices=["naive", "slotted", "batched", ALONE])
    parser.add_argument("mode", choices=list(MODES))
    parser.add_argument("width", type=int)
    parser.add_argument("processes", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--items", type=int, default=1)
    parser.add_argument("--reads", type=float, default=0.0, help="share of the calls")
    return parser.parse_args()


if __name__ == "__main__":
    print(json.dumps(run(arguments())))
