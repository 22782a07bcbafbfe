"""Contenders on an event loop: tasks that add one by one, on asyncio's own loop.

Each load has a loop and a client of its own, opened and warmed up before the clock starts. A
contender is an async context manager around `add`, which takes a whole key (KEY_PREFIX and name;
hotcount's without the prefix, which its counter puts before it) and is awaited.

Every client is one client shared by all tasks, as each library's documentation has it, in the
setting in which it was fastest here with 64 and 256 tasks.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import hotcount
from hotcount import aio

from loadtest.peers import keys
from loadtest.peers.contenders import WARM, glide_client
from loadtest.peers.rounds import KEY_PREFIX, RATE, TIMEOUT_S, Measured

AsyncAdd = Callable[[str], Awaitable[object]]
# Takes the server's port and the number of tasks.
Open = Callable[[int, int], AbstractAsyncContextManager[AsyncAdd]]


@asynccontextmanager
async def hotcount_at(url: str, **options: Any) -> AsyncIterator[AsyncAdd]:
    store = aio.Redis(url, timeout=TIMEOUT_S)
    try:
        # The prefix that every other contender's keys have as part of them.
        yield aio.Counter(store, prefix=KEY_PREFIX.rstrip(":"), **options).add
    finally:
        await store.aclose()


def hotcount_aio(port: int, tasks: int, **options: Any) -> AbstractAsyncContextManager[AsyncAdd]:
    return hotcount_at(f"redis://127.0.0.1:{port}", **options)


def hotcount_queued(port: int, tasks: int) -> AbstractAsyncContextManager[AsyncAdd]:
    return hotcount_aio(port, tasks, retry=hotcount.RetryQueue())


def redis_client(port: int, tasks: int) -> Any:
    """redis.asyncio with a connection for each task, which was faster than a pool of 8 to 64 with
    256 tasks. One connection without a pool is faster for a single task, and much slower for 64. It
    parses with hiredis.
    """
    import redis.asyncio

    return redis.asyncio.Redis(
        host="127.0.0.1",
        port=port,
        max_connections=tasks,
        single_connection_client=tasks == 1,
        socket_timeout=TIMEOUT_S,
    )


@asynccontextmanager
async def redis_asyncio(port: int, tasks: int) -> AsyncIterator[AsyncAdd]:
    client = redis_client(port, tasks)
    try:
        yield client.incr
    finally:
        await client.aclose()


@asynccontextmanager
async def glide(port: int, tasks: int, kind: str = "Glide") -> AsyncIterator[AsyncAdd]:
    """One client, which multiplexes over one connection; 2 and 4 clients were no faster."""
    import glide

    client = await glide_client(glide, port, kind)
    try:
        yield client.incr
    finally:
        await client.close()


async def drive(add: AsyncAdd, names: list[str], tasks: int, seconds: float) -> Measured:
    """Adds from all tasks for `seconds`; the tasks take their keys in turn from one sequence."""
    turn = itertools.cycle(names)
    stopped = False

    async def warm() -> None:
        for name in itertools.islice(turn, WARM):
            await add(name)

    async def work() -> int:
        count = 0
        for name in turn:
            await add(name)
            count += 1
            if stopped:
                break
        return count

    # All at once: a pool makes as many connections as it will need.
    await asyncio.gather(*(warm() for _ in range(tasks)))
    started = time.perf_counter()
    workers = [asyncio.ensure_future(work()) for _ in range(tasks)]
    await asyncio.sleep(seconds)
    stopped = True
    added = sum(await asyncio.gather(*workers))
    elapsed = time.perf_counter() - started
    return Measured(added + tasks * WARM, {RATE: added / elapsed})


def singly(
    opened: Open,
    prefix: str,
    port: int,
    tasks: int,
    key_count: int,
    seconds: float,
    seed: int,
) -> Measured:
    """Adds of 1, one by one, to keys drawn uniformly, from `tasks` tasks."""
    # A prime: the sequence that the tasks share never falls into step with their number.
    names = [prefix + name for name in keys.uniform(key_count, 10_007, seed)]

    async def run() -> Measured:
        async with opened(port, tasks) as add:
            return await drive(add, names, tasks, seconds)

    return asyncio.run(run())
