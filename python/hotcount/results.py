"""The results of calls: frozen dataclasses with slots, which the C++ core fills.

Results compare and hash by value, can be pickled, work with ``match`` and ``dataclasses.asdict``,
and are JSON objects in FastAPI, Flask and Django REST framework.
"""

from __future__ import annotations

import enum
import uuid
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hotcount._native import native, result
from hotcount._types import MaybeNone


class Result:
    """The base class of all results."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields by their names.

        >>> import hotcount
        >>> hotcount.TryAdd(True, 5).to_dict()
        {'applied': True, 'value': 5}
        """
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    # The JSON encoder of Django REST framework calls `tolist`, which is NumPy's name.
    tolist = to_dict


@result
@dataclass(frozen=True, slots=True)
class Decision(Result):
    """The decision of a limiter. True if the hit was admitted.

    >>> import hotcount
    >>> limiter = hotcount.Limiter("memory://", "2/minute")
    >>> [bool(limiter.hit("user:1")) for _ in range(3)]
    [True, True, False]
    """

    allowed: bool
    """Whether the hit was admitted."""
    limit: int
    """How many hits an idle key admits at once. A limiter with several rates reports one of them:
    of the refusing rates the one that refuses for longest, else the one with the least left."""
    remaining: int
    """How many hits are left after this call; of several rates the least."""
    retry_after: float | None
    """Seconds until the same hit is admitted if no other hit comes: 0 if the limits admit it now,
    None if its cost is above a limit, so that it is never admitted."""
    reset_after: float
    """Seconds until `limit` hits are left again, as for a new key, if no other hit comes."""
    reason: str
    """'allowed': the limit has room. 'limited': the limit is reached. 'cost_above_limit': the cost
    is more than an idle key admits. 'blocked': by Limiter.block. 'untracked': admitted without
    being counted, because the Memory store is full (its when_full) or on_error 'local' has no room
    for more keys. 'shadow': admitted although a limit refuses the hit (option shadow). 'open',
    'closed', 'local': Redis is unreachable, and on_error admitted the hit, refused it (with shadow:
    admitted it), or counted it in this process alone."""
    policy: str
    """The limiter's name."""
    period: float
    """Seconds of the rate that `limit` belongs to."""
    violated: tuple[str, ...] = ()
    """The rates that refuse the hit, as text; empty if none does."""
    quota: int | None = None
    """How many hits that rate admits in each period in the long run; differs from `limit` if the
    rate has a burst. None: the same as `limit`."""

    def __bool__(self) -> bool:
        """Whether the hit was admitted."""
        return self.allowed

    @native
    def headers(self, style: Literal["ietf", "legacy"] = "ietf") -> dict[str, str]:
        """The HTTP headers that tell a client of the decision.

        Times are whole seconds, rounded up. A denial that is not final adds Retry-After.

        Args:
            style: 'ietf': RateLimit-Policy and RateLimit of
                draft-ietf-httpapi-ratelimit-headers-11. The rate "5/minute burst 9" is written as
                q=5;w=60;hotcount-burst=9; t is retry_after if the hit was denied, else
                reset_after. 'legacy': X-RateLimit-Limit, -Remaining and -Reset (seconds from now).

        Raises:
            ConfigError: Unknown style.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "10/minute", name="api")
            >>> limiter.hit("user:1").headers()
            {'RateLimit-Policy': '"api";q=10;w=60', 'RateLimit': '"api";r=9;t=6'}
        """


@result
@dataclass(frozen=True, slots=True)
class TryAdd(Result):
    """The outcome of Counter.try_add. True if n was added.

    >>> import hotcount
    >>> bool(hotcount.Counter("memory://").try_add("seats", 3, max=2))
    False
    """

    applied: bool
    """Whether n was added."""
    value: int
    """The count after the add; if the add was refused, the unchanged count."""

    def __bool__(self) -> bool:
        """Whether n was added."""
        return self.applied


