"""hotcount as a storage of the `limits` library, and so of Flask-Limiter and slowapi.

    import hotcount.integrations.limits

    Limiter(get_remote_address, app=app, storage_uri="hotcount+redis://localhost:6379")

Importing this module registers the schemes `hotcount+redis`, `hotcount+rediss`,
`hotcount+redis+unix` and `hotcount+memory`, and each with `async+` before it for `limits.aio`. What
stands behind `hotcount+` is a URL of `hotcount.connect_store`; storage options are its options.

The strategies fixed-window and moving-window work, of any number of processes together and on the
store's clock. sliding-window-counter does not: `limits` refuses it when it is asked for. A hit is
one step of the store in one round trip, and every key has an expiry from its first hit on.
Differences to the storages of `limits`: a moving window takes limits up to 100,000; storages of
`hotcount+memory://` share nothing, and `hotcount+memory://NAME` is one of the process.

Needs the extra `limits`.
"""

from __future__ import annotations

import hashlib
import re
import time
from typing import Any, TypeVar

import limits.aio.storage
import limits.limits
import limits.storage

import hotcount
from hotcount import aio

__all__ = ["AsyncHotcountStorage", "HotcountStorage"]

T = TypeVar("T")
URLS = ("redis", "rediss", "redis+unix", "memory")
# So many rates, and so many expiries, are kept ready; one more, and they are made anew.
READY = 1024
# What `limits` puts behind a key: the number, the multiple and the unit of its rate.
RATE_OF_KEY = re.compile(r"/(\d+)/(\d+)/(second|minute|hour|day|month|year)$")
UNITS = {
    item.GRANULARITY.name: item.GRANULARITY.seconds for item in limits.limits.GRANULARITIES.values()
}


def _fit(key: str) -> str:
    """The key, or for one that is too long for a store what stands for it."""
    data = key.encode("utf-8", "surrogatepass")
    return key if len(data) <= 900 else f"sha256:{hashlib.sha256(data).hexdigest()}"


def _start_of(oldest_in: float | None, expiry: int) -> float:
    """When the oldest hit of a moving window was made, if it leaves in so many seconds."""
    return time.time() + (oldest_in or 0.0) - expiry


class _Ready:
    """The counters and limiters of a storage, made when they are first needed."""

    def __init__(self, store: Any, prefix: str, counter: Any, limiter: Any) -> None:
        self._store, self._prefix = store, prefix
        self._counter, self._limiter = counter, limiter
        self._counters: dict[int, Any] = {}
        self._limiters: dict[tuple[int, int], Any] = {}

    def counter(self, expiry: int = 1) -> Any:
        """All share their keys: the expiry is that of keys which an add makes."""
        if len(self._counters) > READY:
            self._counters.clear()
        if expiry not in self._counters:
            self._counters[expiry] = self._counter(self._store, self._prefix, expiry)
        return self._counters[expiry]

    def limiter(self, limit: int, expiry: int) -> Any:
        if len(self._limiters) > READY:
            self._limiters.clear()
        rate = (limit, expiry)
        if rate not in self._limiters:
            self._limiters[rate] = self._limiter(
                self._store,
                hotcount.Rate(limit, expiry, limit),
                algorithm="sliding_log",
                name=self._prefix,
            )
        return self._limiters[rate]

    def limiters_of(self, key: str) -> list[Any]:
        """Those that may have a state of the key: of the rate that it names, and those in use."""
        if found := RATE_OF_KEY.search(key):
            limit, multiple, unit = int(found[1]), int(found[2]), found[3]
            if 1 <= limit <= 100_000:
                self.limiter(limit, multiple * UNITS[unit])
        return list(self._limiters.values())

    def patterns(self) -> list[str]:
        """For SCAN: the keys of counters and of limiters."""
        escaped = re.sub(r"([*?\[\]\\])", r"\\\1", self._store.prefix + "\0" + self._prefix)
        store, _, prefix = escaped.partition("\0")
        return [f"{store}{prefix}:*", f"{store}limit:{prefix}:sliding_log:*"]


def _url(uri: str | None) -> str:
    text = (uri or "").removeprefix("async+")
    if not text.startswith("hotcount+"):
        raise hotcount.ConfigError(
            f"the storage's URI {text.partition(':')[0]!r} is not hotcount's"
        )
    return text.removeprefix("hotcount+")


