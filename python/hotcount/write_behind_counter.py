"""WriteBehindCounter: counts without a row for each user, such as views; Redis first, then SQL."""

from __future__ import annotations

from typing import Any, Literal

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._native import attributes, native
from hotcount._types import Amounts, Key, Keys, Numbers, OnErrors, ReadOnly, Seconds
from hotcount._votes_base import SyncWorker
from hotcount.batches import Counts, Int64Batch
from hotcount.results import Contract, Count, FlushReport
from hotcount.stores import AnyDatabase, KeyValueStore

Ack = Literal["cache", "local", "sql"]


@attributes
class WriteBehindCounterBase(Handle):
    """The constructor, the options and the calls without waiting, of the sync and the aio class."""

    __slots__ = ()

    table: ReadOnly[str]
    prefix: ReadOnly[str]
    flush_interval: ReadOnly[float]
    max_cells: ReadOnly[int]
    interval: ReadOnly[float]

    @native
    def __init__(
        self,
        db: AnyDatabase,
        cache: KeyValueStore,
        table: str = "hotcount_views",
        prefix: str = "views",
        *,
        flush_interval: Seconds = 0.25,
        max_cells: int = 100_000,
        interval: Seconds = 1.0,
    ) -> None:
        """Opens the database; the tables are made by create_tables().

        Args:
            db: A Database (sync or aio), or its URL.
            cache: A Redis, or its URL. One that answers and evicts keys of all kinds when it is
                full (maxmemory-policy allkeys-...) is a ConfigError.
            table: Also names {table}_cell and {table}_meta.
            prefix: Of the keys in Redis. Each table needs one of its own, because its workers save
                all that they find there.
            flush_interval: Seconds that an add with ack='local' stays in this process alone, 0.001
                to 60, and how soon a loss in Redis is noticed.
            max_cells: Keys that this process may hold, 1 to 10,000,000, at about 300 bytes each;
                those that are in SQL make room for others.
            interval: Seconds between two rounds of a worker.

        At most 100,000 adds with ack='sql' wait to be written. The row of a cell stays in SQL for
        7 days; a cell that reaches SQL later is refused, because nobody knows any more how much of
        it was counted.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
        """

    @native
    def schema(self) -> str:
        """The SQL that create_tables runs.

        >>> import hotcount
        >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
        >>> "CREATE TABLE" in views.schema()
        True
        """

    @native
    def contract(self) -> Contract:
        """The guarantee of an acknowledgement, and the possible losses.

        >>> import hotcount
        >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
        >>> views.contract().exact
        False
        """

    @native
    def stats(self) -> dict[str, Any]:
        """Counts of this object in this process, done and waiting.

        - adds, failed_adds; flushed_cells, which Redis has taken from flushes.
        - losses: how often Redis may have lost cells, which were then sent again.
        - writers: the ids that this process has counted under.
        - cells in it now; of these unapplied_cells, not known to be in SQL, and pending_cells, not
          in Redis either.
        - at_risk: acknowledged adds that only this process has.
        - flush_error of the last flush, empty if it ended well.

        Example:
            >>> import hotcount
            >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
            >>> views.stats()["adds"]
            0
        """

    def sync_worker(self) -> SyncWorker:
        """A worker that brings the cells of all processes from Redis to SQL, for a thread.

        Any number may run at once. Without one the counts stay in Redis, and get() still contains
        them.

        Example:
            >>> import hotcount
            >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
            >>> views.sync_worker().stats()["rounds"]
            0
        """
        return SyncWorker(self)


