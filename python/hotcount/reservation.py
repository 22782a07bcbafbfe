"""Reservation: an amount that Limiter.reserve holds until the amount used is known."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from hotcount._core import Handle
from hotcount._limit import FOLLOWS, Held, may_be_applied
from hotcount._native import native
from hotcount._types import Key, LimiterKey, Seconds
from hotcount.errors import ConfigError, HotcountError
from hotcount.functions import new_op_id
from hotcount.rate import Rates
from hotcount.results import Decision

AnyReserving = TypeVar("AnyReserving")


class ReservationBase(Held[AnyReserving]):
    """The base class of hotcount.Reservation and hotcount.aio.Reservation."""

    __slots__ = {"_rate": None, "n": "How much was asked for, in the units of the limit."}

    n: int

    def __init__(
        self,
        limiter: AnyReserving,
        key: LimiterKey,
        n: int,
        id: str,
        rate: Rates | None,
        decision: Decision,
    ) -> None:
        """Use reserve(), which makes one."""
        super().__init__(limiter, key, id, decision)
        self.n = n
        self._rate = rate

    def __repr__(self) -> str:
        """The key, how much, and whether there was room for it."""
        return f"<{type(self).__name__} of {self.n} of {self.key!r}: {self.decision.reason}>"

    def _is_held(self) -> bool:
        """Whether the store holds it. False for reason 'shadow', for a decision of on_error, and
        for 'untracked' (a full Memory store)."""
        return self.decision.allowed and self.decision.reason == "allowed"

    def _require_open(self) -> None:
        self._require_admitted()
        if not self._is_open():
            raise ConfigError(
                f"the reservation of {self.n} of {self.key!r} was committed or cancelled already, "
                "or is another process's; nothing was taken"
            )


class Reserving(Handle):
    """The calls that Limiter.reserve and its Reservation make."""

    __slots__ = ()

    @native
    def _reserve(
        self,
        key: LimiterKey,
        n: int,
        id: str,
        lease: Seconds,
        *,
        rate: Rates | None = None,
        timeout: Seconds | None = None,
    ) -> Decision:
        """Holds n for the id."""

    @native
    def _cancel_later(
        self, key: LimiterKey, id: str, *, rate: Rates | None = None, timeout: Seconds | None = None
    ) -> None:
        """Cancels the reservation in the background."""

    @native
    def _commit(
        self,
        key: LimiterKey,
        id: str,
        actual: int,
        *,
        rate: Rates | None = None,
        op_id: Key | None = None,
        timeout: Seconds | None = None,
    ) -> Decision:
        """Ends the reservation and takes the amount used."""

    @native
    def _cancel(
        self, key: LimiterKey, id: str, *, rate: Rates | None = None, timeout: Seconds | None = None
    ) -> Decision:
        """Ends the reservation and takes nothing."""


class Reservation(ReservationBase[Reserving]):
    """An amount held by Limiter.reserve, or a refusal. True if the limit had room for it.

    For 'gcra', the buckets, 'fixed_window' and 'sliding_window', over Memory and Redis; another
    limiter is a ConfigError. Until the reservation ends, the limit counts n as taken; then only the
    amount used is taken. A key has up to 1,000 reservations; more are refused until a lease ends.
    Limiter.reset drops them. After OutcomeUnknownError of reserve() n may be held until the lease
    ends; the library sends a cancel. If on_error decided during an outage, nothing is held: then
    commit() and cancel() take nothing and send nothing.

    In a `with` block commit(actual) states what was used. A block that ends without it commits n;
    one that raises cancels. A refusal raises LimitExceeded in place of the block. key, n and
    decision are attributes. A forked child ends no reservation of its parent.

    Example:
        >>> import hotcount
        >>> limiter = hotcount.Limiter("memory://", "5000/minute")
        >>> with limiter.reserve("user:1", 4000, lease=60) as reserved:
        ...     print(bool(limiter.hit("user:1", 1001)), reserved.commit(1234).remaining)
        False 3766
    """

    __slots__ = ()

    def commit(
        self, actual: int | None = None, *, op_id: Key | None = None, timeout: Seconds | None = None
    ) -> Decision:
        """Ends the reservation and takes the amount used.

        The decision is a refusal if the limit has no room for that amount, because it is more than
        was reserved or the lease has ended. It is charged anyway, up to twice the limit, as
        charge_denied does.

        Args:
            actual: The amount used, 0 or more. None: the amount reserved.
            op_id: 1 to 1,000 bytes; it names the work, not the reservation. The amount is taken
                once: a repeat for the key within the limiter's op_keep returns the first decision
                and takes nothing, so the call may be repeated after any error. The repeat may come
                from another reservation of the key, such as when the work is done again: that
                reservation ends and takes nothing.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            LimitExceeded: The reservation is a refusal.
            ConfigError: The reservation was committed or cancelled already.
            DeadlineError, UnavailableError: Nothing was taken; call it again.
            OutcomeUnknownError: The amount may have been taken; a repeat without the same op_id may
                take it twice.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "100/minute")
            >>> limiter.reserve("tokens", 80).commit(30).remaining
            70
        """
        self._require_open()
        decision = self.decision
        if self._is_held():
            used = self.n if actual is None else actual
            decision = self._owner._commit(
                self.key, self._id, used, rate=self._rate, op_id=op_id, timeout=timeout
            )
        self._is_ended = True
        return decision

    def cancel(self, *, timeout: Seconds | None = None) -> None:
        """Gives back the amount reserved. After commit() or cancel() it does nothing.

        The call may be repeated after any error; the hold ends with its lease at the latest.

        Args:
            timeout: Seconds, more than 0. None: the store's.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "100/minute")
            >>> limiter.reserve("tokens", 80).cancel()
            >>> limiter.peek("tokens").remaining
            100
        """
        if self._is_held() and self._is_open():
            self._owner._cancel(self.key, self._id, rate=self._rate, timeout=timeout)
        self._is_ended = True

    def __enter__(self) -> Reservation:
        """This reservation; LimitExceeded if it is a refusal."""
        self._require_admitted()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """commit(), unless the block ended the reservation; cancel() if the block raised."""
        if kind is not None:
            with suppress(HotcountError):
                self.cancel()
        elif self._is_open():
            self.commit()


def reserve_now(
    limiter: Reserving,
    key: LimiterKey,
    n: int,
    lease: Seconds,
    rate: Rates | None,
    timeout: Seconds | None,
) -> Reservation:
    """Does Limiter.reserve; cancels the reservation if a failed call may have been applied."""
    id = new_op_id()
    try:
        decision = limiter._reserve(key, n, id, lease, rate=rate, timeout=timeout)
    except BaseException as error:
        if may_be_applied(error):
            with suppress(HotcountError):
                limiter._cancel_later(key, id, rate=rate, timeout=FOLLOWS)
        raise
    return Reservation(limiter, key, n, id, rate, decision)
