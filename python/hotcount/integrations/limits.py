"""hotcount as a storage of the `limits` library, and so of Flask-Limiter and slowapi.

Importing this module registers the schemes `hotcount+redis`, `hotcount+rediss`,
`hotcount+redis+unix` and `hotcount+memory`, and each with `async+` before it for `limits.aio`. The
rest of the URI is a URL of `hotcount.connect_store`; storage options are its options.

The strategies fixed-window, moving-window and sliding-window-counter work, for any number of
processes together and on the store's clock. A hit is one step of the store in one round trip, and
every key has an expiry from its first hit on. Differences to the storages of `limits`: a moving
window takes limits up to 100,000; the windows of sliding-window-counter begin at multiples of their
length; storages of `hotcount+memory://` share nothing, and `hotcount+memory://NAME` is one of the
process. moving-window and sliding-window-counter take periods of up to 366 days. While the store is
away, one call a second of a storage asks it and waits for its timeout; the others fail at once with
UnavailableError. Needs the extra `limits`.

Example::

    import hotcount.integrations.limits

    Limiter(get_remote_address, app=app, storage_uri="hotcount+redis://localhost:6379")
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast

import limits.aio.storage
import limits.limits
import limits.storage
from limits.storage.base import TimestampedSlidingWindow

import hotcount
from hotcount import aio

__all__ = ["AsyncHotcountStorage", "HotcountStorage"]

URLS = ("redis", "rediss", "redis+unix", "memory")
# The maximum of cached limiters, and of cached counters; beyond it the cache is cleared.
READY = 1024
# `limits` rounds the share of the previous window down to whole hits; hotcount's sliding window
# counts fractions. So a hit costs this many parts, and the limit is PARTS - 1 parts higher. Larger
# limits have fewer parts, because parts times limit is at most MOST_PARTS.
PARTS = 10**6
MOST_PARTS = 10**9
P = ParamSpec("P")
T = TypeVar("T")
# A method of both storages: it yields calls of the store, and gets their results.
Steps = Generator[Any, Any, T]
# Hits and seconds of the previous window, and hits and seconds of the current window.
Window = tuple[int, float, int, float]
EMPTY: Window = (0, 0.0, 0, 0.0)
# The rate that `limits` appends to a key: number, multiple and unit.
RATE_OF_KEY = re.compile(r"/(\d+)/(\d+)/(second|minute|hour|day|month|year)$")
UNITS = {
    item.GRANULARITY.name: item.GRANULARITY.seconds for item in limits.limits.GRANULARITIES.values()
}


def _fit(key: str) -> str:
    """The key, or the hash of a key that is too long for a store."""
    data = key.encode("utf-8", "surrogatepass")
    return key if len(data) <= 900 else f"sha256:{hashlib.sha256(data).hexdigest()}"


def _start_of(oldest_in: float | None, expiry: int) -> float:
    """When the oldest hit of a moving window was made, if it leaves in so many seconds."""
    return time.time() + (oldest_in or 0.0) - expiry


Algorithm = Literal["sliding_log", "sliding_window"]


class _Ready:
    """The counters and limiters of a storage, made when they are first needed.

    Threads share it: each step on a table is one that the interpreter does not interrupt.
    """

    def __init__(self, store: Any, prefix: str, counter: Any, limiter: Any) -> None:
        self._store, self._prefix = store, prefix
        self._counter, self._limiter = counter, limiter
        self._counters: dict[int, Any] = {}
        self._limiters: dict[tuple[Algorithm, int, int], Any] = {}

    def counter(self, expiry: int = 1) -> Any:
        """The counter whose adds make keys of this expiry; all counters share the keys."""
        if (counter := self._counters.get(expiry)) is None:
            if len(self._counters) > READY:
                self._counters.clear()
            counter = self._counters[expiry] = self._counter(self._store, self._prefix, expiry)
        return counter

    def moving_window(self, limit: int, expiry: int) -> Any:
        return self._limiter_of("sliding_log", limit, expiry)

    def sliding_window(self, limit: int, expiry: int) -> Any:
        return self._limiter_of("sliding_window", limit, expiry)

    def moving_windows_of(self, key: str) -> list[Any]:
        """The limiters that may have a state of the key: that of its rate, and those in use."""
        if (rate := _rate_of(key)) and 1 <= rate[0] <= 100_000:
            self.moving_window(*rate)
        return [one for (kind, *_), one in self._limiters.copy().items() if kind == "sliding_log"]

    def sliding_windows_of(self, key: str, expiry: int) -> list[tuple[int, Any]]:
        """Limits and limiters: of the key's rate; if it names none, all in use of this expiry."""
        if (rate := _rate_of(key)) and rate[0] >= 1 and rate[1] == expiry:
            return [(rate[0], self.sliding_window(*rate))]
        return [
            (limit, one)
            for (kind, limit, period), one in self._limiters.copy().items()
            if kind == "sliding_window" and period == expiry
        ]

    def _limiter_of(self, algorithm: Algorithm, limit: int, expiry: int) -> Any:
        rate = (algorithm, limit, expiry)
        if (limiter := self._limiters.get(rate)) is None:
            if len(self._limiters) > READY:
                self._limiters.clear()
            parts = _parts(limit) if algorithm == "sliding_window" else 1
            most = limit * parts + parts - 1
            limiter = self._limiters[rate] = self._limiter(
                self._store,
                hotcount.Rate(most, expiry, most),
                algorithm=algorithm,
                name=self._prefix,
            )
        return limiter

    def patterns(self) -> list[str]:
        """For SCAN: the keys of counters and of limiters."""
        escaped = re.sub(r"([*?\[\]\\])", r"\\\1", self._store.prefix + "\0" + self._prefix)
        store, _, prefix = escaped.partition("\0")
        kinds = ("sliding_log", "sliding_window")
        return [f"{store}{prefix}:*", *(f"{store}limit:{prefix}:{kind}:*" for kind in kinds)]


