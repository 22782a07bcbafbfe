"""PeriodCounter: a number per key and second, minute, hour, day, week or month."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Literal

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._native import attributes, native
from hotcount._types import Key, ReadOnly, Seconds
from hotcount.counter import Added, Answers, RetryQueue
from hotcount.results import RetryStats
from hotcount.stores import KeyValueStore

Period = Literal["second", "minute", "hour", "day", "week", "month"]


@attributes
class PeriodCounterBase(Handle, Generic[Added]):
    """The constructor and the options of the sync and the aio class.

    PeriodCounter[int] returns numbers; with retry= it is a PeriodCounter[int | Queued].
    """

    __slots__ = ()

    period: ReadOnly[Period]
    tz: ReadOnly[str]
    keep: ReadOnly[int]
    prefix: ReadOnly[Key]
    retry: ReadOnly[RetryQueue | None]

    @native
    def __init__(
        self,
        store: KeyValueStore,
        period: Period = "day",
        tz: str = "UTC",
        keep: int = 400,
        *,
        prefix: Key = "period",
        retry: Answers[Added] | None = None,
    ) -> None:
        """Makes a counter; nothing is sent.

        Args:
            store: A Memory or a Redis (sync or aio), or its URL.
            period: What a number is of.
            tz: An IANA name, as zoneinfo knows it.
            keep: How many periods are kept, the present one included: 1 or more, and at most 100
                years of them. More costs a key for each period in which there was an add. If
                counters of different keep add to one number, the longest wins.
            prefix: Stands before every key, with a ':'; "": nothing.
            retry: Where adds wait while Redis does not answer. Such an add returns Queued, never a
                number, and is counted in the period that it was made in, however late; if that
                period is not kept any more by then, the add expires. Meanwhile the present is what
                the store's clock said last, and the time since; this machine's clock if the process
                has not heard of it yet. get and series give what the store has. Over Memory nothing
                ever waits.

        Raises:
            ConfigError, TypeError: As Counter does.
        """

    @native
    def retry_stats(self) -> RetryStats:
        """How many adds wait, and what became of others, as Counter.retry_stats()."""


class PeriodCounter(Lifetime, PeriodCounterBase[Added]):
    """A number per key and second, minute, hour, day, week or month, kept for a while.

    Works on Memory and Redis; keys and numbers as in Counter. A period is one of the calendar in
    the zone tz: a day in which its clock changes has 23 or 25 hours, the hour that it reads twice
    is two hours, and weeks begin on Monday. The present is the store's, whatever this machine's
    clock says. A number and its expiry are set in one step. Without retry= nothing is replayed: an
    add whose answer is lost is an OutcomeUnknownError. Safe from many threads and across fork.

    Stands under {store prefix}{prefix}:{period}:{tz}:{label}:{key}, a plain integer; the label is
    2026-11-21 for days and weeks (their first day), 2026-11 for months, and 2026-11-21T170000Z, the
    beginning in UTC, for what is shorter.

    >>> import hotcount
    >>> visits = hotcount.PeriodCounter("memory://", "day", "Europe/Berlin", keep=30)
    >>> visits.add("home"), visits.add("home"), visits.get("home")
    (1, 2, 2)
    """

    __slots__ = ("__weakref__",)

    @native
    def add(
        self, key: Key, n: int = 1, at: datetime | None = None, *, timeout: Seconds | None = None
    ) -> Added:
        """Adds n (any int64, negative too) and returns the period's number after this add.

        at: an aware datetime, in any zone; None: the store's present. Where at's period is not kept
        any more, or begins more than 100 years ahead, or at is naive: ConfigError, nothing added.
        Other errors as in Counter.add. timeout: seconds, more than 0; None is the store's.

        With retry= it is a Queued while Redis does not answer, as in Counter.add. Then at is not
        checked: such an add expires, or is refused, when Redis answers (retry_stats()).

        >>> import hotcount
        >>> from datetime import datetime, timedelta, timezone
        >>> visits = hotcount.PeriodCounter("memory://")
        >>> yesterday = datetime.now(timezone.utc) - timedelta(days=1)
        >>> visits.add("home", 3, at=yesterday), visits.get("home")
        (3, 0)
        """

    @native
    def get(self, key: Key, at: datetime | None = None, *, timeout: Seconds | None = None) -> int:
        """The number of the period that at is in, by default the store's present.

        0 where there was no add, and where the period is not kept any more.

        >>> import hotcount
        >>> hotcount.PeriodCounter("memory://").get("home")
        0
        """

    @native
    def series(
        self, key: Key, start: datetime, end: datetime, *, timeout: Seconds | None = None
    ) -> list[tuple[datetime, int]]:
        """Each period's beginning, in tz, and its number, in order; 0 where there was no add.

        From the period that start is in to the last that begins before end, 100,000 at most; start
        and end are aware datetimes, an end before the start is a ConfigError. One round trip, not a
        snapshot: adds go on meanwhile. An error of one period is raised.

        >>> import hotcount
        >>> from datetime import datetime, timedelta, timezone
        >>> visits = hotcount.PeriodCounter("memory://")
        >>> start = datetime(2026, 11, 20, tzinfo=timezone.utc)
        >>> for day, count in visits.series("home", start, start + timedelta(days=2)):
        ...     print(day.date(), count)
        2026-11-20 0
        2026-11-21 0
        """