class HotcountStorage(limits.storage.Storage, limits.storage.MovingWindowSupport):
    """A storage for `limits.strategies`. Safe from many threads and across fork.

    key_prefix stands before all keys: letters, digits, '_', '-' and '.'. options: those of
    `hotcount.connect_store`, such as timeout. Errors are hotcount's, or with wrap_exceptions
    `limits.errors.StorageError`.
    """

    STORAGE_SCHEME = [f"hotcount+{url}" for url in URLS]  # noqa: RUF012

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        key_prefix: str = "LIMITS",
        **options: Any,
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self.key_prefix = _check_prefix(key_prefix)
        self._url, self._options = _url(uri), options
        self._open()

    def _open(self) -> None:
        self.store = hotcount.connect_store(self._url, **self._options)
        self._ready = _Ready(self.store, self.key_prefix, hotcount.Counter, hotcount.Limiter)

    def _reset_memory(self) -> int:
        keys = _keys_to_drop(self._url, self.store)
        self._open()
        return keys

    @property
    def base_exceptions(self) -> type[Exception] | tuple[type[Exception], ...]:
        """What wrap_exceptions wraps."""
        return hotcount.HotcountError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Adds to the key's window, which begins with its first hit; the hits in it."""
        return int(self._ready.counter(expiry).add(_fit(key), amount))

    def get(self, key: str) -> int:
        """The hits in the key's fixed window."""
        return int(self._ready.counter().get(_fit(key)))

    def get_expiry(self, key: str) -> float:
        """When the key's fixed window ends, in seconds since the epoch; now if there is none."""
        return time.time() + (self._ready.counter().ttl(_fit(key)) or 0.0)

    def check(self) -> bool:
        """Whether the store answers."""
        try:
            self.store.ping()
        except hotcount.HotcountError:
            return False
        return True

    def reset(self) -> int | None:
        """Deletes all keys of this prefix, a thousand at a time; how many there were.

        NotImplementedError for a Memory store with a name, which others may use.
        """
        deleted = 0
        if isinstance(self.store, hotcount.Memory):
            return self._reset_memory()
        for pattern in self._ready.patterns():
            cursor: Any = b"0"
            while True:
                cursor, keys = self.store.execute("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                if keys:
                    deleted += int(self.store.execute("UNLINK", *keys))
                if int(cursor) == 0:
                    break
        return deleted

    def clear(self, key: str) -> None:
        """Forgets the key, of both strategies."""
        self._ready.counter().reset(_fit(key))
        for limiter in self._ready.limiters_of(key):
            limiter.reset(_fit(key))

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Takes amount from the moving window, or nothing."""
        return bool(self._ready.limiter(limit, expiry).hit(_fit(key), amount))

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """When the oldest hit of the moving window was made, and how many hits it has."""
        limiter = self._ready.limiter(limit, expiry)
        seen = limiter.peek(_fit(key))
        if seen.remaining == limit:
            return time.time(), 0
        if seen.remaining > 0:
            # One more than fits: it is admitted when the oldest hit leaves.
            seen = limiter.test(_fit(key), seen.remaining + 1)
        return _start_of(seen.retry_after, expiry), limit - seen.remaining


class AsyncHotcountStorage(limits.aio.storage.Storage, limits.aio.storage.MovingWindowSupport):
    """HotcountStorage for `limits.aio.strategies`: its calls never block the loop."""

    STORAGE_SCHEME = [f"async+hotcount+{url}" for url in URLS]  # noqa: RUF012

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        key_prefix: str = "LIMITS",
        **options: Any,
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self.key_prefix = _check_prefix(key_prefix)
        self._url, self._options = _url(uri), options
        self._open()

    def _open(self) -> None:
        self.store = aio.connect_store(self._url, **self._options)
        self._ready = _Ready(self.store, self.key_prefix, aio.Counter, aio.Limiter)

    def _reset_memory(self) -> int:
        keys = _keys_to_drop(self._url, self.store)
        self._open()
        return keys

    @property
    def base_exceptions(self) -> type[Exception] | tuple[type[Exception], ...]:
        """As HotcountStorage has it, and so the methods below."""
        return hotcount.HotcountError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        return int(await self._ready.counter(expiry).add(_fit(key), amount))

    async def get(self, key: str) -> int:
        return int(await self._ready.counter().get(_fit(key)))

    async def get_expiry(self, key: str) -> float:
        return time.time() + (await self._ready.counter().ttl(_fit(key)) or 0.0)

    async def check(self) -> bool:
        try:
            await self.store.ping()
        except hotcount.HotcountError:
            return False
        return True

    async def reset(self) -> int | None:
        deleted = 0
        if isinstance(self.store, aio.Memory):
            return self._reset_memory()
        for pattern in self._ready.patterns():
            cursor: Any = b"0"
            while True:
                found = await self.store.execute("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                cursor, keys = found
                if keys:
                    deleted += int(await self.store.execute("UNLINK", *keys))
                if int(cursor) == 0:
                    break
        return deleted

    async def clear(self, key: str) -> None:
        await self._ready.counter().reset(_fit(key))
        for limiter in self._ready.limiters_of(key):
            await limiter.reset(_fit(key))

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool(await self._ready.limiter(limit, expiry).hit(_fit(key), amount))

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        limiter = self._ready.limiter(limit, expiry)
        seen = await limiter.peek(_fit(key))
        if seen.remaining == limit:
            return time.time(), 0
        if seen.remaining > 0:
            seen = await limiter.test(_fit(key), seen.remaining + 1)
        return _start_of(seen.retry_after, expiry), limit - seen.remaining


def _keys_to_drop(url: str, store: Any) -> int:
    """How many keys go with a Memory store that is this storage's alone."""
    if url.removeprefix("memory://").partition("?")[0]:
        raise NotImplementedError("a Memory store with a name is not this storage's to empty")
    return int(store.stats()["keys"])


def _check_prefix(prefix: str) -> str:
    if re.fullmatch(r"[\w.-]{1,100}", prefix, re.ASCII):
        return prefix
    raise hotcount.ConfigError(
        f"key_prefix is {prefix!r}; it takes 1 to 100 letters, digits, '_', '-' and '.'"
    )
