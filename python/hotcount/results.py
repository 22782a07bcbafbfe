"""What calls answer: frozen dataclasses with slots.

They compare and hash by value, survive pickle, are taken apart by ``match`` and
``dataclasses.asdict``, and are JSON objects in FastAPI, Flask and Django REST framework. C++ fills
them.
"""

from __future__ import annotations

import enum
import uuid
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hotcount._native import native, result
from hotcount._types import MaybeNone


class Result:
    """What the dataclasses of this module share."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields by their names.

        >>> import hotcount
        >>> hotcount.TryAdd(True, 5).to_dict()
        {'applied': True, 'value': 5}
        """
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    # NumPy's name: the encoder of Django REST framework asks values for it.
    tolist = to_dict


@result
@dataclass(frozen=True, slots=True)
class Decision(Result):
    """What a limiter answered. True where the hit was admitted.

    >>> import hotcount
    >>> limiter = hotcount.Limiter("memory://", "2/minute")
    >>> [bool(limiter.hit("user:1")) for _ in range(3)]
    [True, True, False]
    """

    allowed: bool
    """Whether it was admitted."""
    limit: int
    """What an idle key admits at once. Of several rates that of the one that says most: of those
    that refused the one that refuses for longest, else the one that has least left."""
    remaining: int
    """What is left after this call; of several rates the least."""
    retry_after: float | None
    """Seconds until the same hit would be admitted if nobody else came: 0 where it was, None where
    it costs more than a limit and so never will."""
    reset_after: float
    """Seconds until `limit` is left again if nobody else came, as of a key that was never hit."""
    reason: str
    """'allowed', 'limited', 'cost_above_limit', 'blocked': by Limiter.block, 'untracked': admitted
    without being counted, because the Memory store is full (its when_full), or because on_error
    'local' has no room for more keys, 'shadow': a limit refuses it, and the limiter only looks on
    (its shadow), or 'open', 'closed', 'local': Redis is away, and the limiter's on_error admitted
    it, refused it (which admits with shadow), or counted in this process alone."""
    policy: str
    """The limiter's name."""
    period: float
    """Seconds of the rate that limit is of."""
    violated: tuple[str, ...] = ()
    """The rates that refused, as text; empty where the hit was admitted."""
    quota: int | None = None
    """How many that rate admits in each period in the long run: another number than limit where the
    rate has a burst. None is limit."""

    def __bool__(self) -> bool:
        """Whether it was admitted."""
        return self.allowed

    @native
    def headers(self, style: Literal["ietf", "legacy"] = "ietf") -> dict[str, str]:
        """HTTP headers that tell a client.

        Seconds are whole, rounded up. A denial that may pass adds Retry-After.

        Args:
            style: 'ietf': RateLimit-Policy and RateLimit of
                draft-ietf-httpapi-ratelimit-headers-11; "5/minute burst 9" is
                q=5;w=60;hotcount-burst=9, and t is retry_after when the hit was denied, else
                reset_after. 'legacy': X-RateLimit-Limit, -Remaining and -Reset (seconds from now).

        Raises:
            ConfigError: The style is another.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "10/minute", name="api")
            >>> limiter.hit("user:1").headers()
            {'RateLimit-Policy': '"api";q=10;w=60', 'RateLimit': '"api";r=9;t=6'}
        """


@result
@dataclass(frozen=True, slots=True)
class TryAdd(Result):
    """What Counter.try_add came to. True where it was applied.

    >>> import hotcount
    >>> bool(hotcount.Counter("memory://").try_add("seats", 3, max=2))
    False
    """

    applied: bool
    """Whether n was added."""
    value: int
    """After the add, or as it stands where refused."""

    def __bool__(self) -> bool:
        """Whether it was applied."""
        return self.applied


@result
class Upsert(enum.IntEnum):
    """What an upsert or remove of LiveSets came to. True where it is APPLIED; str() is the name.

    >>> import hotcount
    >>> outcome = hotcount.LiveSets("memory://").upsert("never made", "member", 1.0)
    >>> bool(outcome), str(outcome), int(outcome)
    (False, 'ABSENT', 2)
    """

    FAILED = 0
    """Only in a batch, where the element has its exception in .errors."""
    APPLIED = 1
    """The member has the score."""
    ABSENT = 2
    """No such set; nothing was made."""
    STALE = 3
    """The member's last write has this version or a higher one."""
    EXPIRING = 4
    """The set's TTL is not above the gate."""
    NO_TTL = 5
    """The set never expires, and was left alone: see LiveSets.sweep."""

    # An IntEnum is as true as its number, and prints it: neither is what an answer should do.

    def __bool__(self) -> bool:
        """Whether it is APPLIED."""
        return self is Upsert.APPLIED

    def __str__(self) -> str:
        """The name."""
        return self.name

    def __format__(self, specification: str) -> str:
        """The name, as a str is formatted."""
        return format(self.name, specification)


