"""LiveSets: sorted sets that are updated only while they live."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from types import TracebackType
from typing import Any, Literal, NamedTuple, Union

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._native import attributes, native
from hotcount._types import Key, Keys, OnErrors, ReadOnly, Seconds
from hotcount.batches import Upserts
from hotcount.errors import HotcountError
from hotcount.results import SweepReport, Upsert
from hotcount.stores import KeyValueStore

Method = Literal["script", "ttl_gate"]
UpsertItem = Union[tuple[Key, Key, float], tuple[Key, Key, float, Union[int, None]]]
# A Mapping's keys are of one type to a type checker, so each is named.
Members = Union[
    Mapping[str, float],
    Mapping[bytes, float],
    Mapping[Union[str, bytes], float],
    Iterable[tuple[Key, float]],
]
# With versions, None for a member that has none.
RebuildMembers = Union[
    Members, Iterable[Union[tuple[Key, float], tuple[Key, float, Union[int, None]]]]
]
RebuildRows = Iterable[tuple[Key, RebuildMembers]]
ScoredMembers = list[tuple[Union[str, bytes], float]]


@attributes
class LiveSetsBase(Handle):
    """The constructor and the options of the sync and the aio class."""

    __slots__ = ()

    gate: ReadOnly[float | None]
    method: ReadOnly[Method]
    prefix: ReadOnly[str | bytes]
    member_type: ReadOnly[type[str] | type[bytes]]

    @native
    def __init__(
        self,
        store: KeyValueStore,
        *,
        gate: Seconds | None = None,
        method: Method = "script",
        prefix: Key = "",
        member_type: type[str] | type[bytes] = str,
    ) -> None:
        """Makes the sets' handle; nothing is sent.

        Args:
            store: A Memory or a Redis (sync or aio), or its URL.
            gate: Seconds; an upsert needs a TTL above it. None: 10 for 'ttl_gate', 0 for 'script'.
            method: 'script' checks and adds in one step. 'ttl_gate' needs no scripts; it makes a
                set without a TTL if a stall between its two commands outlives the gate.
            prefix: The part of the stored key before the ':' and the key.
            member_type: The type of returned members; with str, members that are not UTF-8 are
                returned as bytes.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
        """


class LiveSets(Lifetime, LiveSetsBase):
    """Sorted sets that are updated only while they exist.

    ZADD creates a missing set: a late upsert into a cached set that has expired makes a set of one
    member, without a TTL, which readers take for the whole set. An upsert here is ABSENT instead.

    Works on Memory and Redis. Keys and members are str or bytes, 1 to 1,000 bytes; scores are
    floats, infinite ones too but not nan. Upserts set a state: repeat them after any failure. A set
    stands in the store under {store prefix}{key}, or {store prefix}{prefix}:{key}, its versions in
    a hash beside it. Safe from many threads and across fork.

    Example:
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
        """Sets the member's score if the set exists. Idempotent.

        Args:
            key: The set's key.
            member: 1 to 1,000 bytes.
            score: A float, and not nan.
            version: Any int64: the score is applied only if this is higher than the version of the
                member's last versioned write. Only with 'script', and for keys whose braces make a
                hash tag or that have none.
            timeout: Seconds, more than 0. None: the store's.

        Returns:
            An Upsert, true if APPLIED. ABSENT also if the set's versions were lost, until create()
                makes the set anew.

        Raises:
            WrongTypeError: The key is no sorted set; nothing changed.
            DeadlineError, UnavailableError: Nothing was applied.
            OutcomeUnknownError: It may have been applied; call it again.
            ConfigError, TypeError: An argument is bad; nothing was sent.

        Example:
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
        batch: int = 128,
        *,
        keys: Keys | None = None,
        members: Keys | None = None,
        scores: Iterable[float] | None = None,
        versions: Iterable[int | None] | None = None,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Upserts:
        """Upserts many, in order.

        A failed element, such as a key of another type, does not stop the others.

        Args:
            items: Rows of (key, member, score) or (key, member, score, version). None: columns are
                given.
            batch: Elements in one round trip, 1 to 300. With 'script' each batch is one step, and
                other clients of the server wait while it runs: about 0.3 ms for 128 elements, 0.6
                ms for 250.
            keys, members, scores, versions: Columns, in place of items.
            errors: 'raise': BatchError with .result and .errors once all are settled. 'return':
                they are in the batch's .errors, by index.
            timeout: Seconds for all of it, more than 0. None: the store's.

        Raises:
            TypeError: An element has a wrong type; it names the index, and nothing was sent.
            ConfigError: A score is nan; likewise.

        Example:
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
        """Removes the member.

        With 'script' a set that create() made and that loses its last member is empty and lives on;
        any other is gone.

        Args:
            key, member, timeout: As in upsert.
            version: An upsert with a version that is not higher is STALE from then on.

        Returns:
            APPLIED: it was there; with a version also where the set lives and the member was not
                there. ABSENT: there is no such set or member. STALE, NO_TTL: left as it is.

        Raises:
            HotcountError: As upsert does.

        Example:
            >>> import hotcount
            >>> sets = hotcount.LiveSets("memory://")
            >>> sets.create("k", 60, {"a": 1})
            >>> str(sets.remove("k", "a")), str(sets.remove("k", "a"))
            ('APPLIED', 'ABSENT')
        """

    @native
    def top(self, key: Key, n: int, *, timeout: Seconds | None = None) -> ScoredMembers:
        """The n members of the highest scores, highest first; fewer where there are fewer.

        Of equal scores the member with the greater bytes comes first.

        Args:
            key: The set's key.
            n: 0 or more.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            HotcountError: As upsert does, except OutcomeUnknownError.

        Example:
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
        """Members from position start to stop in the order of top, both inclusive as in Redis.

        Args:
            key: The set's key.
            start, stop: Negative ones count from the end: 0, -1 is all.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            HotcountError: As top does.

        Example:
            >>> import hotcount
            >>> sets = hotcount.LiveSets("memory://")
            >>> sets.create("k", 60, {"a": 3, "b": 2, "c": 1})
            >>> sets.range("k", 1, -1)
            [('b', 2.0), ('c', 1.0)]
        """

    @native
    def rank(self, key: Key, member: Key, *, timeout: Seconds | None = None) -> int | None:
        """The member's position in the order of top, the highest 0; None where it is not there.

        Args:
            key, member: As in upsert.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            HotcountError: As top does.

        Example:
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

        Upserts made while the caller gathers the members are lost: rebuild() keeps them.

        Args:
            key: The set's key.
            ttl: Seconds, 0.001 or more.
            members: A mapping or pairs, 1 to 10,000; of equal ones the last counts.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            WrongTypeError: The key holds another type, which is left alone.
            HotcountError: As upsert does.

        Example:
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
        """Deletes sorted sets without a TTL, which unguarded upserts left behind.

        Each is looked at again in the step that deletes it. Keys that move while it runs may be
        counted twice. On a cluster each primary is looked at in turn; sets whose slot moves
        meanwhile may be missed, and the next sweep finds them.

        Args:
            match: A pattern for keys, as callers name them: * ? [a-z] and \\ as in Redis.
            dry_run: Only counts.
            timeout: Seconds for the whole sweep. None: the store's for each page of about 500 keys,
                and 100 times that for all. Sets deleted before a timeout stay deleted.

        Example:
            >>> import hotcount
            >>> sets = hotcount.LiveSets("memory://")
            >>> sets.create("feed:1", 60, {"post:1": 1})
            >>> sets.sweep("feed:*")
            SweepReport(scanned=1, found=0, deleted=0, keys=())
        """

    def rebuild(self, key: Key, ttl: Seconds, *, lease: Seconds = 10.0) -> Rebuild:
        """Builds a replacement of the set, which is read meanwhile: a context manager, see Rebuild.

        Nothing is sent before the `with` block begins.

        Args:
            key: The set's key: one whose braces make a hash tag, or that has none.
            ttl: Seconds that the published set lives, 0.001 or more.
            lease: Seconds, 0.1 to 3,600, after the builder's last request until another may begin.

        Raises:
            ConfigError: The method is not 'script', or the key has other braces.
            LeaseLostError: Another builder has the lease; raised by `with`.

        Example:
            >>> import hotcount
            >>> sets = hotcount.LiveSets("memory://")
            >>> with sets.rebuild("feed:1", ttl=60) as build:
            ...     build.add("post:1", 1)
            ...     build.add_many({"post:2": 2, "post:3": 3})
            >>> sets.top("feed:1", 2)
            [('post:3', 3.0), ('post:2', 2.0)]
        """
        return Rebuild(self, key, ttl, lease)

    def rebuild_many(
        self, sets: RebuildRows, ttl: Seconds, *, lease: Seconds = 10.0
    ) -> RebuildReport:
        """Builds many sets, each as rebuild() does, one after the other.

        A row's lease is taken before its members are asked for, and they are asked for before the
        next row: a generator that reads its members when it is iterated, and itertools.groupby,
        lose no upsert. Upserts that come between a list's making and its row are lost. At most 8
        sets and 300 members of each are held at a time; 8 sets are published together, sooner where
        a quarter of the lease has passed.

        Args:
            sets: Rows of (key, members). The next row, and a row's next member, must come within
                half of the lease. An exception of an iterable ends the call, once the complete sets
                are published.
            ttl, lease: As in rebuild.

        Returns:
            A RebuildReport, which has the sets that failed.

        Example:
            >>> import hotcount
            >>> sets = hotcount.LiveSets("memory://")
            >>> sets.rebuild_many(((f"feed:{n}", [("post:1", n)]) for n in range(3)), ttl=60)
            RebuildReport(published=3, failed={})
            >>> sets.top("feed:2", 1)
            [('post:1', 2.0)]
        """
        builds = _Builds(self, ttl, lease)
        try:
            for row in sets:
                builds.build(*pair_of(row))
        finally:
            builds.publish()
        return RebuildReport(builds.published, builds.failed)