@result
class Upsert(enum.IntEnum):
    """The outcome of an upsert or remove of LiveSets. True if APPLIED; str() is the name.

    >>> import hotcount
    >>> outcome = hotcount.LiveSets("memory://").upsert("never made", "member", 1.0)
    >>> bool(outcome), str(outcome), int(outcome)
    (False, 'ABSENT', 2)
    """

    FAILED = 0
    """Only in a batch: `.errors` has the exception of the element."""
    APPLIED = 1
    """The member has the score; after remove() it is gone."""
    ABSENT = 2
    """The set does not exist, and was not created. Of remove(): or the member does not exist."""
    STALE = 3
    """The member's last write has this version or a higher one."""
    EXPIRING = 4
    """The set's TTL is not above the option `gate`."""
    NO_TTL = 5
    """The set never expires, and was not changed: see LiveSets.sweep."""

    # The truth and the text of an IntEnum are those of its number; an outcome needs its own.

    def __bool__(self) -> bool:
        """Whether the outcome is APPLIED."""
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
    """The outcome of LiveSets.sweep.

    >>> import hotcount
    >>> hotcount.LiveSets("memory://").sweep("feed:*")
    SweepReport(scanned=0, found=0, deleted=0, keys=())
    """

    scanned: int
    """Sorted sets that matched."""
    found: int
    """Matching sets without a TTL."""
    deleted: int
    """Sets deleted, which still had no TTL then."""
    keys: tuple[str | bytes, ...]
    """The keys of the first 1,000 sets found."""


@result
@dataclass(frozen=True, slots=True)
class Cast(Result):
    """The outcome of cast, retract and toggle.

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
    """This call changed the vote; a repeat or an older version does not. None if pending."""
    previous: int | MaybeNone
    """The vote before this call, 0 for none. None if pending."""
    value: int
    """The user's vote for the item now: that of the call, unless its version was too old."""
    pending: bool = False
    """With 'write_behind': the vote waits to be written to the database. Its effect is not known
    yet: changed and previous are None."""
    count: Count | None = None
    """With with_count=True: the item's count, this vote included; with 'write_behind' the count in
    the database, without this vote while it waits. None: the count was not asked for, could not be
    read before the timeout, or the server went away. The vote is stored in each case."""


@result
@dataclass(frozen=True, slots=True, eq=False)
class Count(Result):
    """An item's count. It compares, orders, hashes, formats and indexes as its value.

    Counts with equal values are equal, even if other fields differ. + and - return an int; other
    arithmetic needs .value.

    Example:
        >>> import hotcount
        >>> count = hotcount.Count(100, exact=True, as_of=0.0, source="sql", pending=0)
        >>> count == 100, count > 99.5, f"{count:,} votes", count.source
        (True, True, '100 votes', 'sql')
        >>> sum([count, count]), count.value / 8
        (200, 12.5)
    """

    value: int
    """The sum of the item's votes, plus its opening balance."""
    exact: bool
    """Whether the value agrees with the votes committed at as_of. Rows that other programs write to
    the vote table are counted as create_tables(outside_writes=) says. False once this object has
    found an uncounted cascade or a wrong count: in create_tables(), migration(), stats() or
    reconcile(dry_run=True)."""
    as_of: float
    """The time of the read, in seconds since 1970 UTC. For a copy in the cache: the time of the
    fold that counted it. A replica has every vote that was acknowledged before this time."""
    source: str
    """The place of the read: 'sql', 'cache' or 'replica'."""
    pending: int
    """Votes acknowledged but not yet in value. With 'write_behind': the votes in the item's stream,
    which other items share, so an upper bound; -1 if Redis did not answer. For a
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
        """The hash of its value."""
        return hash(self.value)

    # The value is compared with `other` itself, so that reflected methods of other types are used.

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
    """An item's votes by sign, from Votes.tally; votes without a user are included."""

    up: int
    """Votes above 0."""
    down: int
    """Votes below 0."""
    score: int
    """The sum of their values."""


