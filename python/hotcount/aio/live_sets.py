"""aio.LiveSets: hotcount.LiveSets for event loops."""

from __future__ import annotations

from collections.abc import Iterable

from hotcount._lifetime import AsyncLifetime
from hotcount._native import native
from hotcount._types import Key, Keys, OnErrors, Seconds
from hotcount.batches import Upserts
from hotcount.live_sets import LiveSetsBase, Members, ScoredMembers, UpsertItem
from hotcount.results import SweepReport, Upsert


class LiveSets(AsyncLifetime, LiveSetsBase):
    """hotcount.LiveSets for event loops: each method returns what is awaited for its outcome.

    A call starts when it is made, not when it is awaited: awaited later, or not at all, it is made
    just the same. Calls of one turn of the loop travel together. In Memory a call is done when it
    returns, and awaiting it does not yield to the loop. Cancelling withdraws a call that is not
    sent yet; of one that is sent nobody hears any more. Any number of loops may use it, in any
    threads, and so may forked children.

    Over Redis sweep(), and upserts with any method but 'script', wait for several round trips. At
    most 8 threads of this object make them, however many tasks wait and whatever the loop does
    meanwhile. They begin in the order of the calls and may end in another; one that none of the
    threads was free for by its timeout is a DeadlineError, and has applied nothing.

    >>> import asyncio
    >>> from hotcount import aio
    >>> sets = aio.LiveSets("memory://")
    >>> async def main() -> list[tuple[str | bytes, float]]:
    ...     await sets.create("feed:1", 60, {"post:1": 1.0})
    ...     await asyncio.gather(*(sets.upsert("feed:1", f"post:{n}", n) for n in range(2, 100)))
    ...     return await sets.top("feed:1", 1)
    >>> asyncio.run(main())
    [('post:99', 99.0)]
    """

    __slots__ = ("__weakref__",)

    @native
    async def upsert(
        self,
        key: Key,
        member: Key,
        score: float,
        *,
        version: int | None = None,
        timeout: Seconds | None = None,
    ) -> Upsert:
        """As hotcount.LiveSets.upsert, to be awaited.

        Cancelled before it is sent, nothing is applied; later, it may have been.
        """

    @native
    async def upsert_many(
        self,
        items: Iterable[UpsertItem] | None = None,
        batch: int = 250,
        *,
        keys: Keys | None = None,
        members: Keys | None = None,
        scores: Iterable[float] | None = None,
        versions: Iterable[int | None] | None = None,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Upserts:
        """As hotcount.LiveSets.upsert_many, to be awaited.

        Each batch is sent when the one before is answered; cancelled, those behind are not sent.
        """

    @native
    async def remove(
        self, key: Key, member: Key, version: int | None = None, *, timeout: Seconds | None = None
    ) -> Upsert:
        """As hotcount.LiveSets.remove, to be awaited."""

    @native
    async def top(self, key: Key, n: int, *, timeout: Seconds | None = None) -> ScoredMembers:
        """As hotcount.LiveSets.top, to be awaited."""

    @native
    async def range(
        self, key: Key, start: int, stop: int, *, timeout: Seconds | None = None
    ) -> ScoredMembers:
        """As hotcount.LiveSets.range, to be awaited."""

    @native
    async def rank(self, key: Key, member: Key, *, timeout: Seconds | None = None) -> int | None:
        """As hotcount.LiveSets.rank, to be awaited."""

    @native
    async def create(
        self, key: Key, ttl: Seconds, members: Members, *, timeout: Seconds | None = None
    ) -> None:
        """As hotcount.LiveSets.create, to be awaited."""

    @native
    async def sweep(
        self, match: Key, *, dry_run: bool = False, timeout: Seconds | None = None
    ) -> SweepReport:
        """As hotcount.LiveSets.sweep, to be awaited.

        Cancelled before it has begun, nothing is deleted; later, it goes on to its end.
        """
