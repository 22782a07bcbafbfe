"""aio.Limiter: hotcount.Limiter for event loops."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from hotcount._lifetime import AsyncLifetime
from hotcount._line import acquire_soon, name_of
from hotcount._native import native
from hotcount._types import Key, LimiterKey, LimiterKeys, Numbers, OnErrors, Seconds
from hotcount.aio.reservation import Opening, Reservation, Reserving, reserve_soon
from hotcount.batches import Decisions
from hotcount.limiter import LimiterBase
from hotcount.rate import Rates
from hotcount.results import Decision


class Limiter(AsyncLifetime, Reserving, LimiterBase):
    """hotcount.Limiter for event loops: each method returns an awaitable of its outcome.

    A call starts when it is made, whether it is awaited or not. Calls made in one iteration of the
    loop are sent together; over a Database waiting calls share a transaction. In Memory a call is
    done when it returns, and awaiting it does not yield to the loop. Cancelling withdraws a call
    that is not sent yet. A sent call may still be applied, and its outcome is dropped. Any number
    of loops may use the object, in any threads, and so may forked children.

    Example:
        >>> import asyncio
        >>> from hotcount import aio
        >>> limiter = aio.Limiter("memory://", "2/minute")
        >>> async def main() -> list[bool]:
        ...     return [bool(await limiter.hit("user:1")) for _ in range(3)]
        >>> asyncio.run(main())
        [True, True, False]
    """

    __slots__ = ("__weakref__",)

    def reserve(
        self,
        key: LimiterKey,
        n: int,
        *,
        lease: Seconds = 30.0,
        rate: Rates | None = None,
        timeout: Seconds | None = None,
    ) -> Opening[Reservation]:
        """As hotcount.Limiter.reserve, to be awaited, or for `async with`.

        It starts when it is awaited. A task that is cancelled meanwhile leaves nothing held.
        """
        _ = self.name  # Raises if __init__ has not run.
        return Opening(lambda: reserve_soon(self, key, n, lease, rate, timeout))

    async def acquire(
        self,
        key: LimiterKey,
        cost: int = 1,
        timeout: Seconds | None = None,
        *,
        rate: Rates | None = None,
    ) -> Decision:
        """As hotcount.Limiter.acquire, to be awaited: it does not block the loop while it sleeps.

        Unlike the other calls it starts when it is awaited. The tasks of each loop form a queue of
        their own. A task cancelled while it waits leaves the queue and takes nothing; during a hit
        it is cancelled as hit() is. A hit that was admitted ahead for it goes to the next task in
        the queue; if the queue is empty, the hit stays taken.
        """
        patience = self._patience(cost, timeout, rate)

        def ask() -> Awaitable[Decision]:
            hit = self._hit_ahead if patience.may_be_ahead() else self.hit
            return hit(key, cost, rate=rate)

        return await acquire_soon(self, name_of(key, rate, is_task=True), cost, patience, ask)

    wait = acquire

    # Written by scripts/aio.
    # fmt: off
    @native
    async def create_table(self, *, timeout: Seconds | None = None) -> None:
        """As hotcount.Limiter.create_table, to be awaited."""
    @native
    async def _hit_all(self, hits: Sequence[tuple[LimiterBase, LimiterKey, int, Rates | None]], *,
            timeout: Seconds | None = None) -> tuple[Decision, tuple[str, ...]]:
        """Takes the hits of one store, all or none; returns the decision and each hit's reason."""
    @native
    async def hit(self, key: LimiterKey, cost: int = 1, *, rate: Rates | None = None,
            op_id: Key | None = None, timeout: Seconds | None = None) -> Decision:
        """As hotcount.Limiter.hit, to be awaited."""
    @native
    async def _hit_ahead(self, key: LimiterKey, cost: int = 1, *, rate: Rates | None = None,
            timeout: Seconds | None = None) -> Decision:
        """hit(), up to 10 ms ahead: retry_after is the time until the hit may be used."""
    @native
    async def hit_many(self, keys: LimiterKeys, cost: Numbers = 1, *, rate: Rates | None = None,
            errors: OnErrors = "raise", timeout: Seconds | None = None) -> Decisions:
        """As hotcount.Limiter.hit_many, to be awaited."""
    @native
    async def at_most(self, key: LimiterKey, n: int, *, rate: Rates | None = None,
            timeout: Seconds | None = None) -> int:
        """As hotcount.Limiter.at_most, to be awaited."""
    @native
    async def refund(self, key: LimiterKey, n: int, *, rate: Rates | None = None,
            timeout: Seconds | None = None) -> int:
        """As hotcount.Limiter.refund, to be awaited."""
    @native
    async def block(self, key: LimiterKey, seconds: Seconds, *, rate: Rates | None = None,
            timeout: Seconds | None = None) -> None:
        """As hotcount.Limiter.block, to be awaited."""
    @native
    async def test(self, key: LimiterKey, cost: int = 1, *, rate: Rates | None = None,
            timeout: Seconds | None = None) -> Decision:
        """As hotcount.Limiter.test, to be awaited."""
    @native
    async def peek(self, key: LimiterKey, *, rate: Rates | None = None,
            timeout: Seconds | None = None) -> Decision:
        """As hotcount.Limiter.peek, to be awaited."""
    @native
    async def reset(self, key: LimiterKey, *, rate: Rates | None = None,
            timeout: Seconds | None = None) -> None:
        """As hotcount.Limiter.reset, to be awaited."""
    # fmt: on
