"""aio.SlottedCounter: hotcount.SlottedCounter for event loops."""

from __future__ import annotations

from hotcount._lifetime import AsyncLifetime
from hotcount._native import native
from hotcount._types import Amounts, Key, Keys, OnErrors, Seconds
from hotcount.batches import Int64Batch
from hotcount.slotted_counter import SlottedCounterBase


class SlottedCounter(AsyncLifetime, SlottedCounterBase):
    """hotcount.SlottedCounter for event loops: the calls return an awaitable of their outcome.

    A call starts when it is made, whether it is awaited or not. Adds made while a transaction runs
    share the next one, also with adds of threads. Cancelling does not withdraw an add; any other
    call is withdrawn if it has not begun. At most 2 threads of this object write, and 2 make the
    other calls, however many tasks wait; the loop is woken once for all adds of a transaction.
    resize() and statement() are not awaited. Any number of loops may use the object, in any
    threads, and so may forked children.

    Example:
        >>> import asyncio
        >>> from hotcount import aio
        >>> counter = aio.SlottedCounter("sqlite:///:memory:")
        >>> async def main() -> int:
        ...     await counter.create_table()
        ...     await asyncio.gather(*(counter.add("photo:42") for _ in range(100)))
        ...     return await counter.get("photo:42")
        >>> asyncio.run(main())
        100
    """

    __slots__ = ("__weakref__",)

    # Written by scripts/aio.
    # fmt: off
    @native
    async def create_table(self, *, timeout: Seconds | None = None) -> None:
        """As hotcount.SlottedCounter.create_table, to be awaited."""
    @native
    async def add(self, key: Key, n: int = 1, *, op_id: Key | None = None, slot: int | None = None,
            timeout: Seconds | None = None) -> None:
        """As hotcount.SlottedCounter.add, to be awaited."""
    @native
    async def add_many(self, mapping: Amounts, *, errors: OnErrors = "raise",
            timeout: Seconds | None = None) -> Int64Batch:
        """As hotcount.SlottedCounter.add_many, to be awaited."""
    @native
    async def get(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """As hotcount.SlottedCounter.get, to be awaited."""
    @native
    async def get_many(self, keys: Keys, *, errors: OnErrors = "raise",
            timeout: Seconds | None = None) -> Int64Batch:
        """As hotcount.SlottedCounter.get_many, to be awaited."""
    @native
    async def reset(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """As hotcount.SlottedCounter.reset, to be awaited."""
    @native
    async def compact(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """As hotcount.SlottedCounter.compact, to be awaited."""
    # fmt: on