class WriteBehindCounter(Lifetime, WriteBehindCounterBase):
    """Counts that Redis acknowledges and workers bring to SQL: views, without users.

    Each process has a cell for each key, with all that it has counted under its own id. A flush
    sends that sum, and Redis keeps the larger number; a worker (sync_worker(), or `hotcount sync
    --views`) does the same in SQL and adds the difference to the key's total. A message that is
    lost, doubled or late therefore changes nothing, and no count is ever too high. Living processes
    send cells again that Redis has lost. Safe from many threads and across fork.

    Example:
        >>> import hotcount
        >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
        >>> views.create_tables()
        >>> views.add("page:home", ack="sql")
        >>> views.stats()["adds"]
        1
    """

    __slots__ = ("__weakref__",)

    @native
    def create_tables(self, *, timeout: Seconds | None = None) -> None:
        """Creates the tables that are missing. Idempotent.

        >>> import hotcount
        >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
        >>> views.create_tables()
        """

    @native
    def add(
        self, key: Key, n: int = 1, *, ack: Ack = "cache", timeout: Seconds | None = None
    ) -> None:
        """Adds n.

        Args:
            key: As in Counter.add.
            n: Any int64, negative too.
            ack: The place of the add when the call returns. 'cache': Redis has the add, which
                survives the death of this process. 'local': this process has it and sends it within
                flush_interval; an end without Python's own (kill -9, a signal that has no handler,
                os._exit) before that loses it. 'sql': it is committed in SQL, with the adds of
                other callers; Redis is not asked.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            OutcomeUnknownError: The add stays in this process, and is counted once if the process
                lives until Redis answers. Do not add it again: it would count twice.
            CapacityError: max_cells keys of this process are not in SQL yet; nothing was counted.
            HotcountError: Nothing was counted.

        Example:
            >>> import hotcount
            >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
            >>> views.create_tables()
            >>> views.add("page:home", 2, ack="sql")
        """

    @native
    def add_many(
        self,
        keys: Keys | Amounts,
        n: Numbers = 1,
        *,
        ack: Ack = "cache",
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Int64Batch:
        """Adds to many keys, and returns the amounts added.

        They go to Redis together, or with ack='sql' in as few transactions as possible. Amounts for
        one key are one add: all of them are counted, or none.

        Args:
            keys, n, errors: As in Counter.add_many.
            ack: As in add.
            timeout: Seconds for all of it, more than 0. None: the store's.

        Example:
            >>> import hotcount
            >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
            >>> views.create_tables()
            >>> list(views.add_many({"page:home": 1, "page:about": 2}, ack="sql"))
            [1, 2]
        """

    @native
    def get(self, key: Key, *, timeout: Seconds | None = None) -> Count:
        """The sum of all acknowledged adds to the key; 0 if there are none.

        Adds with ack='local' that other processes have not flushed yet are missing; so .exact is
        False. .pending: adds in it that SQL does not have yet. UnavailableError if Redis or the
        database does not answer.
        """

    @native
    def get_many(
        self, keys: Keys, *, errors: OnErrors = "raise", timeout: Seconds | None = None
    ) -> Counts:
        """The counts of many keys, in order: each as get() has it, from one snapshot of SQL.

        Few calls: Redis is asked for 500 keys at a time, SQL for 512. errors='raise': BatchError
        with .result and .errors if a key failed; 'return': they are in the batch's .errors.
        """

    @native
    def reset(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """Sets a count to 0 and returns the count before.

        One transaction writes the adds that get() would count to SQL and subtracts their sum from
        the total; one of two concurrent resets returns 0. Adds made meanwhile, and adds with
        ack='local' that other processes have not sent, are counted after the reset.

        Args:
            key: The counter's key.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            OutcomeUnknownError: The count may be 0; the number is lost.
            HotcountError: As get does.

        Example:
            >>> import hotcount
            >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
            >>> views.reset("page:home")  # doctest: +SKIP
            1
        """

    @native
    def flush(self, timeout: Seconds | None = 5.0) -> FlushReport:
        """Sends Redis the cells that only this process has, and again cells that Redis has lost.

        SQL follows with the next round of a worker.

        Args:
            timeout: Seconds, more than 0. None: the store's.

        Returns:
            FlushReport: .acked, keys that Redis or SQL has now; .pending, keys not reached by the
                deadline; .at_risk, acknowledged adds to the pending keys.

        Example:
            >>> import hotcount
            >>> views = hotcount.WriteBehindCounter("sqlite:///:memory:", "redis://localhost")
            >>> views.flush()
            FlushReport(acked=0, pending=0, at_risk=0)
        """