class RebuildReport(NamedTuple):
    """The outcome of LiveSets.rebuild_many.

    >>> import hotcount
    >>> hotcount.LiveSets("memory://").rebuild_many([("feed:1", {})], ttl=60)
    RebuildReport(published=1, failed={})
    """

    published: int
    """Sets that were built and published."""
    failed: dict[Key, HotcountError]
    """The error of each key whose set was not published (OutcomeUnknownError: may be published)."""


class RebuildBase(Handle):
    """The constructor of the sync and the aio class."""

    __slots__ = ()

    @native
    def __init__(self, sets: LiveSetsBase, key: Key, ttl: Seconds, lease: Seconds = 10.0) -> None:
        """As LiveSets.rebuild, which makes one; nothing is sent."""


class Rebuild(RebuildBase):
    """The build of one set: `with sets.rebuild(key, ttl=60) as build`.

    The members are gathered beside the set that is read, and published in one step at the end of
    the block; a block that raises leaves the set as it is. Upserts and removes that anybody makes
    meanwhile go to both sets, and win over what is added, unless both have versions: then the
    higher wins. So read the source of the data inside the block, and write there before you upsert:
    then no upsert is lost. A key that was absent is answered ABSENT until the publication. Only
    method 'script' writes to both.

    Members are sent 300 at a time, sooner where a third of the lease has passed; each sending
    renews the lease. Where nothing is added for longer than the lease, call renew(). A builder that
    dies leaves nothing but keys that expire. Safe from many threads; a forked child cannot use it.

    Args:
        sets, key, ttl, lease: As in LiveSets.rebuild, which makes one.

    Raises:
        LeaseLostError: The lease has passed, another builder has it, or a key of the build was
            deleted or evicted; nothing is published.
    """

    __slots__ = ("__weakref__",)

    def __enter__(self) -> Rebuild:
        """Takes the lease and deletes the unfinished build of an earlier builder."""
        try:
            self._begin()
        except BaseException:
            self._give_up()  # The call may have taken the lease although it failed.
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Publishes, or gives the build up where the block or the publication has raised."""
        if kind is not None:
            self._give_up()
            return
        try:
            self._finish()
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        # If this fails, the build expires with its lease; the caller needs the first error.
        with suppress(HotcountError):
            self.abandon()

    @native
    def add(
        self,
        member: Key,
        score: float,
        version: int | None = None,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Adds a member. Member, score and version as for LiveSets.upsert.

        Of two adds of one member the later wins, with versions the higher. Without a version it
        replaces what was written before the block began. With one that is below what the set knows
        the set's own score is taken; where the set has expired or the member was removed, it is
        left out. An error of a sending (UnavailableError, DeadlineError, OutcomeUnknownError) loses
        nothing: what was gathered is sent by the next call.
        """

    @native
    def add_many(self, members: RebuildMembers, *, timeout: Seconds | None = None) -> None:
        """Adds many, in order: a mapping, or rows of (member, score[, version]).

        A bad row is a TypeError or ConfigError that names it, and none is added.
        """

    @native
    def renew(self, *, timeout: Seconds | None = None) -> None:
        """Sends the buffered members, and renews the lease."""

    @native
    def publish(self, *, timeout: Seconds | None = None) -> None:
        """Publishes now, with a timeout of its own; the end of the block then does nothing.

        OutcomeUnknownError: the set may be published; build it again.
        """

    @native
    def abandon(self, *, timeout: Seconds | None = None) -> None:
        """Drops the build: the set is not changed, and the end of the block does nothing."""

    @native
    def _begin(self, *, timeout: Seconds | None = None) -> None:
        """Takes the lease."""

    @native
    def _finish(self, *, timeout: Seconds | None = None) -> None:
        """publish(); does nothing after publish() or abandon()."""


