"""aio.LiveSets: hotcount.LiveSets for event loops."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Union

from hotcount._lifetime import AsyncLifetime
from hotcount._native import native
from hotcount._types import Key, Keys, OnErrors, Seconds
from hotcount.batches import Upserts
from hotcount.errors import HotcountError
from hotcount.live_sets import (
    MOST_AT_ONCE,
    LiveSetsBase,
    Members,
    Part,
    RebuildBase,
    RebuildMembers,
    RebuildReport,
    ScoredMembers,
    UpsertItem,
    pair_of,
    parts_of,
    patience_of,
)
from hotcount.results import SweepReport, Upsert

AnyMembers = Union[
    RebuildMembers, AsyncIterable[Union[tuple[Key, float], tuple[Key, float, Union[int, None]]]]
]
RebuildRows = Union[Iterable[tuple[Key, AnyMembers]], AsyncIterable[tuple[Key, AnyMembers]]]


class LiveSets(AsyncLifetime, LiveSetsBase):
    """hotcount.LiveSets for event loops: each method returns an awaitable of its outcome.

    A call starts when it is made, whether it is awaited or not. Calls made in one iteration of the
    loop are sent together. In Memory a call is done when it returns, and awaiting it does not yield
    to the loop. Cancelling withdraws a call that is not sent yet. A sent call may still be applied,
    and its outcome is dropped. upsert_many(), sweep() and upserts with 'ttl_gate' take several
    round trips, one after the other; a cancelled call makes no further one. Any number of loops may
    use the object, in any threads, and so may forked children.

    Over Redis, up to 8 threads of this object make the round trips of sweep() and of upserts with
    'ttl_gate', in the order of the calls. If no thread is free within the call's timeout, the call
    is a DeadlineError and has applied nothing.

    Example:
        >>> import asyncio
        >>> from hotcount import aio
        >>> sets = aio.LiveSets("memory://")
        >>> async def main() -> list[tuple[str | bytes, float]]:
        ...     await sets.create("feed:1", 60, {"post:1": 1.0})
        ...     posts = (sets.upsert("feed:1", f"post:{n}", n) for n in range(2, 100))
        ...     await asyncio.gather(*posts)
        ...     return await sets.top("feed:1", 1)
        >>> asyncio.run(main())
        [('post:99', 99.0)]
    """

    __slots__ = ("__weakref__",)

    def rebuild(self, key: Key, ttl: Seconds, *, lease: Seconds = 10.0) -> Rebuild:
        """As hotcount.LiveSets.rebuild, for `async with`."""
        return Rebuild(self, key, ttl, lease)

    async def rebuild_many(
        self, sets: RebuildRows, ttl: Seconds, *, lease: Seconds = 10.0
    ) -> RebuildReport:
        """As hotcount.LiveSets.rebuild_many; rows and members may come from async iterables.

        While a set is built, up to 7 others are published.
        """
        builds = _Builds(self, ttl, lease)
        try:
            if isinstance(sets, AsyncIterable):
                async for row in sets:
                    await builds.build(*pair_of(row))
            else:
                for row in sets:
                    await builds.build(*pair_of(row))
        finally:
            await builds.settle(0)
        return RebuildReport(builds.published, builds.failed)

    # Written by scripts/aio.
    # fmt: off
    @native
    async def upsert(self, key: Key, member: Key, score: float, *, version: int | None = None,
            timeout: Seconds | None = None) -> Upsert:
        """As hotcount.LiveSets.upsert, to be awaited."""
    @native
    async def upsert_many(self, items: Iterable[UpsertItem] | None = None, batch: int = 128, *,
            keys: Keys | None = None, members: Keys | None = None,
            scores: Iterable[float] | None = None, versions: Iterable[int | None] | None = None,
            errors: OnErrors = "raise", timeout: Seconds | None = None) -> Upserts:
        """As hotcount.LiveSets.upsert_many, to be awaited."""
    @native
    async def remove(self, key: Key, member: Key, version: int | None = None, *,
            timeout: Seconds | None = None) -> Upsert:
        """As hotcount.LiveSets.remove, to be awaited."""
    @native
    async def top(self, key: Key, n: int, *, timeout: Seconds | None = None) -> ScoredMembers:
        """As hotcount.LiveSets.top, to be awaited."""
    @native
    async def range(self, key: Key, start: int, stop: int, *,
            timeout: Seconds | None = None) -> ScoredMembers:
        """As hotcount.LiveSets.range, to be awaited."""
    @native
    async def rank(self, key: Key, member: Key, *, timeout: Seconds | None = None) -> int | None:
        """As hotcount.LiveSets.rank, to be awaited."""
    @native
    async def create(self, key: Key, ttl: Seconds, members: Members, *,
            timeout: Seconds | None = None) -> None:
        """As hotcount.LiveSets.create, to be awaited."""
    @native
    async def sweep(self, match: Key, *, dry_run: bool = False,
            timeout: Seconds | None = None) -> SweepReport:
        """As hotcount.LiveSets.sweep, to be awaited."""
    # fmt: on


class Rebuild(RebuildBase):
    """hotcount.Rebuild for event loops: `async with sets.rebuild(key, ttl=60) as build`.

    add() gathers members and is done when it returns, unless there are enough to be sent. Over
    Redis the threads of sweep() send them. A cancelled publish() may still publish.
    """

    __slots__ = ("__weakref__",)

    async def __aenter__(self) -> Rebuild:
        """Takes the lease and deletes the unfinished build of an earlier builder."""
        try:
            await self._begin()
        except BaseException:
            await self._give_up()  # A call that was cancelled or not answered may have the lease.
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Publishes; abandons the build if the block or the publication raises."""
        if kind is not None:
            await self._give_up()
            return
        try:
            await self._finish()
        except BaseException:
            await self._give_up()
            raise

    async def _give_up(self) -> None:
        # If this fails, the build expires with its lease; the caller needs the first error.
        with suppress(HotcountError):
            await self.abandon()

    # Written by scripts/aio.
    # fmt: off
    @native
    async def add(self, member: Key, score: float, version: int | None = None, *,
            timeout: Seconds | None = None) -> None:
        """As hotcount.Rebuild.add, to be awaited."""
    @native
    async def add_many(self, members: RebuildMembers, *, timeout: Seconds | None = None) -> None:
        """As hotcount.Rebuild.add_many, to be awaited."""
    @native
    async def renew(self, *, timeout: Seconds | None = None) -> None:
        """As hotcount.Rebuild.renew, to be awaited."""
    @native
    async def publish(self, *, timeout: Seconds | None = None) -> None:
        """As hotcount.Rebuild.publish, to be awaited."""
    @native
    async def abandon(self, *, timeout: Seconds | None = None) -> None:
        """As hotcount.Rebuild.abandon, to be awaited."""
    @native
    async def _begin(self, *, timeout: Seconds | None = None) -> None:
        """Takes the lease."""
    @native
    async def _finish(self, *, timeout: Seconds | None = None) -> None:
        """publish(); does nothing after publish() or abandon()."""
    # fmt: on


