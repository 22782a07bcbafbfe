"""ConcurrencyLimit: at most so many holders of a key at once, for all processes together."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._limit import FOLLOWS, Held, PlacePatience, may_be_applied
from hotcount._line import acquire_now, name_of
from hotcount._native import attributes, native
from hotcount._types import LimiterKey, ReadOnly, Seconds
from hotcount.errors import HotcountError, LeaseLostError, OutcomeUnknownError
from hotcount.functions import new_op_id
from hotcount.results import Decision
from hotcount.stores import AnyStore

AnyLimit = TypeVar("AnyLimit")


@attributes
class ConcurrencyLimitBase(Handle):
    """The constructor and the options of the sync and the aio class."""

    __slots__ = ()

    limit: ReadOnly[int]
    lease: ReadOnly[float]
    name: ReadOnly[str]

    @native
    def __init__(
        self, store: AnyStore, limit: int, lease: Seconds = 30.0, *, name: str | None = None
    ) -> None:
        """Makes a limit; nothing is sent.

        Args:
            store: A Memory or a Redis (sync or aio), or its URL.
            limit: How many may hold a key at once, 1 to 10,000.
            lease: Seconds that a place is held that is neither renewed nor given back, 0.001 to 366
                days.
            name: Part of the keys, 1 to 100 printable ASCII characters without quotes and
                backslashes; None is 'default'. Limits of one name share their places, whatever
                their limit and lease are.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
        """


class PlaceBase(Held[AnyLimit]):
    """What the places of the sync and the aio class have in common."""

    __slots__ = ()

    def __repr__(self) -> str:
        """The key, and whether the place was taken."""
        return f"<{type(self).__name__} of {self.key!r}: {self.decision.reason}>"

    def _is_ours(self) -> bool:
        """Whether the store has it, for this process; an untracked one stands nowhere."""
        counted = self.decision.allowed and self.decision.reason != "untracked"
        return counted and self._is_open()

    def _is_untracked(self) -> bool:
        return self.decision.reason == "untracked" and not self._is_ended

    def _lost(self) -> LeaseLostError:
        return LeaseLostError(
            f"the place of {self.key!r} is no longer held: its lease has ended, or it was given "
            "back. Stop what it was taken for"
        )


class Place(PlaceBase["ConcurrencyLimit"]):
    """A place that ConcurrencyLimit.acquire took, or a refusal. True where it was taken.

    `with` gives it back at the end of the block; LimitExceeded is raised in place of the block
    where it is a refusal. key and decision are attributes: decision.retry_after of a refusal is
    when so many leases have ended that a place is free. A forked child cannot use its parent's
    place: release() does nothing there.
    """

    __slots__ = ()

    def renew(self, *, timeout: Seconds | None = None) -> None:
        """The lease begins anew: for work that takes longer than it.

        timeout: seconds, more than 0; None is the store's. LeaseLostError: the lease has ended, the
        place was given back, or a forked child asks; others may hold the place, so stop. Other
        errors as in acquire; then the old lease goes on, or the new one.

        >>> import hotcount
        >>> with hotcount.ConcurrencyLimit("memory://", 1, lease=60).acquire("export") as place:
        ...     place.renew()
        """
        if self._is_untracked():
            return
        if not (self._is_ours() and self._owner._renew(self.key, self._id, timeout=timeout)):
            raise self._lost()

    def release(self, *, timeout: Seconds | None = None) -> bool:
        """Gives the place back. False: the lease had ended before, or there was nothing to give.

        Only this place: one whose lease has ended frees nobody else's. After an error the place is
        free at the latest when its lease ends, and the call may be repeated; a repeat after
        OutcomeUnknownError is False where the first has given it back.

        timeout: seconds, more than 0; None is the store's.

        >>> import hotcount
        >>> place = hotcount.ConcurrencyLimit("memory://", 1).acquire("export")
        >>> place.release(), place.release()
        (True, False)
        """
        if not self._is_ours():
            return False
        held = self._owner._release(self.key, self._id, timeout=timeout)
        self._is_ended = True
        return held

    def __enter__(self) -> Place:
        """This place. LimitExceeded where none was taken."""
        self._require_admitted()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """release(); where that fails, the lease ends by itself, and what the block did stands."""
        with suppress(HotcountError):
            try:
                self.release()
            except OutcomeUnknownError:
                self._owner._release_later(self.key, self._id, timeout=FOLLOWS)


class ConcurrencyLimit(Lifetime, ConcurrencyLimitBase):
    """At most so many holders of a key at once, for all processes together.

    Works on Memory and Redis, on the store's clock; a place is taken in one step, over Redis in one
    round trip. The place of a holder that died is free when its lease ends. A holder that works for
    longer than the lease must renew() its place, at a third of the lease or so; one whose lease has
    ended is told so when it asks, and until then one more may be at work. Over Redis a failover
    may forget places that were taken just before. Keys are as those of Limiter. Safe from many
    threads and across fork.

    >>> import hotcount
    >>> exports = hotcount.ConcurrencyLimit("memory://", 2, lease=60)
    >>> with exports.acquire("user:1") as first, exports.acquire("user:1"):
    ...     print(first.decision.remaining, bool(exports.acquire("user:1", timeout=0)))
    1 False
    """

    __slots__ = ("__weakref__",)

    def acquire(self, key: LimiterKey, timeout: Seconds | None = None) -> Place:
        """Takes a place, and waits for one where all are held.

        timeout: seconds to wait, 0 or more; None waits for ever. When it has passed, the answer is
        a Place that is false, with the refusal in its decision; `with` raises LimitExceeded then.
        Waiters of this object for one key are a queue, first come first served. The head asks
        again after 5 ms at first and 100 ms at most, 20 ms where others wait behind it. Each
        question has the store's timeout, so an error comes within both times together.

        DeadlineError, UnavailableError: nothing was taken. OutcomeUnknownError: the place may be
        held until its lease ends; a release that nobody waits for follows it. WrongTypeError: the
        key holds something else. ConfigError and TypeError name a bad argument; nothing was sent.

        >>> import hotcount
        >>> exports = hotcount.ConcurrencyLimit("memory://", 1, lease=60)
        >>> place = exports.acquire(("user", "1"))
        >>> second = exports.acquire(("user", "1"), timeout=0.01)
        >>> bool(place), bool(second), second.decision.reason
        (True, False, 'limited')
        """
        holder = new_op_id()

        def ask() -> Decision:
            try:
                return self._acquire(key, holder)
            except BaseException as error:
                if may_be_applied(error):
                    with suppress(HotcountError):
                        self._release_later(key, holder, timeout=FOLLOWS)
                raise

        decision = acquire_now(self, name_of(key), 1, PlacePatience(timeout), ask)
        return Place(self, key, holder, decision)

    @native
    def _acquire(self, key: LimiterKey, holder: str, *, timeout: Seconds | None = None) -> Decision:
        """Takes a place for this holder, or answers that all are held."""

    @native
    def _release_later(
        self, key: LimiterKey, holder: str, *, timeout: Seconds | None = None
    ) -> None:
        """Gives back what the holder may hold, and returns at once."""

    @native
    def _renew(self, key: LimiterKey, holder: str, *, timeout: Seconds | None = None) -> bool:
        """Whether the holder's lease has begun anew."""

    @native
    def _release(self, key: LimiterKey, holder: str, *, timeout: Seconds | None = None) -> bool:
        """Whether the holder gave back what it held."""
