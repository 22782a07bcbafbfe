"""The shared base of hotcount.Votes and hotcount.aio.Votes, and the SyncWorker of their caches."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal

from hotcount._core import Handle
from hotcount._native import attributes, native
from hotcount._types import Id, IdType, ReadOnly, Seconds
from hotcount.results import Contract, SyncRound
from hotcount.stores import AnyDatabase, KeyValueStore

Strategy = Literal["naive", "slotted", "batched", "cached", "write_behind"]
Consistency = Literal["cached", "exact"]
MissingItems = Literal["refuse", "create"]
# reconcile() calls it with the last checked item, the number of checked items and the number of
# items whose count differed.
Progress = Callable[[Any, int, int], object]


@attributes
class VotesBase(Handle):
    """The constructor, the options and the calls that do not wait, of both Votes classes."""

    __slots__ = ()

    strategy: ReadOnly[Strategy]
    slots: ReadOnly[int]
    item_table: ReadOnly[str]
    item_id: ReadOnly[str]
    item_count: ReadOnly[str | None]
    vote_table: ReadOnly[str]
    vote_item: ReadOnly[str]
    vote_user: ReadOnly[str]
    item_type: ReadOnly[IdType]
    user_type: ReadOnly[IdType]
    max_age: ReadOnly[float]
    retention: ReadOnly[float]
    page: ReadOnly[int]
    interval: ReadOnly[float]
    workers: ReadOnly[int]
    max_batch: ReadOnly[int]
    max_delay: ReadOnly[float]
    missing_items: ReadOnly[MissingItems]
    fold_interval: ReadOnly[float]
    foreign_key: ReadOnly[bool]
    vote_value: ReadOnly[str]
    vote_previous: ReadOnly[str]
    vote_version: ReadOnly[str]
    read_url: ReadOnly[str | None]
    read_max_lag: ReadOnly[float]
    max_pending: ReadOnly[int]
    max_queue: ReadOnly[int]

    @native
    def __init__(
        self,
        db: AnyDatabase,
        cache: KeyValueStore | None = None,
        strategy: Strategy = "batched",
        slots: int = 100,
        item_table: str = "item",
        item_id: str = "id",
        item_count: str | None = "vote_count",
        vote_table: str = "vote",
        vote_item: str = "item_id",
        vote_user: str = "user_id",
        item_type: IdType = int,
        user_type: IdType = int,
        max_age: Seconds = 30.0,
        retention: Seconds = 600.0,
        page: int = 1000,
        interval: Seconds = 1.0,
        workers: int = 2,
        max_batch: int = 1000,
        max_delay: Seconds = 0.0,
        missing_items: MissingItems = "refuse",
        fold_interval: Seconds = 1.0,
        foreign_key: bool = True,
        vote_value: str = "val",
        vote_previous: str = "prev",
        vote_version: str = "version",
        read_url: str | None = None,
        read_max_lag: Seconds = 10.0,
        max_pending: int = 100_000,
        max_queue: int = 100_000,
    ) -> None:
        """Opens the database; the tables are made by create_tables().

        Args:
            db: A Database (sync or aio), or its URL.
            cache: A Memory or a Redis, or its URL. 'cached' needs one, 'write_behind' a Redis.
                With 'batched', folds copy the counts there, for count(); not over SQLite. A Memory
                serves one process.
            strategy: How votes are written and counted; see Votes.
            slots: Cells for each item of 'slotted', 1 to 10,000.
            item_table, item_id, vote_table, vote_item, vote_user, vote_value, vote_previous,
                vote_version: Names of tables and columns. A table may stand in a schema
                ('app.item', in MariaDB a database). Quotation marks enclose a name that has a dot
                ('app."my.item"').
            item_count: The item table's column for counts. None: the table has no such column.
                'batched', 'slotted' and 'write_behind' then keep counts in cells, and plain SQL
                reads the view {vote_table}_count; 'naive' and 'cached' need the column.
            item_type, user_type: int, str or uuid.UUID: the type of ids in the tables.
            max_age: 'cached', 'write_behind': seconds for which this object keeps the id of the
                tables before it reads the id again. 'batched': seconds after which a count in the
                cache expires; if folds cannot reach the cache, its counts are at most that old.
            retention: 'cached': seconds that a count stays in the cache after its last vote.
            page: 'cached': counts that a worker saves at once, 1 to 100,000. 'write_behind': votes
                that it writes at once, at most 5,000.
            interval: Seconds between two rounds of a worker.
            workers: Threads of a worker, and of this object for calls of hotcount.aio, 1 to 64.
                Calls of hotcount.Votes use none. More than 2 gain nothing with 'batched' and
                'cached'.
            max_batch: The maximum of votes in a transaction of 'batched', 'cached' and a worker of
                'write_behind'.
            max_delay: Seconds that a transaction waits for more votes.
            missing_items: The result of a vote for an item without a row. 'refuse': an
                IntegrityError; 'write_behind' sets the vote aside later, and stats() counts it.
                'create': the vote creates the row.
            fold_interval: 'batched' on servers: the minimum of seconds between two folds, 0.01 to
                3600, by which item.vote_count lags. Exact counts include rows that wait for a fold.
                Rows of triggers (outside_writes) wait up to 5 s, even if this is shorter.
            foreign_key: False makes vote tables that do not reference the items, so that voters do
                not lock the item's row; the votes of a deleted item stay.
            read_url: A replica of the database, for reads with consistency 'cached'; not for
                'cached', 'write_behind' and SQLite. A Count from there has .source 'replica' and
                .exact False. It contains every vote that was acknowledged before its .as_of.
            read_max_lag: Seconds, 0.1 to 3600. The primary answers, within the same timeout, if
                the replica's answer may be older, or if the replica is unreachable or belongs to
                another database. stats() counts such reads, and the logger 'hotcount' has a warning
                for each outage. While a process reads the replica, it writes a row of
                {vote_table}_meta to the primary every quarter of read_max_lag.
            max_pending: 'write_behind': the maximum of waiting votes in each of 16 streams, 1 to
                500,000, at about 80 bytes each; one more is a CapacityError. By default 1.6
                million votes may wait, and be at risk, in total, and 100,000 votes of one item.
            max_queue: The maximum of votes that wait to be written, 1 or more, at about 0.5 KB
                each. One more is a CapacityError; a cast_many waits for room within its timeout.

        'write_behind' acknowledges a vote when it is in a stream of Redis; contract() names the
        votes that Redis may lose. A worker (sync_worker(), `hotcount sync`) writes votes to the
        database. toggle and remove_item first write the waiting votes of the item's stream,
        erase_user and prune those of all streams. The database may refuse a vote with an error that
        may concern all votes, such as an error of a trigger. Such a vote is set aside once another
        vote has been written; until then these calls fail with its error.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
        """

    @native
    def schema(self) -> str:
        """The SQL that create_tables() runs in an empty database.

        >>> import hotcount
        >>> "CREATE TABLE" in hotcount.Votes("sqlite:///:memory:").schema()
        True
        """

    @native
    def contract(self) -> Contract:
        """The guarantee of an acknowledgement with this strategy, and the possible losses.

        >>> import hotcount
        >>> hotcount.Votes("sqlite:///:memory:").contract().exact
        True
        """

    def sync_worker(self) -> SyncWorker:
        """A worker that saves counts of 'cached', or votes of 'write_behind', to the database.

        Raises:
            ConfigError: The strategy has no worker.

        Example:
            >>> import hotcount
            >>> votes = hotcount.Votes("sqlite:///:memory:", "memory://", "cached")
            >>> votes.create_tables()
            >>> votes.sync_worker().run_once().saved
            0
        """
        return SyncWorker(self)

    @native
    def _checked_ballot(
        self, item: Id, user: Id | None, value: int, version: int | None, op_id: str | None
    ) -> dict[str, Any]:
        """The parameters of a vote's statements; raises the errors of cast for bad arguments."""

    @native
    def _checked_item(self, item: Id) -> int | str:
        """An item as a parameter; raises the errors of count for a bad id."""

    @native
    def _checked_user(self, user: Id) -> int | str:
        """A user as a parameter; raises the errors of get for a bad id."""

    @native
    def _session_statements(self, dialect: str, anonymous: bool) -> dict[str, str]:
        """The statements of a vote in a transaction of the caller's own, by name."""

    @native
    def _note_appended(self, rows: int) -> None:
        """Tells the folding thread that the caller's own SQL has committed journal rows."""

    @native
    def _try_fold(self, timeout: Seconds | None = None) -> tuple[str, str]:
        """For `hotcount doctor`: the outcome of one fold, which is rolled back, and its reason.

        'absent', 'works', 'fails', 'waits' or 'untried': hotcount/detail/votes/integrations.hpp.
        """


