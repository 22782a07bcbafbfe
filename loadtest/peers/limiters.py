"""Blocking limiters: hotcount beside limits and throttled-py, over one Redis and in memory; and
the server's time for a hit.

Every hit costs one unit, under a limit that no load reaches. The first hit of each contender is
checked: if the limiter refuses it, the run fails. Each peer uses its algorithm nearest to
hotcount's gcra: throttled-py uses its gcra; limits has none and uses its fixed window, its fastest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import hotcount

from loadtest.peers import keys
from loadtest.peers.contenders import Add
from loadtest.peers.rounds import SERVER_US, TIMEOUT_S, Measured

PER_MINUTE = 1_000_000_000


def checked(hit: Callable[[str], object]) -> Callable[[str], object]:
    """Returns `hit` after one call of it, which must be admitted."""
    if not hit("first"):
        raise RuntimeError("a hit was not admitted")
    return hit


class Limiter:
    """A contender of contenders.singly; its threads call hit()."""

    hit: Callable[[str], object]

    def key(self, name: str) -> str:
        return name

    def adder(self, thread: int) -> Add:
        return self.hit

    def add_batch(self, names: list[str]) -> object:
        raise NotImplementedError

    def close(self) -> None:
        """Leaves the connections to the end of the process."""


class Hotcount(Limiter):
    """One limiter, shared by all threads: over Redis, or in memory with port 0."""

    def __init__(self, port: int) -> None:
        url = f"redis://127.0.0.1:{port}" if port else "memory://"
        self._store = hotcount.connect(url, timeout=TIMEOUT_S) if port else hotcount.connect(url)
        self.hit = checked(hotcount.Limiter(self._store, f"{PER_MINUTE}/minute").hit)

    def close(self) -> None:
        self._store.close()


class Limits(Limiter):
    """limits with its fixed window."""

    def __init__(self, port: int) -> None:
        from limits import RateLimitItemPerMinute
        from limits.storage import storage_from_string
        from limits.strategies import FixedWindowRateLimiter

        storage = storage_from_string(f"redis://127.0.0.1:{port}" if port else "memory://")
        limiter, rate = FixedWindowRateLimiter(storage), RateLimitItemPerMinute(PER_MINUTE)
        self.hit = checked(lambda name: limiter.hit(rate, name))


class Throttled(Limiter):
    """throttled-py with its gcra."""

    def __init__(self, port: int) -> None:
        import throttled

        store: Any = (
            throttled.RedisStore(server=f"redis://127.0.0.1:{port}/0")
            if port
            else throttled.MemoryStore(options={"MAX_SIZE": 100_000})
        )
        quota = throttled.per_min(PER_MINUTE)
        limiter = throttled.Throttled(using="gcra", quota=quota, store=store)
        if limiter.limit("first").limited:
            raise RuntimeError("a hit was not admitted")
        self.hit = limiter.limit


def server_time(batch: int, port: int, seconds: float, seed: int) -> Measured:
    """The server's time for each key: one thread calls a script for `batch` keys at a time."""
    names = keys.uniform(1_000, batch, seed)
    with hotcount.Redis(f"redis://127.0.0.1:{port}", timeout=TIMEOUT_S) as store:
        limiter = hotcount.Limiter(store, f"{PER_MINUTE}/minute")
        limiter.hit_many([f"k{index}" for index in range(1_000)])
        store.execute("CONFIG", "RESETSTAT")
        hits, ends_at = 0, time.perf_counter() + seconds
        while time.perf_counter() < ends_at:
            if batch == 1:
                limiter.hit(names[0])
            else:
                limiter.hit_many(names)
            hits += batch
        spent = re.findall(
            r"cmdstat_evalsha:calls=\d+,usec=(\d+)", store.execute("INFO", "commandstats").decode()
        )
    return Measured(hits, {SERVER_US: int(spent[0]) / hits})
