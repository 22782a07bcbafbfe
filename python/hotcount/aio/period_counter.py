"""aio.PeriodCounter: hotcount.PeriodCounter for event loops."""

from __future__ import annotations

from datetime import datetime

from hotcount._lifetime import AsyncLifetime
from hotcount._native import native
from hotcount._types import Key, Seconds
from hotcount.counter import Added
from hotcount.period_counter import PeriodCounterBase


class PeriodCounter(AsyncLifetime, PeriodCounterBase[Added]):
    """hotcount.PeriodCounter for event loops: each method returns what is awaited for its outcome.

    Calls start, travel and are cancelled as those of aio.Counter.

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
    @native
    async def series(self, key: Key, start: datetime, end: datetime, *,
            timeout: Seconds | None = None) -> list[tuple[datetime, int]]:
        """As hotcount.PeriodCounter.series, to be awaited."""
    # fmt: on
