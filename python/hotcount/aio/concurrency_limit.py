"""aio.ConcurrencyLimit: hotcount.ConcurrencyLimit for event loops."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType

from hotcount._lifetime import AsyncLifetime
from hotcount._limit import FOLLOWS, PlacePatience, ignore_outcome, may_be_applied
from hotcount._line import acquire_soon, name_of
from hotcount._native import native
from hotcount._types import LimiterKey, Seconds
from hotcount.aio.reservation import Opening
from hotcount.concurrency_limit import ConcurrencyLimitBase, PlaceBase
from hotcount.errors import HotcountError, OutcomeUnknownError
from hotcount.functions import new_op_id
from hotcount.results import Decision


class Place(PlaceBase["ConcurrencyLimit"]):
    """hotcount.Place for event loops: `async with`, and methods to be awaited."""

    __slots__ = ()

    async def renew(self, *, timeout: Seconds | None = None) -> None:
        """As hotcount.Place.renew, to be awaited."""
        if self._is_untracked():
            return
        if not (self._is_ours() and await self._owner._renew(self.key, self._id, timeout=timeout)):
            raise self._lost()

    async def release(self, *, timeout: Seconds | None = None) -> bool:
        """As hotcount.Place.release, to be awaited. Cancelling the call does not stop it."""
        if not self._is_ours():
            return False
        try:
            held = await self._owner._release(self.key, self._id, timeout=timeout)
        except BaseException as error:
            if not isinstance(error, Exception):
                # The cancelled call may not have been sent: release again in the background.
                ignore_outcome(self._owner._release(self.key, self._id, timeout=FOLLOWS))
                self._is_ended = True
            raise
        self._is_ended = True
        return held

    async def __aenter__(self) -> Place:
        """This place; LimitExceeded if it is a refusal."""
        self._require_admitted()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """release(). Its errors are dropped: the place is free when its lease ends."""
        with suppress(HotcountError):
            try:
                await self.release()
            except OutcomeUnknownError:
                # Once more, in the background.
                ignore_outcome(self._owner._release(self.key, self._id, timeout=FOLLOWS))


class ConcurrencyLimit(AsyncLifetime, ConcurrencyLimitBase):
    """hotcount.ConcurrencyLimit for event loops: `async with limit.acquire(key)`.

    Waiting does not block the loop. A task that is cancelled while it waits, or while its place is
    taken or given back, leaves no place behind.

    Example:
        >>> import asyncio
        >>> from hotcount import aio
        >>> exports = aio.ConcurrencyLimit("memory://", 1, lease=60)
        >>> async def main() -> bool:
        ...     async with exports.acquire("user:1"):
        ...         return bool(await exports.acquire("user:1", timeout=0))
        >>> asyncio.run(main())
        False
    """

    __slots__ = ("__weakref__",)

    def acquire(self, key: LimiterKey, timeout: Seconds | None = None) -> Opening[Place]:
        """As hotcount.ConcurrencyLimit.acquire, to be awaited, or for `async with`.

        It starts when it is awaited.
        """
        _ = self.name  # Raises if __init__ has not run.
        return Opening(lambda: self._wait_for_place(key, timeout))

    async def _wait_for_place(self, key: LimiterKey, timeout: Seconds | None) -> Place:
        _ = self.name  # Raises if __init__ has not run.
        holder = new_op_id()

        async def ask() -> Decision:
            try:
                return await self._acquire(key, holder)
            except BaseException as error:
                if may_be_applied(error):
                    # Releases in the background the place that the failed call may hold.
                    with suppress(HotcountError):
                        ignore_outcome(self._release(key, holder, timeout=FOLLOWS))
                raise

        patience = PlacePatience(timeout)
        decision = await acquire_soon(self, name_of(key, is_task=True), 1, patience, ask)
        return Place(self, key, holder, decision)

    # Written by scripts/aio.
    # fmt: off
    @native
    async def _acquire(self, key: LimiterKey, holder: str, *,
            timeout: Seconds | None = None) -> Decision:
        """Takes a place for this holder; a refusal if all places are held."""
    @native
    async def _renew(self, key: LimiterKey, holder: str, *, timeout: Seconds | None = None) -> bool:
        """Begins the holder's lease anew; False if it holds no place."""
    @native
    async def _release(self, key: LimiterKey, holder: str, *,
            timeout: Seconds | None = None) -> bool:
        """Releases the holder's place; False if it holds none."""
    # fmt: on
