"""PeriodCounter: a number per key and second, minute, hour, day, week or month."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Literal, overload

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._native import attributes, native
from hotcount._types import Amounts, Key, Keys, Numbers, OnErrors, ReadOnly, Seconds
from hotcount.batches import AddedBatch, Int64Batch
from hotcount.counter import Added, Answers, RetryQueue
from hotcount.results import Queued, RetryStats
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
            period: The period of each number.
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
        """The waiting adds and the outcomes of others, as Counter.retry_stats()."""


class PeriodCounter(Lifetime, PeriodCounterBase[Added]):
    """A number per key and second, minute, hour, day, week or month, kept for a while.

    Works on Memory and Redis; keys and numbers as in Counter. A period is one of the calendar in
    the zone tz: a day in which its clock changes has 23 or 25 hours, the hour that it reads twice
    is two hours, and weeks begin on Monday. The present is the store's, whatever this machine's
    clock says. A number and its expiry are set in one step. Safe from many threads and across fork.

    Stands under {store prefix}{prefix}:{period}:{tz}:{label}:{key}, a plain integer. The label is
    2026-11-21 for days and weeks (their first day), 2026-11 for months, and 2026-11-21T170000Z, the
    beginning in UTC, for shorter periods.

    Example:
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
        """Adds n and returns the period's number after this add.

        With retry= it is a Queued while Redis does not answer, as in Counter.add. Then at is not
        checked: such an add expires, or is refused, when Redis answers (retry_stats()).

        Args:
            key: As in Counter.add.
            n: Any int64, negative too.
            at: An aware datetime, in any zone. None: the store's present.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            ConfigError: The period of at is not kept any more, or begins more than 100 years ahead,
                or at is naive; nothing was added.
            HotcountError: As Counter.add does.

        Example:
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

    # A PeriodCounter[int] is a PeriodCounter[int | Queued] too; the first that fits is taken.
    @overload
    def add_many(  # type: ignore[overload-overlap]
        self: PeriodCounter[int],
        keys: Keys | Amounts,
        n: Numbers = 1,
        at: datetime | None = None,
        *,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Int64Batch: ...
    @overload
    def add_many(
        self: PeriodCounter[int | Queued],
        keys: Keys | Amounts,
        n: Numbers = 1,
        at: datetime | None = None,
        *,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> AddedBatch: ...
    @native
    def add_many(
        self,
        keys: Keys | Amounts,
        n: Numbers = 1,
        at: datetime | None = None,
        *,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Int64Batch | AddedBatch:
        """Adds to many keys, in order, and returns each one's number after its add.

        Args:
            keys: A sequence, or a NumPy array of str or bytes; they may repeat. Or a mapping of key
                to amount, which takes no n.
            n: One int for all, or one for each, as in Counter.add_many.
            at: An aware datetime, whose period all are added to; None: the store's present.
            errors: 'raise': BatchError with .result and .errors once all are settled. 'return':
                they are in the batch's .errors.
            timeout: Seconds for all of it. None: the store's.

        Returns:
            An Int64Batch. With retry= an AddedBatch, whose elements are numbers, and Queued where
            an add waits.

        Raises:
            ConfigError, TypeError: As add and Counter.add_many do. A period of at that is not kept
                is the error of each element.

        Over Redis 256 keys travel in one script, whose adds count in one period; a batch that is
        sent as the present ends may count its rest in the next period.

        >>> import hotcount
        >>> views = hotcount.PeriodCounter("memory://", "hour")
        >>> views.add_many(["home", "about", "home"], [1, 5, 2]).tolist()
        [1, 5, 3]
        """

    @native
    def get_many(
        self,
        keys: Keys,
        at: datetime | None = None,
        *,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Int64Batch:
        """The numbers of many keys, of the period that at is in; 0 where there was no add.

        keys, errors and timeout as in add_many; at: as in get.

        Raises:
            BatchError: With errors='raise', once all are settled.
            ConfigError, TypeError: As get does.

        >>> import hotcount
        >>> views = hotcount.PeriodCounter("memory://", "hour")
        >>> views.add("home"), views.get_many(["home", "about"]).tolist()
        (1, [1, 0])
        """

    @native
    def series(
        self,
        key: Key,
        start: datetime,
        end: datetime,
        *,
        tz: str | None = None,
        period: Period | None = None,
        timeout: Seconds | None = None,
    ) -> list[tuple[datetime, int]]:
        """Each period's beginning and its number, in order; 0 where there was no add.

        Args:
            key: As in add.
            start, end: Aware datetimes. The series has the period that start is in, and all
                others that begin before end.
            tz: An IANA name, such as that of a viewer: periods are those of its calendar, and
                beginnings are told in it. None: the counter's.
            period: Of the series: each number is the sum of the counter's periods within. None: the
                counter's.
            timeout: Seconds, more than 0. None: the store's.

        Returns:
            A list of (datetime, int). One round trip, not a snapshot: adds go on meanwhile.

        Raises:
            ConfigError: end is before start, they are more than 100,000 of the counter's periods
                apart, tz is unknown, or a period of the series does not consist of whole periods of
                the counter: days of another zone over a counter of days, or of a zone that is half
                an hour off over one of hours.
            CounterOverflowError: A sum does not fit 64 bits.

        Hours can be read as the days of every zone that is whole hours from the counter's, with 23
        or 25 of them when its clock changes; minutes as those of every zone.

        >>> import hotcount
        >>> from datetime import datetime, timedelta, timezone
        >>> views = hotcount.PeriodCounter("memory://", "hour")
        >>> start = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
        >>> days = views.series(
        ...     "home", start, start + timedelta(days=1), tz="America/New_York", period="day"
        ... )
        >>> for day, count in days:
        ...     print(day, count)
        2026-11-20 00:00:00-05:00 0
        2026-11-21 00:00:00-05:00 0
        """
