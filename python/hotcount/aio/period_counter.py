"""aio.PeriodCounter: hotcount.PeriodCounter for event loops."""

from __future__ import annotations

from datetime import datetime
from typing import overload

from hotcount._lifetime import AsyncLifetime
from hotcount._native import native
from hotcount._types import Amounts, Key, Keys, Numbers, OnErrors, Seconds
from hotcount.batches import AddedBatch, Int64Batch
from hotcount.counter import Added
from hotcount.period_counter import Period, PeriodCounterBase
from hotcount.results import Queued


class PeriodCounter(AsyncLifetime, PeriodCounterBase[Added]):
    """hotcount.PeriodCounter for event loops: each method returns an awaitable of its outcome.

    Calls start, are sent and are cancelled as the calls of aio.Counter.

    Example:
        >>> import asyncio
        >>> from hotcount import aio
        >>> visits = aio.PeriodCounter("memory://", "hour")
        >>> async def main() -> list[int]:
        ...     return await asyncio.gather(visits.add("home"), visits.add("home", 4))
        >>> asyncio.run(main())
        [1, 5]
    """

    __slots__ = ("__weakref__",)

    # Written by scripts/aio.
    # fmt: off
    @native
    async def add(self, key: Key, n: int = 1, at: datetime | None = None, *,
            timeout: Seconds | None = None) -> Added:
        """As hotcount.PeriodCounter.add, to be awaited."""
    @native
    async def get(self, key: Key, at: datetime | None = None, *,
            timeout: Seconds | None = None) -> int:
        """As hotcount.PeriodCounter.get, to be awaited."""
    @overload
    async def add_many(self: PeriodCounter[int], keys: Keys | Amounts, n: Numbers = 1,  # type: ignore[overload-overlap]
            at: datetime | None = None, *, errors: OnErrors = "raise",
            timeout: Seconds | None = None) -> Int64Batch: ...
    @overload
    async def add_many(self: PeriodCounter[int | Queued], keys: Keys | Amounts, n: Numbers = 1,
            at: datetime | None = None, *, errors: OnErrors = "raise",
            timeout: Seconds | None = None) -> AddedBatch: ...
    @native
    async def add_many(self, keys: Keys | Amounts, n: Numbers = 1, at: datetime | None = None, *,
            errors: OnErrors = "raise", timeout: Seconds | None = None) -> Int64Batch | AddedBatch:
        """As hotcount.PeriodCounter.add_many, to be awaited."""
    @native
    async def get_many(self, keys: Keys, at: datetime | None = None, *, errors: OnErrors = "raise",
            timeout: Seconds | None = None) -> Int64Batch:
        """As hotcount.PeriodCounter.get_many, to be awaited."""
    @native
    async def series(self, key: Key, start: datetime, end: datetime, *, tz: str | None = None,
            period: Period | None = None, timeout: Seconds | None = None) -> list[tuple[datetime,
            int]]:
        """As hotcount.PeriodCounter.series, to be awaited."""
    # fmt: on
