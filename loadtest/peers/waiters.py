"""The cost of tasks that wait for a limit: hotcount over Redis beside aiolimiter.

    .venv/bin/python -m loadtest.peers.waiters
    .venv/bin/python -m loadtest.peers.waiters --tasks 1000 --rounds 1 --rate '50/second burst 1'

--tasks tasks call acquire() in a loop, at one limit. aiolimiter limits one process and needs no
server; hotcount's limit is in a private Redis without other clients. Printed for each number of
tasks, as the median (least .. most) of --rounds runs that alternate: admissions a second, and the
share of a core that the process and Redis took. Markdown on stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from hotcount import aio
from hotcount.rate import Rate

from loadtest.peers.private_servers import start_redis

# Admissions a second, and shares of a core: of this process, of Redis.
Figures = tuple[float, float, float]
FORMS = ((0, ".1f"), (1, ".1%"), (2, ".1%"))


async def server_seconds(store: aio.Redis) -> float:
    said: bytes = await store.execute("INFO", "cpu")
    return sum(map(float, re.findall(rb"used_cpu_(?:sys|user):([\d.]+)", said)))


async def measure(
    acquire: Callable[[], Awaitable[object]], tasks: int, seconds: float, store: aio.Redis
) -> Figures:
    admitted = 0

    async def wait() -> None:
        nonlocal admitted
        while True:
            await acquire()
            admitted += 1

    waiting = [asyncio.create_task(wait()) for _ in range(tasks)]
    await asyncio.sleep(3)  # All wait, and a burst is spent: 10,000 tasks take a while to begin.
    first, server, spent, began = (
        admitted,
        await server_seconds(store),
        time.process_time(),
        time.monotonic(),
    )
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    figures = (
        (admitted - first) / took,
        (time.process_time() - spent) / took,
        (await server_seconds(store) - server) / took,
    )
    for each in waiting:
        each.cancel()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    failed = [one for one in ended if not isinstance(one, asyncio.CancelledError)]
    if failed:
        raise SystemExit(f"{len(failed):,} of {tasks:,} tasks failed: {failed[0]!r}")
    return figures


async def hotcount_waits(url: str, rate: str, tasks: int, seconds: float) -> Figures:
    async with aio.Redis(url) as store:
        limiter = aio.Limiter(store, rate)
        return await measure(lambda: limiter.acquire("api"), tasks, seconds, store)


async def aiolimiter_waits(url: str, rate: str, tasks: int, seconds: float) -> Figures:
    from aiolimiter import AsyncLimiter

    limit = Rate.parse(rate)
    async with aio.Redis(url) as store:
        limiter = AsyncLimiter(limit.limit, limit.period)
        return await measure(limiter.acquire, tasks, seconds, store)


def shown(values: list[float], form: str) -> str:
    low, middle, high = (
        format(value, form) for value in (min(values), statistics.median(values), max(values))
    )
    return middle if low == high else f"{middle} ({low} .. {high})"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--rate", default="50/second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of each run")
    chosen = parser.parse_args(words)
    print("| tasks | hotcount: admitted/s | process | Redis | aiolimiter: admitted/s | process |")
    print("|---|---|---|---|---|---|")
    with ExitStack() as stack:
        redis = start_redis(stack)
        for tasks in chosen.tasks:
            ours, theirs = [], []
            for _ in range(chosen.rounds):
                args = (redis.url, chosen.rate, tasks, chosen.seconds)
                ours.append(asyncio.run(hotcount_waits(*args)))
                theirs.append(asyncio.run(aiolimiter_waits(*args)))
            cells = [
                *(shown([run[i] for run in ours], form) for i, form in FORMS),
                *(shown([run[i] for run in theirs], form) for i, form in FORMS[:2]),
            ]
            print(f"| {tasks:,} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
