"""aio.Votes: hotcount.Votes for event loops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from hotcount._lifetime import AsyncLifetime
from hotcount._native import native
from hotcount._types import Id, Ids, Numbers, OnErrors, Seconds
from hotcount._votes_base import Consistency, Progress, VotesBase
from hotcount.batches import Casts, Counts, Int64Batch
from hotcount.results import Cast, Count, Drift, FlushReport, Tally


class Votes(AsyncLifetime, VotesBase):
    """hotcount.Votes for event loops: each method returns an awaitable of its outcome.

    A call starts when it is made, whether it is awaited or not, and cancelling does not withdraw
    it. Votes made while others are written share the next transaction; of two votes of one user the
    one made later is applied later. At most workers threads of this object write, and wake
    the loop once for all votes of a transaction. schema(), contract() and sync_worker() are not
    awaited; sync_worker() returns a hotcount.SyncWorker, whose run() belongs in a thread. aclose()
    finishes votes that are being written; calls that wait end with ClosedError where the database
    is closed too. Any number of loops may use the object, in any threads, and so may forked
    children.

    Example:
        >>> import asyncio
        >>> from hotcount import aio
        >>> votes = aio.Votes("sqlite:///:memory:", missing_items="create")
        >>> async def main() -> int:
        ...     await votes.create_tables()
        ...     await asyncio.gather(*(votes.cast(7, user) for user in range(100)))
        ...     return (await votes.count(7)).value
        >>> asyncio.run(main())
        100
    """

    __slots__ = ("__weakref__",)

    # Written by scripts/aio.
    # fmt: off
    @native
    async def create_tables(self, *, existing_counts: Literal["keep", "recount"] | None = None,
            outside_writes: Literal["none", "deletes", "count"] | None = None,
            timeout: Seconds | None = None) -> None:
        """As hotcount.Votes.create_tables, to be awaited."""
    @native
    async def migration(self, *, existing_counts: Literal["keep", "recount"] | None = None,
            outside_writes: Literal["none", "deletes", "count"] | None = None,
            timeout: Seconds | None = None) -> str:
        """As hotcount.Votes.migration, to be awaited."""
    @native
    async def add_items(self, items: Ids, *, timeout: Seconds | None = None) -> None:
        """As hotcount.Votes.add_items, to be awaited."""
    @native
    async def cast(self, item: Id, user: Id | None, value: int = 1, *, version: int | None = None,
            op_id: str | None = None, with_count: bool = False,
            timeout: Seconds | None = None) -> Cast:
        """As hotcount.Votes.cast, to be awaited."""
    @native
    async def retract(self, item: Id, user: Id, *, version: int | None = None,
            with_count: bool = False, timeout: Seconds | None = None) -> Cast:
        """As hotcount.Votes.retract, to be awaited."""
    @native
    async def cast_many(self, items: Ids, users: Ids | None, values: Numbers = 1, *,
            op_ids: Iterable[str] | None = None, errors: OnErrors = "raise",
            timeout: Seconds | None = None) -> Casts:
        """As hotcount.Votes.cast_many, to be awaited."""
    @native
    async def count(self, item: Id, *, consistency: Consistency = "cached",
            timeout: Seconds | None = None) -> Count:
        """As hotcount.Votes.count, to be awaited."""
    @native
    async def count_many(self, items: Ids, *, consistency: Consistency = "cached",
            timeout: Seconds | None = None) -> Counts:
        """As hotcount.Votes.count_many, to be awaited."""
    @native
    async def get(self, item: Id, user: Id, *, timeout: Seconds | None = None) -> int:
        """As hotcount.Votes.get, to be awaited."""
    @native
    async def get_many(self, items: Ids, user: Id, *, timeout: Seconds | None = None) -> Int64Batch:
        """As hotcount.Votes.get_many, to be awaited."""
    @native
    async def voters(self, item: Id, *, after: Id | None = None, limit: int = 100,
            consistency: Consistency = "exact", timeout: Seconds | None = None) -> list[tuple[Any,
            int]]:
        """As hotcount.Votes.voters, to be awaited."""
    @native
    async def tally(self, item: Id, *, consistency: Consistency = "exact",
            timeout: Seconds | None = None) -> Tally:
        """As hotcount.Votes.tally, to be awaited."""
    @native
    async def top(self, n: int, *, consistency: Consistency = "exact",
            timeout: Seconds | None = None) -> list[tuple[Any, int]]:
        """As hotcount.Votes.top, to be awaited."""
    @native
    async def toggle(self, item: Id, user: Id, value: int = 1, *, with_count: bool = False,
            timeout: Seconds | None = None) -> Cast:
        """As hotcount.Votes.toggle, to be awaited."""
    @native
    async def remove_item(self, item: Id, *, delete_row: bool = False,
            timeout: Seconds | None = None) -> int:
        """As hotcount.Votes.remove_item, to be awaited."""
    @native
    async def erase_user(self, user: Id, *, timeout: Seconds | None = None) -> int:
        """As hotcount.Votes.erase_user, to be awaited."""
    @native
    async def prune(self, before: int, *, timeout: Seconds | None = None) -> int:
        """As hotcount.Votes.prune, to be awaited."""
    @native
    async def reconcile(self, items: Ids | None = None, *, dry_run: bool = False,
            after: Id | None = None, progress: Progress | None = None,
            timeout: Seconds | None = None) -> list[Drift]:
        """As hotcount.Votes.reconcile, to be awaited."""
    @native
    async def flush(self, timeout: Seconds | None = 5.0) -> FlushReport:
        """As hotcount.Votes.flush, to be awaited."""
    @native
    async def stats(self, *, timeout: Seconds | None = None) -> dict[str, Any]:
        """As hotcount.Votes.stats, to be awaited."""
    # fmt: on
