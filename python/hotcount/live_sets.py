"""LiveSets: sorted sets that are updated only while they live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Literal, NamedTuple, Union

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._native import attributes, native
from hotcount._rebuild_rows import pair_of, parts_of, patience_of
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

        Args:
            store: A Memory or a Redis (sync or aio), or its URL.
            gate: Seconds; an upsert needs a TTL above it. None: 10 for 'ttl_gate', 0 for 'script'.
            method: 'script' looks and adds in one step. 'ttl_gate' needs no scripts; it makes a set
                without a TTL if a stall between its two commands outlives the gate.
            prefix: Stands before every key, with a ':'.
            keep: Seconds that versions outlive their set, 1 or more.
            member_type: The type that members come back as; with str, those that are no UTF-8 come
                back as bytes.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
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
        batch: int = 128,
        *,
        keys: Keys | None = None,
        members: Keys | None = None,
        scores: Iterable[float] | None = None,
        versions: Iterable[int | None] | None = None,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Upserts:
        """Upserts many, in order: rows of (key, member, score[, version]), or columns.

        batch: elements in one round trip, 1 to 300; with 'script' each batch is one step, one
        after the other. Other clients of the server wait while it runs one: about 0.3 ms
        for 128 elements, 0.6 ms for 250. A failed element, such as a key of another type, does not
        stop the others. errors='raise': BatchError with .result and .errors once all are settled;
        'return': they are in the batch's .errors, by index. A wrong type is a TypeError, and a
        score that is nan a ConfigError, that names the index, before anything is sent. timeout:
        seconds for all of it; None is the store's.

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
        >>> sets = hotcount.LiveSets("memory://")
        >>> sets.create("feed:1", 60, {"post:1": 1})
        >>> sets.sweep("feed:*")
        SweepReport(scanned=1, found=0, deleted=0, keys=())
        """

    def rebuild(self, key: Key, ttl: Seconds, *, lease: Seconds = 10.0) -> Rebuild:
        """Builds the set anew beside the one that is read: a context manager, see Rebuild.

        ttl: seconds that the published set lives, 0.001 or more. lease: seconds, 0.1 to 3,600, that
        a builder keeps the set to itself after it was last heard of. Only with 'script', and for
        keys whose braces make a hash tag or that have none; else ConfigError. Nothing is sent
        before the `with` block begins; that raises LeaseLostError where another builder has the
        lease.

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
        """Builds many sets, each as rebuild() does: rows of (key, members), one after the other.

        A row's lease is taken before its members are asked for, and they are asked for before the
        next row: a generator that reads its members when it is iterated, and itertools.groupby,
        are fine. Upserts that come between a list's making and its row are lost. At most 8 sets and
        300 members of each are held at a time; 8 sets are published together, sooner where a
        quarter of the lease has passed. So the next row, and a row's next member, must come within
        half of the lease. A set that fails is in the report, and the next goes on; what an iterable
        raises ends the call, once the sets that are complete are published.

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
    """What LiveSets.rebuild_many came to.

    >>> import hotcount
    >>> hotcount.LiveSets("memory://").rebuild_many([("feed:1", {})], ttl=60)
    RebuildReport(published=1, failed={})
    """

    published: int
    """Sets that were built and published."""
    failed: dict[Key, HotcountError]
    """The error of each key whose set was not, or perhaps not where it is OutcomeUnknownError."""


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
    higher wins. So read the source of the data inside the block, and write there before you
    upsert: then no upsert is lost. A key that was absent is answered ABSENT until the publication,
    and what was written meanwhile is published. Only method 'script' writes to both.

    What is added is gathered and sent 300 at a time, sooner where a third of the lease has passed;
    each sending renews the lease. Where nothing is added for longer than the lease, call renew().
    timeout: seconds for all of a call; None: the store's for each 300 members that are sent, and
    each 300 versions that a publication takes over, however many they are.
    LeaseLostError: the lease has passed, another builder has it, or a key of the build was deleted
    or evicted; nothing is published. A builder that dies leaves nothing but keys that expire.

    Safe from many threads; calls that send go one at a time. A forked child cannot use it.
    """

    __slots__ = ("__weakref__",)

    def __enter__(self) -> Rebuild:
        """Takes the lease and deletes what a dead builder left."""
        try:
            self._begin()
        except BaseException:
            self._give_up()  # Interrupted or not answered, it may have the lease.
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
        # Else it expires with its lease; what was raised is what matters.
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
        """Sends what is gathered, and gives the lease its full time."""

    @native
    def publish(self, *, timeout: Seconds | None = None) -> None:
        """Publishes now; the end of the block then does nothing.

        For a timeout of its own. OutcomeUnknownError: it may be published; build it again.
        """

    @native
    def abandon(self, *, timeout: Seconds | None = None) -> None:
        """Gives the build up: the set stays as it is, and the end of the block does nothing."""

    @native
    def _begin(self, *, timeout: Seconds | None = None) -> None:
        """Takes the lease."""

    @native
    def _finish(self, *, timeout: Seconds | None = None) -> None:
        """publish(), but nothing after publish() or abandon()."""


MOST_AT_ONCE = 8


@native
def _publish_all(builds: Sequence[Rebuild]) -> list[HotcountError | None]:
    """Publishes them at the same time; the error of each."""


class _Builds:
    """The sets of one rebuild_many() that wait for their publication, and what became of others."""

    def __init__(self, sets: LiveSets, ttl: Seconds, lease: Seconds) -> None:
        Rebuild(sets, "any", ttl, lease)  # What is wrong with all is not each key's failure.
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