def _rate_of(key: str) -> tuple[int, int] | None:
    """The limit and the expiry that a key of `limits` names."""
    found = RATE_OF_KEY.search(key)
    return (int(found[1]), int(found[2]) * UNITS[found[3]]) if found else None


def _parts(limit: int) -> int:
    """In how many parts a sliding window of this limit counts a hit."""
    return max(1, min(PARTS, MOST_PARTS // limit))


def _window_of(seen: Any, limit: int, expiry: int) -> Window:
    """A sliding window as `limits` reports it, with all hits in the current window.

    seen: the decision on one hit more than fits, or on one hit if all fit.
    """
    held = limit - int(seen.remaining) // _parts(limit)
    if held == 0:
        return EMPTY
    # `limits` takes the remainder by the expiry for the time until the next hit fits.
    return 0, 0.0, held, expiry + min(seen.retry_after or 0.0, expiry - 0.001)


def _url(uri: str | None) -> str:
    text = (uri or "").removeprefix("async+")
    if not text.startswith("hotcount+"):
        raise hotcount.ConfigError(
            f"the storage's URI {text.partition(':')[0]!r} is not hotcount's"
        )
    return text.removeprefix("hotcount+")


# The errors that begin an outage.
AWAY = (
    hotcount.UnavailableError,
    hotcount.DeadlineError,
    hotcount.OutcomeUnknownError,
    hotcount.CapacityError,
)
# Seconds for which other calls get the error of a failed call, and do not ask the store.
ASK_AGAIN = 1.0


class _Outage:
    """The last failure of a storage's store. Only one call a second waits for a store that is away.

    Other libraries call a storage again and again while it fails, and their users wait each time.
    """

    def __init__(self) -> None:
        self._error: hotcount.HotcountError | None = None
        self._ask_at = 0.0

    def __enter__(self) -> None:
        error = self._error  # Read once: the thread that asks may be answered meanwhile.
        if error is None:
            return
        now = time.monotonic()
        if now < self._ask_at:
            raise hotcount.UnavailableError(
                f"{error.server} is away: less than a second ago a call of this storage "
                f"ended with {type(error).__name__}; nothing was applied"
            )
        self._ask_at = now + ASK_AGAIN

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, AWAY):
            self._ask_at = time.monotonic() + ASK_AGAIN
            self._error = error
        elif error is None or isinstance(error, hotcount.HotcountError):
            self._error = None  # It has answered.


def _now(method: Callable[Concatenate[Any, P], Steps[T]]) -> Callable[Concatenate[Any, P], T]:
    """The method of HotcountStorage, whose calls have their results at once."""

    @functools.wraps(method)
    def waiting(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._asking(method.__name__):
            steps, result = method(self, *args, **kwargs), None
            try:
                while True:
                    result = steps.send(result)
            except StopIteration as end:
                return cast(T, end.value)

    return waiting


def _soon(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Any]:
    """The method of AsyncHotcountStorage, whose calls are awaited."""
    steps_of = cast(Callable[Concatenate[Any, P], Steps[T]], inspect.unwrap(method))

    @functools.wraps(steps_of)
    async def awaited(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._asking(steps_of.__name__):
            steps = steps_of(self, *args, **kwargs)
            try:
                call = next(steps)
                while True:
                    try:
                        result = await call
                    except hotcount.HotcountError as error:
                        call = steps.throw(error)
                    else:
                        call = steps.send(result)
            except StopIteration as end:
                return cast(T, end.value)

    return awaited


class _Opened:
    """The base class of both storages."""

    # hotcount or hotcount.aio
    _surface: Any

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        key_prefix: str = "LIMITS",
        **options: Any,
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)  # type: ignore[call-arg]
        self.key_prefix = _check_prefix(key_prefix)
        self._url, self._options = _url(uri), options
        self._open()

    def _open(self) -> None:
        of = self._surface
        self.store = of.connect_store(self._url, **self._options)
        self._ready = _Ready(self.store, self.key_prefix, of.Counter, of.Limiter)
        self._outage = _Outage()

    def _asking(self, method: str) -> AbstractContextManager[None]:
        """Fails at once while the store is known to be away; check() and reset() ask it anyway."""
        return nullcontext() if method in ("check", "reset") else self._outage

    def _reset_memory(self) -> int:
        keys = _keys_to_drop(self._url, self.store)
        self._open()
        return keys

    @property
    def base_exceptions(self) -> type[Exception] | tuple[type[Exception], ...]:
        """The errors that wrap_exceptions wraps."""
        return hotcount.HotcountError


class HotcountStorage(
    _Opened,
    limits.storage.Storage,
    limits.storage.MovingWindowSupport,
    limits.storage.SlidingWindowCounterSupport,
    TimestampedSlidingWindow,
):
    """A storage for `limits.strategies`. Safe from many threads and across fork.

    key_prefix stands before all keys: letters, digits, '_', '-' and '.'. options: those of
    `hotcount.connect_store`, such as timeout. Errors are hotcount's, or with wrap_exceptions
    `limits.errors.StorageError`.
    """

    STORAGE_SCHEME = [f"hotcount+{url}" for url in URLS]  # noqa: RUF012
    _surface = hotcount

    @_now
    def incr(self, key: str, expiry: int, amount: int = 1) -> Steps[int]:
        """Adds to the key's window, which begins with its first hit; the hits in it."""
        return int((yield self._ready.counter(expiry).add(_fit(key), amount)))

    @_now
    def get(self, key: str) -> Steps[int]:
        """The hits in the key's fixed window."""
        return int((yield self._ready.counter().get(_fit(key))))

    @_now
    def get_expiry(self, key: str) -> Steps[float]:
        """When the key's fixed window ends, in seconds since the epoch; now if there is none."""
        return time.time() + ((yield self._ready.counter().ttl(_fit(key))) or 0.0)

    @_now
    def check(self) -> Steps[bool]:
        """Whether the store answers."""
        try:
            yield self.store.ping()
        except hotcount.HotcountError:
            return False
        return True

    @_now
    def reset(self) -> Steps[int | None]:
        """Deletes all keys of this prefix, a thousand at a time; how many there were.

        NotImplementedError for a Memory store with a name, which others may use.
        """
        if isinstance(self.store, (hotcount.Memory, aio.Memory)):
            return self._reset_memory()
        deleted = 0
        for pattern in self._ready.patterns():
            cursor: Any = b"0"
            while True:
                found = yield self.store.execute("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                cursor, keys = found
                if keys:
                    deleted += int((yield self.store.execute("UNLINK", *keys)))
                if int(cursor) == 0:
                    break
        return deleted

    @_now
    def clear(self, key: str) -> Steps[None]:
        """Forgets the key, of fixed and moving windows."""
        yield self._ready.counter().reset(_fit(key))
        for limiter in self._ready.moving_windows_of(key):
            yield limiter.reset(_fit(key))

    @_now
    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Steps[bool]:
        """Takes amount from the moving window, or nothing."""
        if amount == 0:
            return True
        return bool((yield self._ready.moving_window(limit, expiry).hit(_fit(key), amount)))

    @_now
    def get_moving_window(self, key: str, limit: int, expiry: int) -> Steps[tuple[float, int]]:
        """When the oldest hit of the moving window was made, and how many hits it has."""
        limiter = self._ready.moving_window(limit, expiry)
        seen = yield limiter.peek(_fit(key))
        if seen.remaining == limit:
            return time.time(), 0
        if seen.remaining > 0:
            # One more than fits: it is admitted when the oldest hit leaves.
            seen = yield limiter.test(_fit(key), seen.remaining + 1)
        return _start_of(seen.retry_after, expiry), limit - seen.remaining

    @_now
    def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> Steps[bool]:
        """Takes amount if it fits beside this window's hits and the previous window's share."""
        if amount == 0 or amount > limit:
            return amount == 0
        cost = amount * _parts(limit)
        return bool((yield self._ready.sliding_window(limit, expiry).hit(_fit(key), cost)))

    @_now
    def get_sliding_window(self, key: str, expiry: int) -> Steps[Window]:
        """The sliding window: (0 hits, 0 seconds, all hits, seconds); the previous window is empty.

        All hits are those of this window and the previous window's share. The seconds, less the
        expiry, are the time until one more hit fits. The key has the limit, as keys of `limits` do;
        for another key the result is the fullest window of this expiry that this storage has used.
        """
        found = EMPTY
        for limit, limiter in self._ready.sliding_windows_of(key, expiry):
            seen = yield limiter.test(_fit(key), _parts(limit))
            if 0 < (fits := seen.remaining // _parts(limit)) < limit:
                seen = yield limiter.test(_fit(key), (fits + 1) * _parts(limit))
            found = max(found, _window_of(seen, limit, expiry), key=_held)
        return found

    @_now
    def clear_sliding_window(self, key: str, expiry: int) -> Steps[None]:
        """Forgets the key's sliding window."""
        for _, limiter in self._ready.sliding_windows_of(key, expiry):
            yield limiter.reset(_fit(key))


class AsyncHotcountStorage(
    _Opened,
    limits.aio.storage.Storage,
    limits.aio.storage.MovingWindowSupport,
    limits.aio.storage.SlidingWindowCounterSupport,
    TimestampedSlidingWindow,
):
    """HotcountStorage for `limits.aio.strategies`: its calls never block the loop."""

    STORAGE_SCHEME = [f"async+hotcount+{url}" for url in URLS]  # noqa: RUF012
    _surface = aio

    incr = _soon(HotcountStorage.incr)
    get = _soon(HotcountStorage.get)
    get_expiry = _soon(HotcountStorage.get_expiry)
    check = _soon(HotcountStorage.check)
    reset = _soon(HotcountStorage.reset)
    clear = _soon(HotcountStorage.clear)
    acquire_entry = _soon(HotcountStorage.acquire_entry)
    get_moving_window = _soon(HotcountStorage.get_moving_window)
    acquire_sliding_window_entry = _soon(HotcountStorage.acquire_sliding_window_entry)
    get_sliding_window = _soon(HotcountStorage.get_sliding_window)
    clear_sliding_window = _soon(HotcountStorage.clear_sliding_window)


def _held(window: Window) -> int:
    return window[2]


def _keys_to_drop(url: str, store: Any) -> int:
    """How many keys reset() drops with a private Memory store."""
    if url.removeprefix("memory://").partition("?")[0]:
        raise NotImplementedError("a Memory store with a name is not this storage's to empty")
    return int(store.stats()["keys"])


def _check_prefix(prefix: str) -> str:
    if re.fullmatch(r"[\w.-]{1,100}", prefix, re.ASCII):
        return prefix
    raise hotcount.ConfigError(
        f"key_prefix is {prefix!r}; it takes 1 to 100 letters, digits, '_', '-' and '.'"
    )
