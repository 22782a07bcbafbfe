"""python -m tests.support.holding_program URL PREFIX WHAT: a process that holds places.

hold: takes one, says so, and waits until it is killed. storm: says "ready", waits for a line, and
takes places in threads and tasks; each holder counts itself in and out in Redis. The first ones, of
whatever processes, wait for each other inside, so that the limit is reached. Prints the most that
it saw inside.
"""

import asyncio
import sys
import threading
import time

import hotcount
from hotcount import aio

from tests.support.together import join

LIMIT = 3
TURNS = 15


def hold(redis: hotcount.Redis) -> None:
    limit = hotcount.ConcurrencyLimit(redis, 1, lease=1)
    assert limit.acquire("k", timeout=0)
    print("held", flush=True)
    sys.stdin.read()


def storm(redis: hotcount.Redis, prefix: str) -> None:
    inside, entered = f"{prefix}inside", f"{prefix}entered"
    seen: list[int] = []

    def enter() -> None:
        seen.append(redis.execute("INCR", inside))
        redis.execute("INCR", entered)

    def threaded() -> None:
        limit = hotcount.ConcurrencyLimit(redis, LIMIT, lease=600)
        for _ in range(TURNS):
            with limit.acquire("k"):
                enter()
                while int(redis.execute("GET", entered)) < LIMIT:
                    time.sleep(0.001)
                redis.execute("DECR", inside)

    async def task(limit: aio.ConcurrencyLimit) -> None:
        for _ in range(TURNS):
            async with limit.acquire("k"):
                enter()
                while int(redis.execute("GET", entered)) < LIMIT:
                    await asyncio.sleep(0.001)
                redis.execute("DECR", inside)

    async def tasks() -> None:
        limit = aio.ConcurrencyLimit(redis, LIMIT, lease=600)
        await asyncio.gather(task(limit), task(limit))

    workers = [threading.Thread(target=threaded) for _ in range(3)]
    workers.append(threading.Thread(target=lambda: asyncio.run(tasks())))
    redis.ping()
    print("ready", flush=True)
    sys.stdin.readline()
    join(workers)
    assert len(seen) == 5 * TURNS
    print(max(seen))


if __name__ == "__main__":
    url, prefix, what = sys.argv[1:]
    with hotcount.Redis(url, prefix=prefix, timeout=60) as redis:
        if what == "hold":
            hold(redis)
        else:
            storm(redis, prefix)