class SyncWorker(Handle):
    """Saves the counts, or the votes, of a cache to the database.

    Votes.sync_worker() and WriteBehindCounter.sync_worker() make one.

    Any number of workers may run at once, in threads and processes: each step is fenced, so a
    worker that dies or stalls between two steps loses nothing and overwrites nothing. run() ends
    with ClosedError when the Votes or WriteBehindCounter is closed.
    """

    __slots__ = ("__weakref__",)

    @native
    def __init__(self, votes: Handle) -> None:
        """votes: Votes or a WriteBehindCounter, sync or aio.

        Votes of a strategy other than 'cached' and 'write_behind' are a ConfigError.
        """

    @native
    def run_once(self, *, timeout: Seconds | None = None) -> SyncRound:
        """Saves each changed count of the cache, or writes the votes that wait there.

        Args:
            timeout: Seconds for the round, which waits for a round of another thread and for a
                cluster node that does not answer. None: 60, and 1 for such a node. The counts or
                votes of other nodes are saved, and the round fails with the node's error. Call it
                again after any error.

        Example:
            >>> import hotcount
            >>> votes = hotcount.Votes("sqlite:///:memory:", "memory://", "cached")
            >>> votes.create_tables()
            >>> votes.add_items([7])
            >>> votes.cast(7, user=1).counted, votes.sync_worker().run_once().saved
            (True, 1)
        """

    def run(self, stop: threading.Event | None = None) -> None:
        """Runs rounds, with a pause of `interval` between them.

        After a failed round (an unreachable server, or an error of one key or row) the next round
        runs. ConfigError, AuthError, PermissionDeniedError and ClosedError are raised. If gevent
        has patched the threading module, the rounds run in a thread of the hub's pool, and other
        greenlets run meanwhile.

        Args:
            stop: The call returns when this is set and the round under way has ended. None: the
                call does not return.

        Example:
            >>> import hotcount, threading
            >>> votes = hotcount.Votes("sqlite:///:memory:", "memory://", "cached")
            >>> votes.create_tables()
            >>> stop = threading.Event()
            >>> worker = threading.Thread(target=votes.sync_worker().run, args=[stop])
            >>> worker.start(), stop.set(), worker.join()
            (None, None, None)
        """
        gevent_monkey = sys.modules.get("gevent.monkey")
        if gevent_monkey is None or not gevent_monkey.is_module_patched("threading"):
            return self._run(stop)
        # A wait in C++ would block the greenlet that sets stop.
        importlib.import_module("gevent").get_hub().threadpool.apply(self._run, (stop,))

    @native
    def _run(self, stop: threading.Event | None) -> None:
        """run() in this thread."""

    @native
    def stats(self) -> dict[str, Any]:
        """The numbers of rounds and of failed rounds, and the sums of their SyncRounds.

        unsettled and at_risk are those of the latest round. last_error is the error of the last
        failed round, or empty. last_round_s: seconds since the last successful round, or since the
        worker was made.

        Example:
            >>> import hotcount
            >>> votes = hotcount.Votes("sqlite:///:memory:", "memory://", "cached")
            >>> votes.sync_worker().stats()["rounds"]
            0
        """
