"""aio.Counter: hotcount.Counter for event loops."""

from __future__ import annotations

from typing import overload

from hotcount._lifetime import AsyncLifetime
from hotcount._native import native
from hotcount._types import Amounts, Key, Keys, Numbers, OnErrors, Seconds
from hotcount.batches import AddedBatch, Int64Batch
from hotcount.counter import Added, CounterBase
from hotcount.results import Queued, TryAdd


class Counter(AsyncLifetime, CounterBase[Added]):
    """hotcount.Counter for event loops: each method returns an awaitable of its outcome.

    A call starts when it is made, whether it is awaited or not. Calls made in one iteration of the
    loop are sent together. In Memory a call is done when it returns, and awaiting it does not yield
    to the loop. Cancelling withdraws a call that is not sent yet; the outcome of a sent call is
    dropped. Any number of loops may use the object, in any threads, and so may forked children.

    Example:
        >>> import asyncio
        >>> from hotcount import aio
        >>> likes = aio.Counter("memory://")
        >>> async def main() -> list[int]:
        ...     return await asyncio.gather(*(likes.add("photo:42") for _ in range(3)))
        >>> asyncio.run(main())
        [1, 2, 3]
    """

    __slots__ = ("__weakref__",)

    # Written by scripts/aio.
    # fmt: off
    @native
    async def add(self, key: Key, n: int = 1, *, op_id: Key | None = None,
            timeout: Seconds | None = None) -> Added:
        """As hotcount.Counter.add, to be awaited."""
    @native
    async def try_add(self, key: Key, n: int = 1, *, min: int | None = None, max: int | None = None,
            timeout: Seconds | None = None) -> TryAdd:
        """As hotcount.Counter.try_add, to be awaited."""
    @overload
    async def add_many(self: Counter[int], keys: Keys | Amounts, n: Numbers = 1, *,  # type: ignore[overload-overlap]
            errors: OnErrors = "raise", timeout: Seconds | None = None) -> Int64Batch: ...
    @overload
    async def add_many(self: Counter[int | Queued], keys: Keys | Amounts, n: Numbers = 1, *,
            errors: OnErrors = "raise", timeout: Seconds | None = None) -> AddedBatch: ...
    @native
    async def add_many(self, keys: Keys | Amounts, n: Numbers = 1, *, errors: OnErrors = "raise",
            timeout: Seconds | None = None) -> Int64Batch | AddedBatch:
        """As hotcount.Counter.add_many, to be awaited."""
    @native
    async def get(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """As hotcount.Counter.get, to be awaited."""
    @native
    async def get_many(self, keys: Keys, *, errors: OnErrors = "raise",
            timeout: Seconds | None = None) -> Int64Batch:
        """As hotcount.Counter.get_many, to be awaited."""
    @native
    async def reset(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """As hotcount.Counter.reset, to be awaited."""
    @native
    async def ttl(self, key: Key, *, timeout: Seconds | None = None) -> float | None:
        """As hotcount.Counter.ttl, to be awaited."""
    # fmt: on