@result
@dataclass(frozen=True, slots=True)
class Drift(Result):
    """An item that Votes.reconcile found: its count differs from its votes, or it is an orphan."""

    item: int | str | uuid.UUID
    """The item's id."""
    counted: int
    """The stored count."""
    actual: int
    """The sum of the votes, plus the opening balance."""
    orphan: bool = False
    """The item has no row, but votes, a count or an opening balance of it are left."""


@result
@dataclass(frozen=True, slots=True)
class FlushReport(Result):
    """The outcome of Votes.flush, or of WriteBehindCounter.flush, whose items are keys."""

    acked: int
    """Items whose count in the item table was brought up to date. With 'write_behind': votes that
    waited when the call began and are in the database now. For a WriteBehindCounter: keys that
    Redis or the database has now."""
    pending: int
    """Items whose count was not brought up to date: another transaction has locked them until the
    deadline, or the database refuses them. With 'write_behind': votes that are not in the database,
    or, if all are, such items. Of a WriteBehindCounter: keys not reached before the deadline."""
    at_risk: int
    """Acknowledged votes that a crash now could lose."""


@result
@dataclass(frozen=True, slots=True)
class Contract(Result):
    """The guarantee of an acknowledgement: Votes.contract, WriteBehindCounter.contract."""

    strategy: str
    """The strategy's name."""
    acknowledged: str
    """The state of a vote when cast returns."""
    may_lose: str
    """The votes that may be lost, and when."""
    durable: bool
    """An acknowledged vote is in the database, and survives the death of this process. False if it
    may be in Redis alone: may_lose names the loss that the persistence of Redis permits."""
    exact: bool
    """count() equals the committed votes at all times."""


@result
@dataclass(frozen=True, slots=True)
class SyncRound(Result):
    """The work of one round of a SyncWorker, in items; with 'write_behind' in votes, of a
    WriteBehindCounter in cells."""

    scanned: int
    """Counts (or votes) found in the cache."""
    filled: int
    """Counts set from the database."""
    saved: int
    """Counts written to the item table, or votes written to the vote table."""
    deleted: int
    """Counts taken out of the cache: saved, and past their retention."""
    recounted: int
    """Counts summed again from the votes, because they were lost or in doubt."""
    unsettled: int
    """Counts left for the next round, because they could not be saved as found."""
    at_risk: int
    """Votes in unsettled counts, which only the cache has."""
    refused: int = 0
    """With 'write_behind': votes set aside, because the database refuses them for good."""


@result
@dataclass(frozen=True, slots=True)
class Queued(Result):
    """The result of an add that waits in the retry queue while Redis does not answer.

    It is not a number: the value after this add is unknown until the add is counted.

    >>> import hotcount
    >>> hotcount.Queued(waiting=3, durable=True)
    Queued(waiting=3, durable=True)
    """

    waiting: int
    """How many adds wait now, this one included."""
    durable: bool
    """Whether the add is on disk: the queue has a path, and fsync='always'."""


@result
@dataclass(frozen=True, slots=True)
class RetryStats(Result):
    """The outcomes of the adds in a counter's retry queue since the counter was made.

    >>> import hotcount
    >>> counter = hotcount.Counter("memory://", retry=hotcount.RetryQueue())
    >>> counter.retry_stats().waiting
    0
    """

    waiting: int
    """Adds that wait now."""
    queued: int
    """Adds put into the queue, including adds found in its file."""
    replayed: int
    """Adds of the queue that are counted."""
    expired: int
    """Adds not counted because they waited longer than max_age, their key had expired, or their
    period was not kept any more. An add sent before the clock of Redis stepped by more than max_age
    may have been counted."""
    refused: int
    """Adds not counted because their key holds no counter or would leave signed 64 bits, or because
    their period begins more than 100 years ahead."""
    dropped: int
    """Adds removed to make room (when_full="drop_oldest"). They are not counted, unless Redis had
    applied one and its answer was lost."""
    outages: int
    """How often Redis stopped answering; on a cluster, the sum over its primaries."""
    oldest_age: float
    """Seconds that the oldest add has waited."""
    journal_bytes: int
    """Size of the queue's file; 0 without one."""
    is_away: bool
    """Redis, or a primary of a cluster, did not answer the last request."""
