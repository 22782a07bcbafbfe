"""aio.WriteBehindCounter: hotcount.WriteBehindCounter for event loops."""

from __future__ import annotations

from hotcount._lifetime import AsyncLifetime
from hotcount._native import native
from hotcount._types import Amounts, Key, Keys, Numbers, OnErrors, Seconds
from hotcount.batches import Counts, Int64Batch
from hotcount.results import Count, FlushReport
from hotcount.write_behind_counter import Ack, WriteBehindCounterBase


class WriteBehindCounter(AsyncLifetime, WriteBehindCounterBase):
    """hotcount.WriteBehindCounter for event loops: the calls return an awaitable of their outcome.

    A call starts when it is made, whether it is awaited or not. Cancelling does not withdraw an
    add. Adds to Redis use the loop's own connection; those made in one iteration of the loop are
    sent together. Threads of the library make the calls other than adds. schema(), contract(),
    stats() and sync_worker() are not awaited; sync_worker() returns a hotcount.SyncWorker, whose
    run() belongs in a thread.

    Example:
        >>> import asyncio
        >>> from hotcount import aio
        >>> views = aio.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
        >>> async def main() -> None:
        ...     await views.create_tables()
        ...     await asyncio.gather(*(views.add("page:home", ack="sql") for _ in range(100)))
        >>> asyncio.run(main())
        >>> views.stats()["adds"]
        100
    """

    __slots__ = ("__weakref__",)

    # Written by scripts/aio.
    # fmt: off
    @native
    async def create_tables(self, *, timeout: Seconds | None = None) -> None:
        """As hotcount.WriteBehindCounter.create_tables, to be awaited."""
    @native
    async def add(self, key: Key, n: int = 1, *, ack: Ack = "cache",
            timeout: Seconds | None = None) -> None:
        """As hotcount.WriteBehindCounter.add, to be awaited."""
    @native
    async def add_many(self, keys: Keys | Amounts, n: Numbers = 1, *, ack: Ack = "cache",
            errors: OnErrors = "raise", timeout: Seconds | None = None) -> Int64Batch:
        """As hotcount.WriteBehindCounter.add_many, to be awaited."""
    @native
    async def get(self, key: Key, *, timeout: Seconds | None = None) -> Count:
        """As hotcount.WriteBehindCounter.get, to be awaited."""
    @native
    async def get_many(self, keys: Keys, *, errors: OnErrors = "raise",
            timeout: Seconds | None = None) -> Counts:
        """As hotcount.WriteBehindCounter.get_many, to be awaited."""
    @native
    async def reset(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """As hotcount.WriteBehindCounter.reset, to be awaited."""
    @native
    async def flush(self, timeout: Seconds | None = 5.0) -> FlushReport:
        """As hotcount.WriteBehindCounter.flush, to be awaited."""
    # fmt: on
