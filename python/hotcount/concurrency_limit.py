"""ConcurrencyLimit: at most N holders of a key at once, for all processes together."""

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
            lease: Seconds after which a place is free that was neither renewed nor given back,
                0.001 to 366 days.
            name: Part of the keys, 1 to 100 printable ASCII characters without quotes and
                backslashes; None is 'default'. Limits of one name share their places, whatever
                their limit and lease are.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
        """


class PlaceBase(Held[AnyLimit]):
    """The base class of hotcount.Place and hotcount.aio.Place."""

    __slots__ = ()

    def __repr__(self) -> str:
        """The key, and whether the place was taken."""
        return f"<{type(self).__name__} of {self.key!r}: {self.decision.reason}>"

    def _is_ours(self) -> bool:
        """Whether the store has the place, for this process; it has no untracked place."""
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
    """A place taken by ConcurrencyLimit.acquire, or a refusal. True if a place was taken.

    `with` gives the place back at the end of the block; for a refusal it raises LimitExceeded
    instead of running the block. key and decision are attributes. decision.retry_after of a refusal
    is the time until enough leases have ended for a free place. A forked child cannot use its
    parent's place: release() does nothing there.
    """

    __slots__ = ()

    def renew(self, *, timeout: Seconds | None = None) -> None:
        """Begins the lease anew, for work that takes longer than the lease.

        Args:
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            LeaseLostError: The lease has ended, the place was given back, or a forked child asks.
                Others may hold the place, so stop.
            HotcountError: As acquire does; the old lease or the new one is in force then.

        Example:
            >>> import hotcount
            >>> with hotcount.ConcurrencyLimit("memory://", 1, lease=60).acquire("export") as place:
            ...     place.renew()
        """
        if self._is_untracked():
            return
        if not (self._is_ours() and self._owner._renew(self.key, self._id, timeout=timeout)):
            raise self._lost()

    def release(self, *, timeout: Seconds | None = None) -> bool:
        """Gives the place back.

        It never frees the place of another holder, even after the lease has ended. After an error
        the place is free when its lease ends at the latest, and the call may be repeated.

        Args:
            timeout: Seconds, more than 0. None: the store's.

        Returns:
            False if the lease had ended or no place was held; also for a repeat after an
                OutcomeUnknownError whose call was applied.

        Example:
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
        """This place; LimitExceeded if it is a refusal."""
        self._require_admitted()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """release(). Its errors are dropped: the place is free when its lease ends."""
        with suppress(HotcountError):
            try:
                self.release()
            except OutcomeUnknownError:
                self._owner._release_later(self.key, self._id, timeout=FOLLOWS)


class ConcurrencyLimit(Lifetime, ConcurrencyLimitBase):
    """At most N holders of a key at once, for all processes together.

    Works on Memory and Redis, on the store's clock; a place is taken in one step, over Redis in one
    round trip. The place of a holder that died is free when its lease ends. A holder that works for
    longer than the lease must renew() its place, about every third of the lease. A holder learns
    that its lease has ended only from renew() or release(); until then one holder too many may be
    at work. A failover of Redis may lose places that were taken just before. Keys are as in
    Limiter. Safe from many threads and across fork.

    Example:
        >>> import hotcount
        >>> exports = hotcount.ConcurrencyLimit("memory://", 2, lease=60)
        >>> with exports.acquire("user:1") as first, exports.acquire("user:1"):
        ...     print(first.decision.remaining, bool(exports.acquire("user:1", timeout=0)))
        1 False
    """

    __slots__ = ("__weakref__",)

    def acquire(self, key: LimiterKey, timeout: Seconds | None = None) -> Place:
        """Takes a place; waits for one if all are held.

        The waiters of this object for one key form a queue, first come first served. The head asks
        again after 5 ms at first and 100 ms at most (20 ms with waiters behind it). Each request
        has the store's timeout, so an error comes within the sum of both timeouts.

        Args:
            key: As in Limiter.hit.
            timeout: Seconds to wait, 0 or more. None: for ever.

        Returns:
            A Place. After the timeout it is false, and its decision is the refusal; `with` raises
                LimitExceeded then.

        Raises:
            DeadlineError, UnavailableError: Nothing was taken.
            OutcomeUnknownError: The place may be held until its lease ends; the library sends a
                release.
            WrongTypeError: The key holds something else.
            ConfigError, TypeError: An argument is bad; nothing was sent.

        Example:
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
        """Takes a place for this holder; a refusal if all places are held."""

    @native
    def _release_later(
        self, key: LimiterKey, holder: str, *, timeout: Seconds | None = None
    ) -> None:
        """Releases the holder's place in the background."""

    @native
    def _renew(self, key: LimiterKey, holder: str, *, timeout: Seconds | None = None) -> bool:
        """Begins the holder's lease anew; False if it holds no place."""

    @native
    def _release(self, key: LimiterKey, holder: str, *, timeout: Seconds | None = None) -> bool:
        """Releases the holder's place; False if it holds none."""