# -- rebuild_many() --------------------------------------------------------------------------------

PART = 300


def patience_of(lease: Seconds) -> float:
    """Seconds that a complete build waits for others, and that members wait to be sent."""
    return (lease.total_seconds() if isinstance(lease, timedelta) else lease) / 4


def pair_of(row: object) -> tuple[Any, Any]:
    """A row of rebuild_many()."""
    if not isinstance(row, (tuple, list)) or len(row) != 2:
        raise TypeError(f"sets must be rows of (key, members), not {type(row).__name__}")
    return row[0], row[1]


class Part:
    """Rows that are gathered until there are 300, or until the lease wants to be renewed."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._rows: list[Any] = []
        self._due = monotonic() + patience

    def takes(self, row: object) -> bool:
        """Takes the row. True: the rows are to be sent."""
        self._rows.append(row)
        return len(self._rows) == PART or monotonic() > self._due

    def give(self) -> list[Any]:
        rows, self._rows, self._due = self._rows, [], monotonic() + self._patience
        return rows


def parts_of(members: RebuildMembers, patience: float) -> Iterator[RebuildMembers]:
    """The rows in lists of at most 300, shorter ones where they come slowly."""
    rows: Iterable[Any] = members.items() if isinstance(members, Mapping) else members
    part = Part(patience)
    for row in rows:
        if part.takes(row):
            yield part.give()
    yield part.give()


MOST_AT_ONCE = 8


@native
def _publish_all(builds: Sequence[Rebuild]) -> list[HotcountError | None]:
    """Publishes the builds at the same time; returns the error of each."""


class _Builds:
    """The sets of one rebuild_many(): sets waiting for publication, and outcomes of others."""

    def __init__(self, sets: LiveSets, ttl: Seconds, lease: Seconds) -> None:
        Rebuild(sets, "any", ttl, lease)  # Raises for bad options, before any key is built.
        self._sets, self._ttl, self._lease = sets, ttl, lease
        self._patience = patience_of(lease)
        self._complete: dict[Key, Rebuild] = {}
        self._oldest = 0.0
        self.published = 0
        self.failed: dict[Key, HotcountError] = {}

    def build(self, key: Key, members: RebuildMembers) -> None:
        if key in self._complete:
            self.publish()
        began = monotonic()
        try:
            build = Rebuild(self._sets, key, self._ttl, lease=self._lease)
            build.__enter__()
        except HotcountError as error:
            self.failed[key] = error
            return
        try:
            for part in parts_of(members, self._patience):
                build.add_many(part)
                self._publish_old()
        except BaseException as error:
            build._give_up()
            if not isinstance(error, HotcountError):
                raise
            self.failed[key] = error
            return
        if not self._complete:
            self._oldest = began
        self._complete[key] = build
        if len(self._complete) == MOST_AT_ONCE:
            self.publish()
        self._publish_old()

    def _publish_old(self) -> None:
        if self._complete and monotonic() - self._oldest > self._patience:
            self.publish()

    def publish(self) -> None:
        complete, self._complete = self._complete, {}
        for key, error in zip(complete, _publish_all(list(complete.values()))):
            if error is None:
                self.published += 1
            else:
                self.failed[key] = error
