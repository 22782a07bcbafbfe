"""Voters in Python: threads, asyncio tasks or processes that vote for one item in a closed loop.

    python -m loadtest.peers.python_votes URL STRATEGY threads|tasks WIDTH PROCESSES SECONDS

Makes tables of its own in the database, or uses what an earlier run has left, and prints one line
of JSON: `votes` acknowledged in `seconds` after a warm-up, their latencies' 99th percentile in us,
and `right`: whether the item's count grew by all that were acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import sys
import threading
import time
from typing import Any

import hotcount
import hotcount.aio

WARM_UP_S = 0.3
TIMEOUT_S = 30.0
ITEM = 1
TABLES: dict[str, Any] = {"item_table": "python_item", "vote_table": "python_vote"}


class Voter:
    """One closed loop's measurements."""

    def __init__(self) -> None:
        self.sent = 0
        self.votes = 0
        self.latencies: list[float] = []

    def note(self, began: float, opens: float, closes: float) -> None:
        now = time.perf_counter()
        self.sent += 1
        if opens <= now < closes:
            self.votes += 1
            self.latencies.append(now - began)


def user() -> int:
    return random.getrandbits(62)


def with_threads(url: str, strategy: Any, width: int, seconds: float) -> list[Voter]:
    voters = [Voter() for _ in range(width)]
    with hotcount.Votes(
        hotcount.Database(url, max_writers=width), strategy=strategy, **TABLES
    ) as v:
        opens = time.perf_counter() + WARM_UP_S
        closes = opens + seconds

        def loop(voter: Voter) -> None:
            began = time.perf_counter()
            while began < closes:
                v.cast(ITEM, user(), timeout=TIMEOUT_S)
                voter.note(began, opens, closes)
                began = time.perf_counter()

        threads = [threading.Thread(target=loop, args=(voter,)) for voter in voters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return voters


def with_tasks(url: str, strategy: Any, width: int, seconds: float) -> list[Voter]:
    voters = [Voter() for _ in range(width)]

    async def main() -> None:
        async with hotcount.aio.Votes(url, strategy=strategy, **TABLES) as v:
            opens = time.perf_counter() + WARM_UP_S
            closes = opens + seconds

            async def loop(voter: Voter) -> None:
                began = time.perf_counter()
                while began < closes:
                    await v.cast(ITEM, user(), timeout=TIMEOUT_S)
                    voter.note(began, opens, closes)
                    began = time.perf_counter()

            await asyncio.gather(*(loop(voter) for voter in voters))

    asyncio.run(main())
    return voters


MODES = {"threads": with_threads, "tasks": with_tasks}


def work(words: tuple[str, str, str, int, float], results: Any) -> None:
    url, strategy, mode, width, seconds = words
    voters = MODES[mode](url, strategy, width, seconds)
    results.put(
        (
            sum(voter.sent for voter in voters),
            sum(voter.votes for voter in voters),
            [latency for voter in voters for latency in voter.latencies],
        )
    )


def run(
    url: str, strategy: Any, mode: str, width: int, processes: int, seconds: float
) -> dict[str, Any]:
    with hotcount.Votes(url, strategy=strategy, **TABLES) as votes:
        votes.create_tables()
        votes.add_items([ITEM])
        before = int(votes.count(ITEM))
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    words = (url, strategy, mode, width, seconds)
    workers = [context.Process(target=work, args=(words, results)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    parts = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    with hotcount.Votes(url, strategy=strategy, **TABLES) as votes:
        grown = int(votes.count(ITEM)) - before
    latencies = sorted(latency for part in parts for latency in part[2])
    if not latencies:
        sys.exit(f"no vote was answered within {seconds} s: the database stood still")
    return {
        "votes": sum(part[1] for part in parts),
        "seconds": seconds,
        "p99_us": 1e6 * latencies[int(0.99 * (len(latencies) - 1))],
        "right": grown == sum(part[0] for part in parts),
    }


if __name__ == "__main__":
    target, chosen, mode, width, processes, seconds = sys.argv[1:]
    print(json.dumps(run(target, chosen, mode, int(width), int(processes), float(seconds))))
