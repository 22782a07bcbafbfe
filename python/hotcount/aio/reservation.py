"""aio.Reservation: hotcount.Reservation for event loops; and Opening, for await or async with."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

from hotcount._core import Handle
from hotcount._limit import FOLLOWS, ignore_outcome, may_be_applied
from hotcount._native import native
from hotcount._types import Key, LimiterKey, Seconds
from hotcount.errors import HotcountError
from hotcount.functions import new_op_id
from hotcount.rate import Rates
from hotcount.reservation import ReservationBase
from hotcount.results import Decision

T = TypeVar("T", bound=AbstractAsyncContextManager[Any])


class Opening(Generic[T]):
    """An object that is opened by `await opening` or by `async with opening as opened`."""

    __slots__ = ("_open", "_opened")

    def __init__(self, open: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """open: a coroutine function, called once."""
        self._open = open
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        """The opened object."""
        return self._open().__await__()

    async def __aenter__(self) -> T:
        """The opened object, entered."""
        self._opened = await self
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leaves the opened object."""
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, traceback)


class Reserving(Handle):
    """The calls that aio.Limiter.reserve and its Reservation make."""

    __slots__ = ()

    # Written by scripts/aio.
    # fmt: off
    @native
    async def _reserve(self, key: LimiterKey, n: int, id: str, lease: Seconds, *,
            rate: Rates | None = None, timeout: Seconds | None = None) -> Decision:
        """Holds n for the id."""
    @native
    async def _commit(self, key: LimiterKey, id: str, actual: int, *, rate: Rates | None = None,
            op_id: Key | None = None, timeout: Seconds | None = None) -> Decision:
        """Ends the reservation and takes the amount used."""
    @native
    async def _cancel(self, key: LimiterKey, id: str, *, rate: Rates | None = None,
            timeout: Seconds | None = None) -> Decision:
        """Ends the reservation and takes nothing."""
    # fmt: on


class Reservation(ReservationBase[Reserving]):
    """hotcount.Reservation for event loops: `async with`, and methods to be awaited."""

    __slots__ = ()

    async def commit(
        self, actual: int | None = None, *, op_id: Key | None = None, timeout: Seconds | None = None
    ) -> Decision:
        """As hotcount.Reservation.commit, to be awaited. A cancelled call may have been applied."""
        self._require_open()
        decision = self.decision
        if self._is_held():
            used = self.n if actual is None else actual
            decision = await self._owner._commit(
                self.key, self._id, used, rate=self._rate, op_id=op_id, timeout=timeout
            )
        self._is_ended = True
        return decision

    async def cancel(self, *, timeout: Seconds | None = None) -> None:
        """As hotcount.Reservation.cancel, to be awaited.

        If the task is cancelled meanwhile, the reservation is cancelled in the background.
        """
        if self._is_held() and self._is_open():
            try:
                await self._owner._cancel(self.key, self._id, rate=self._rate, timeout=timeout)
            except BaseException as error:
                if not isinstance(error, Exception):
                    # The interrupted call may not have been sent: cancel in the background.
                    ignore_outcome(
                        self._owner._cancel(self.key, self._id, rate=self._rate, timeout=FOLLOWS)
                    )
                raise
        self._is_ended = True

    async def __aenter__(self) -> Reservation:
        """This reservation. Raises LimitExceeded if it was refused."""
        self._require_admitted()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """commit(), unless the block ended the reservation; cancel() if the block raised."""
        if kind is not None:
            with suppress(HotcountError):
                await self.cancel()
        elif self._is_open():
            await self.commit()


async def reserve_soon(
    limiter: Reserving,
    key: LimiterKey,
    n: int,
    lease: Seconds,
    rate: Rates | None,
    timeout: Seconds | None,
) -> Reservation:
    """aio.Limiter.reserve. If the call fails and may have been applied, cancels the reservation."""
    id = new_op_id()
    try:
        decision = await limiter._reserve(key, n, id, lease, rate=rate, timeout=timeout)
    except BaseException as error:
        if may_be_applied(error):
            # In the background: the failed call may hold n.
            with suppress(HotcountError):
                ignore_outcome(limiter._cancel(key, id, rate=rate, timeout=FOLLOWS))
        raise
    return Reservation(limiter, key, n, id, rate, decision)
