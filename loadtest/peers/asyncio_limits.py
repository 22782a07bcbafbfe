"""Limits on an event loop: hotcount beside limits and throttled-py.

Each load has a loop and a client of its own, as in asyncio_contenders.py. A contender is an async
context manager that yields a coroutine function of a name.

The limit is 1,000,000 hits a minute for each key. The first hit of a load must be admitted.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from hotcount import aio

from loadtest.peers import asyncio_contenders, keys
from loadtest.peers.rounds import TIMEOUT_S, WORST_GAP, Measured

AsyncCall = Callable[[str], Awaitable[object]]
Open = Callable[[int, int], AbstractAsyncContextManager[AsyncCall]]

KEYS = 1_000
PAUSE_S = 0.3
HEARTBEAT_S = 0.001


@asynccontextmanager
async def hotcount_hits(port: int, tasks: int) -> AsyncIterator[AsyncCall]:
    async with aio.Redis(f"redis://127.0.0.1:{port}", timeout=TIMEOUT_S) as store:
        limiter = aio.Limiter(store, "1000000/minute")
        if not await limiter.hit("first"):
            raise RuntimeError("a hit was not admitted")
        yield limiter.hit


@asynccontextmanager
async def throttled_hits(port: int, tasks: int) -> AsyncIterator[AsyncCall]:
    """throttled-py's gcra, over its own pool of redis.asyncio: a connection a task."""
    from throttled.asyncio import RedisStore, Throttled, per_min

    pool = {"max_connections": tasks + 1, "socket_timeout": TIMEOUT_S}
    store = RedisStore(
        server=f"redis://127.0.0.1:{port}/0", options={"CONNECTION_POOL_KWARGS": pool}
    )
    limiter = Throttled(using="gcra", quota=per_min(1_000_000), store=store)
    if (await limiter.limit("first")).limited:
        raise RuntimeError("a hit was not admitted")
    yield limiter.limit
    await store._backend.get_client().aclose()


@asynccontextmanager
async def limits_hits(port: int, tasks: int) -> AsyncIterator[AsyncCall]:
    """The fixed window of limits over redis.asyncio: a connection a task."""
    from limits import RateLimitItemPerMinute
    from limits.aio.strategies import FixedWindowRateLimiter
    from limits.storage import storage_from_string

    storage: Any = storage_from_string(
        f"async+redis://127.0.0.1:{port}",
        implementation="redispy",
        max_connections=tasks + 1,
        socket_timeout=TIMEOUT_S,
    )
    limiter, rate = FixedWindowRateLimiter(storage), RateLimitItemPerMinute(1_000_000)
    if not await limiter.hit(rate, "first"):
        raise RuntimeError("a hit was not admitted")
    yield lambda name: limiter.hit(rate, name)
    await storage.bridge.get_connection().aclose()


def singly(opened: Open, port: int, tasks: int, seconds: float, seed: int) -> Measured:
    """Calls one by one from `tasks` tasks."""
    return asyncio_contenders.singly(opened, "", port, tasks, KEYS, seconds, seed)


async def heartbeat(until: asyncio.Event) -> float:
    """The longest time between two beats, in seconds: one after each sleep of 1 ms."""
    worst, last = 0.0, time.perf_counter()
    while not until.is_set():
        await asyncio.sleep(HEARTBEAT_S)
        now = time.perf_counter()
        worst, last = max(worst, now - last), now
    return worst


def pause(port: int) -> None:
    """Stops the server's answers for PAUSE_S, through a plain socket.

    hotcount.Redis would check the reply by an ECHO, and wait for the reply to that too.
    """
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"CLIENT PAUSE %d ALL\r\n" % (PAUSE_S * 1_000))
        if connection.recv(100) != b"+OK\r\n":
            raise RuntimeError("the server was not paused")


def paused(opened: Open, port: int, tasks: int, seconds: float, seed: int) -> Measured:
    """The longest gap between beats of the loop while calls wait for a server paused for 0.3 s."""
    names = keys.uniform(KEYS, 10_007, seed)

    async def run() -> Measured:
        async with opened(port, tasks) as call:
            await asyncio.gather(*(call(name) for name in names[:tasks]))
            done = asyncio.Event()
            beats = asyncio.ensure_future(heartbeat(done))
            await asyncio.sleep(10 * HEARTBEAT_S)
            pause(port)
            started = time.perf_counter()
            await asyncio.gather(*(call(name) for name in names[:tasks]))
            took = time.perf_counter() - started
            done.set()
            if took < PAUSE_S / 2:
                raise RuntimeError(f"the server was not paused: {took:.3f} s")
            return Measured(tasks, {WORST_GAP: await beats * 1e6})

    return asyncio.run(run())
