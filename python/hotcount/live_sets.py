"""LiveSets: sorted sets that are updated only while they live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Union

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._native import attributes, native
from hotcount._types import Key, Keys, OnErrors, ReadOnly, Seconds
from hotcount.batches import Upserts
from hotcount.results import SweepReport, Upsert
from hotcount.stores import KeyValueStore

Method = Literal["script", "ttl_gate", "watch", "exists_then_add", "unguarded_pipeline"]
UpsertItem = Union[tuple[Key, Key, float], tuple[Key, Key, float, Union[int, None]]]
# A Mapping's keys are of one type to a type checker, so each is named.
Members = Union[
    Mapping[str, float],
    Mapping[bytes, float],
    Mapping[Union[str, bytes], float],
    Iterable[tuple[Key, float]],
]
ScoredMembers = list[tuple[Union[str, bytes], float]]


@attributes
class LiveSetsBase(Handle):
    """The constructor and the options of the sync and the aio class."""

    __slots__ = ()

    gate: ReadOnly[float | None]
    method: ReadOnly[Method]
    prefix: ReadOnly[str | bytes]
    keep: ReadOnly[float]
    member_type: ReadOnly[type[str] | type[bytes]]

    @native
    def __init__(
        self,
        store: KeyValueStore,
        *,
        gate: Seconds | None = None,
        method: Method = "script",
        prefix: Key = "",
        keep: Seconds = 3600.0,
        member_type: type[str] | type[bytes] = str,
    ) -> None:
        """Makes the sets' handle; nothing is sent.

        store: a Memory or a Redis (sync or aio), or its URL. gate: seconds; an upsert needs a TTL
        above it. None: 10 for 'ttl_gate', 0 for the others. method: 'script' is right; 'ttl_gate'
        is wrong where a stall outlives the gate, 'exists_then_add' is racy, 'unguarded_pipeline'
        always adds: they are here to compare. 'watch' is right too, from Redis 6.2.5 on (a call
        to an older one is a ConfigError), and needs no scripts: two round trips for each element,
        on at most 8 connections of its own, and again while others change the set. prefix: stands
        before every key, with a ':'. keep: seconds that versions outlive their set, 1 or more.
        member_type: what members come back as; with str, those that are no UTF-8 come back as
        bytes.

        ConfigError names an option with a bad value; TypeError one of a wrong type.
        """


class LiveSets(Lifetime, LiveSetsBase):
    """Sorted sets that are updated only while they live.

    ZADD makes a set that is not there: a late upsert into a cached set that has expired leaves one
    member, without a TTL, to be taken for the whole. An upsert here answers ABSENT instead.

    Works on Memory and Redis. Keys and members are str or bytes, 1 to 1,000 bytes; scores are
    floats, infinite ones too but not nan, an int as the nearest. Upserts set a state: after any
    failure do them again. A set stands in the store under {store prefix}{key}, or
    {store prefix}{prefix}:{key}, its versions in a hash beside it. Safe from many threads and
    across fork.

    >>> import hotcount
    >>> sets = hotcount.LiveSets("memory://")
    >>> sets.create("feed:1", 60, {"post:1": 1.0, "post:2": 2.0})
    >>> str(sets.upsert("feed:1", "post:3", 3)), str(sets.upsert("feed:2", "post:3", 3))
    ('APPLIED', 'ABSENT')
    >>> sets.top("feed:1", 2)
    [('post:3', 3.0), ('post:2', 2.0)]
    """

    __slots__ = ("__weakref__",)

    @native
    def upsert(
        self,
        key: Key,
        member: Key,
        score: float,
        *,
        version: int | None = None,
        timeout: Seconds | None = None,
    ) -> Upsert:
        """Sets the member's score where the set lives. Idempotent.

        version: any int64; applied only where higher than that of the member's last versioned
        write. Only with 'script', and for keys whose braces make a hash tag or that have none; else
        ConfigError. ABSENT where the versions that a set had were lost, until create() makes it
        anew. timeout: seconds, more than 0; None is the store's.

        WrongTypeError: the key is no sorted set; nothing changed. DeadlineError, UnavailableError:
        nothing was applied. OutcomeUnknownError: it may have been; do it again. ConfigError and
        TypeError name a bad argument; nothing was sent.

        >>> import hotcount
        >>> sets = hotcount.LiveSets("memory://")
        >>> sets.create("k", 60, {"a": 1})
        >>> bool(sets.upsert("k", "a", 2, version=7)), str(sets.upsert("k", "a", 1, version=6))
        (True, 'STALE')
        """

    @native
    def upsert_many(
        self,
        items: Iterable[UpsertItem] | None = None,
        batch: int = 250,
        *,
        keys: Keys | None = None,
        members: Keys | None = None,
        scores: Iterable[float] | None = None,
        versions: Iterable[int | None] | None = None,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Upserts:
        """Upserts many, in order: rows of (key, member, score[, version]), or columns.

        batch: elements in one round trip, 1 to 300; with 'script' each batch is one step. A failed
        element, such as a key of another type, does not stop the others. errors='raise': BatchError
        with .result and .errors once all are settled; 'return': they are in the batch's .errors, by
        index. A wrong type is a TypeError, and a score that is nan a ConfigError, that names the
        index, before anything is sent. timeout: seconds for all of it; None is the store's.

        >>> import hotcount
        >>> sets = hotcount.LiveSets("memory://")
        >>> sets.create("k", 60, {"a": 1})
        >>> list(sets.upsert_many([("k", "a", 2), ("other", "a", 3)]).applied)
        [True, False]
        >>> list(sets.upsert_many(keys=["k"], members=["b"], scores=[0.5]).applied)
        [True]
        """

    @native
    def remove(
        self, key: Key, member: Key, version: int | None = None, *, timeout: Seconds | None = None
    ) -> Upsert:
        """Removes the member. APPLIED: it was there. ABSENT: no such set or member.

        With a version: APPLIED where the set lives, whether the member was there or not; an upsert
        with a version that is not higher is STALE from then on. STALE, NO_TTL: left as it is. With
        'script' a set that create() made and that loses its last member is empty and lives on; any
        other is gone. Raises as upsert does.

        >>> import hotcount
        >>> sets = hotcount.LiveSets("memory://")
        >>> sets.create("k", 60, {"a": 1})
        >>> str(sets.remove("k", "a")), str(sets.remove("k", "a"))
        ('APPLIED', 'ABSENT')
        """

    @native
    def top(self, key: Key, n: int, *, timeout: Seconds | None = None) -> ScoredMembers:
        """The n highest as (member, score), highest first; fewer where there are fewer.

        n: 0 or more. Equal scores: the member with the greater bytes first. Raises as upsert does,
        but for OutcomeUnknownError: there is nothing to be unknown.

        >>> import hotcount
        >>> sets = hotcount.LiveSets("memory://")
        >>> sets.create("k", 60, {"a": 1, "b": 1, "c": 0})
        >>> sets.top("k", 2)
        [('b', 1.0), ('a', 1.0)]
        """

    @native
    def range(
        self, key: Key, start: int, stop: int, *, timeout: Seconds | None = None
    ) -> ScoredMembers:
        """Positions start to stop in the order of top, both inclusive as in Redis.

        Negative ones count from the end, so that 0, -1 is all. Raises as top does.

        >>> import hotcount
        >>> sets = hotcount.LiveSets("memory://")
        >>> sets.create("k", 60, {"a": 3, "b": 2, "c": 1})
        >>> sets.range("k", 1, -1)
        [('b', 2.0), ('c', 1.0)]
        """

    @native
    def rank(self, key: Key, member: Key, *, timeout: Seconds | None = None) -> int | None:
        """The member's position in the order of top; None where it is not there.

        The highest is 0. Raises as top does.

        >>> import hotcount
        >>> sets = hotcount.LiveSets("memory://")
        >>> sets.create("k", 60, {"a": 3, "b": 2})
        >>> sets.rank("k", "b"), sets.rank("k", "c")
        (1, None)
        """

    @native
    def create(
        self, key: Key, ttl: Seconds, members: Members, *, timeout: Seconds | None = None
    ) -> None:
        """Makes the set or replaces it, in one step and with its TTL, and the hash beside it.

        ttl: seconds, 0.001 or more. members: a mapping or pairs, 1 to 10,000; of equal ones the
        last counts. The simple form: upserts made while the caller gathers the members are lost.
        WrongTypeError: the key holds another type, which is left alone. Otherwise as upsert.

        >>> import hotcount
        >>> sets = hotcount.LiveSets("memory://")
        >>> sets.create("k", 60, [("a", 1), ("a", 2)])
        >>> sets.top("k", 1)
        [('a', 2.0)]
        """

    @native
    def sweep(
        self, match: Key, *, dry_run: bool = False, timeout: Seconds | None = None
    ) -> SweepReport:
        """Deletes sorted sets without a TTL: what unguarded upserts left behind.

        match: a pattern for keys, as callers name them: * ? [a-z] and \\ as in Redis. Only sorted
        sets; each is looked at again in the step that deletes it. dry_run: only counts. Keys that
        move while it runs may be counted twice. timeout: seconds for the whole sweep; None: the
        store's for each page of about 500 keys, and 100 times that for all. What was deleted before
        it passed stays deleted.

        >>> import hotcount
        >>> leaky = hotcount.LiveSets("memory://", method="unguarded_pipeline")
        >>> str(leaky.upsert("feed:1", "post:1", 1))
        'ABSENT'
        >>> leaky.sweep("feed:*")
        SweepReport(scanned=1, found=1, deleted=1, keys=('feed:1',))
        """