@result
@dataclass(frozen=True, slots=True)
class SweepReport(Result):
    """What LiveSets.sweep came to.

    >>> import hotcount
    >>> hotcount.LiveSets("memory://").sweep("feed:*")
    SweepReport(scanned=0, found=0, deleted=0, keys=())
    """

    scanned: int
    """Sorted sets that matched."""
    found: int
    """Of them, those without a TTL."""
    deleted: int
    """Of them, those that still had none when they were deleted."""
    keys: tuple[str | bytes, ...]
    """The first 1,000 of those found."""


@result
@dataclass(frozen=True, slots=True)
class Cast(Result):
    """The answer of cast, retract and toggle.

    Example:
        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, user=1)
        Cast(counted=True, changed=True, previous=0, value=1, pending=False, count=None)
        >>> votes.toggle(7, user=1, with_count=True).count.value
        0
    """

    counted: bool
    """The user's vote counts now: value is not 0."""
    changed: bool | MaybeNone
    """This call changed it; a repeat, or an older version, does not. None while it is pending."""
    previous: int | MaybeNone
    """The vote before this call, 0 for none. None while it is pending."""
    value: int
    """The user's vote for the item now: what the call asked for, unless an older version lost."""
    pending: bool = False
    """With 'write_behind': the vote waits to be written to the database. What it changes is not
    known yet: changed and previous are None."""
    count: Count | None = None
    """With with_count=True the item's count after this vote, which is in it; with 'write_behind'
    what the database has, without this vote while it waits. None: it was not asked for, or
    could not be read until the timeout, or the server went away; the vote stands all the same."""


@result
@dataclass(frozen=True, slots=True, eq=False)
class Count(Result):
    """An item's count. It compares, orders, hashes, formats and indexes as its value.

    Two are equal where their values are, whatever else they have. + and - give an int; for other
    arithmetic take .value.

    Example:
        >>> import hotcount
        >>> count = hotcount.Count(100, exact=True, as_of=0.0, source="sql", pending=0)
        >>> count == 100, count > 99.5, f"{count:,} votes", count.source
        (True, True, '100 votes', 'sql')
        >>> sum([count, count]), count.value / 8
        (200, 12.5)
    """

    value: int
    """The sum over the item's votes, and its opening balance."""
    exact: bool
    """Whether it agrees with the votes as of as_of. Of rows that others write to the vote table,
    those count that create_tables(outside_writes=) says. False once this object has met a cascade
    that nothing counts, or a count that differs: in create_tables(), migration(), stats() or
    reconcile(dry_run=True)."""
    as_of: float
    """When it was read, in seconds since 1970 UTC; of a copy, when a fold counted it; of a replica,
    a time for which it surely has every vote acknowledged before."""
    source: str
    """Where it was read: 'sql', 'cache' or 'replica'."""
    pending: int
    """Votes acknowledged but not yet in value. With 'write_behind' those that wait in the item's
    stream, other items' among them: at most so many are its own; -1 if Redis did not answer. Of a
    WriteBehindCounter: adds in value that the database does not have yet."""

    def __int__(self) -> int:
        """Its value."""
        return self.value

    __index__ = __int__

    def __float__(self) -> float:
        """Its value."""
        return float(self.value)

    def __bool__(self) -> bool:
        """Whether its value is not 0."""
        return self.value != 0

    def __str__(self) -> str:
        """Its value; repr() shows the rest."""
        return str(self.value)

    def __format__(self, spec: str) -> str:
        """Its value, as an int takes the spec."""
        return format(self.value, spec)

    def __hash__(self) -> int:
        """Its value's."""
        return hash(self.value)

    # What it is compared with is asked as an int would ask it: other types have their say.

    def __eq__(self, other: object) -> bool:
        """Whether its value is equal."""
        return self.value == (other.value if isinstance(other, Count) else other)

    def __lt__(self, other: Count | float) -> bool:
        """Whether its value is less."""
        return self.value < (other.value if isinstance(other, Count) else other)

    def __le__(self, other: Count | float) -> bool:
        """Whether its value is less or equal."""
        return self.value <= (other.value if isinstance(other, Count) else other)

    def __gt__(self, other: Count | float) -> bool:
        """Whether its value is greater."""
        return self.value > (other.value if isinstance(other, Count) else other)

    def __ge__(self, other: Count | float) -> bool:
        """Whether its value is greater or equal."""
        return self.value >= (other.value if isinstance(other, Count) else other)

    def __add__(self, other: Count | int) -> int:
        """The sum of both values."""
        return self.value + (other.value if isinstance(other, Count) else other)

    __radd__ = __add__

    def __sub__(self, other: Count | int) -> int:
        """The difference of both values."""
        return self.value - (other.value if isinstance(other, Count) else other)

    def __rsub__(self, other: int) -> int:
        """The difference of both values."""
        return other - self.value