async def _parts_of(members: AnyMembers, patience: float) -> AsyncIterator[RebuildMembers]:
    if not isinstance(members, AsyncIterable):
        for rows in parts_of(members, patience):
            yield rows
        return
    part = Part(patience)
    async for row in members:
        if part.takes(row):
            yield part.give()
    yield part.give()


class _Builds:
    """The sets of one rebuild_many(): publications under way, and the outcomes of earlier ones."""

    def __init__(self, sets: LiveSets, ttl: Seconds, lease: Seconds) -> None:
        Rebuild(sets, "any", ttl, lease)  # Raises for bad options, before any key is built.
        self._sets, self._ttl, self._lease = sets, ttl, lease
        self._patience = patience_of(lease)
        self._publishing: dict[Key, Any] = {}
        self.published = 0
        self.failed: dict[Key, HotcountError] = {}

    async def build(self, key: Key, members: AnyMembers) -> None:
        await self.settle(0 if key in self._publishing else MOST_AT_ONCE - 1)
        try:
            build = Rebuild(self._sets, key, self._ttl, self._lease)
            await build.__aenter__()
        except HotcountError as error:
            self.failed[key] = error
            return
        try:
            async for part in _parts_of(members, self._patience):
                await build.add_many(part)
        except BaseException as error:
            await build._give_up()
            if not isinstance(error, HotcountError):
                raise
            self.failed[key] = error
            return
        self._publishing[key] = build.publish()

    async def settle(self, most: int) -> None:
        """Waits for the oldest publications until at most `most` are under way."""
        while len(self._publishing) > most:
            key = next(iter(self._publishing))
            publication = self._publishing.pop(key)
            try:
                await publication
                self.published += 1
            except HotcountError as error:
                self.failed[key] = error