@result
@dataclass(frozen=True, slots=True)
class Tally(Result):
    """An item's votes by sign, what Votes.tally counts: those without a user among them."""

    up: int
    """Votes above 0."""
    down: int
    """Votes below 0."""
    score: int
    """The sum of their values."""


@result
@dataclass(frozen=True, slots=True)
class Drift(Result):
    """An item whose count differed from its votes, or an orphan: what Votes.reconcile finds."""

    item: int | str | uuid.UUID
    """The item's id."""
    counted: int
    """What the count said."""
    actual: int
    """What the votes say, and the opening balance."""
    orphan: bool = False
    """The item has no row: votes, a count or an opening balance are left of it."""


@result
@dataclass(frozen=True, slots=True)
class FlushReport(Result):
    """What Votes.flush came to, and WriteBehindCounter.flush, whose items are keys."""

    acked: int
    """Items whose count in the item table was brought up to date; keys that Redis has now. With
    'write_behind' votes that waited when the call began, and are in the database."""
    pending: int
    """Items, or such votes, not reached before the deadline."""
    at_risk: int
    """Acknowledged votes that a crash now could lose."""


@result
@dataclass(frozen=True, slots=True)
class Contract(Result):
    """What an acknowledgement means, and what may be lost.

    Of Votes.contract and WriteBehindCounter.contract.
    """

    strategy: str
    """The strategy's name."""
    acknowledged: str
    """What is true when cast returns."""
    may_lose: str
    """What may be lost, and when."""
    durable: bool
    """An acknowledged vote is in the database, and survives the death of this process. False where
    it may be in Redis alone, whose persistence decides: may_lose says what is lost then."""
    exact: bool
    """count() equals the committed votes at all times."""


@result
@dataclass(frozen=True, slots=True)
class SyncRound(Result):
    """What one round of a SyncWorker did, in items; with 'write_behind' in votes, of a
    WriteBehindCounter in cells."""

    scanned: int
    """Counts, or votes, found in the cache."""
    filled: int
    """Given what the database knew."""
    saved: int
    """Written to the item table, or to the vote table."""
    deleted: int
    """Saved, past their retention, and taken out of the cache."""
    recounted: int
    """Summed again from the votes: a count was lost or in doubt."""
    unsettled: int
    """Not saved as found: for the next round."""
    at_risk: int
    """Votes in those, which only the cache has."""
    refused: int = 0
    """With 'write_behind': votes that the database refuses for good, set aside."""


@result
@dataclass(frozen=True, slots=True)
class Queued(Result):
    """What add of a counter with retry= answers while Redis does not: the add waits.

    It is no number: the value after this add is not known before it is counted.

    >>> import hotcount
    >>> hotcount.Queued(waiting=3, durable=True)
    Queued(waiting=3, durable=True)
    """

    waiting: int
    """How many adds wait now, this one included."""
    durable: bool
    """Whether it is on the disk: the queue has a path, and fsync='always'."""


@result
@dataclass(frozen=True, slots=True)
class RetryStats(Result):
    """What became of the adds in a counter's retry queue, since the counter was made.

    >>> import hotcount
    >>> counter = hotcount.Counter("memory://", retry=hotcount.RetryQueue())
    >>> counter.retry_stats().waiting
    0
    """

    waiting: int
    """Adds that wait now."""
    queued: int
    """Adds put into the queue, those found in its file included."""
    replayed: int
    """Adds of the queue that are counted."""
    expired: int
    """Counted nowhere: they waited longer than max_age, or their key's life was over, or their
    period was not kept any more. One that was sent before Redis' clock stepped by more than max_age
    may have been counted."""
    refused: int
    """Counted nowhere: their key holds no counter, or would leave signed 64 bits, or their period
    begins more than 100 years ahead."""
    dropped: int
    """Given up for others (when_full="drop_oldest"): counted nowhere, unless Redis had it and
    its answer was lost."""
    outages: int
    """Times that Redis stopped answering."""
    oldest_age: float
    """Seconds that the oldest add has waited."""
    journal_bytes: int
    """Size of the file; 0 without one."""
    is_away: bool
    """Redis did not answer when it was last asked."""
