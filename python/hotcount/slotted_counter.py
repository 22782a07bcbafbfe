"""SlottedCounter: a count in a SQL database, spread over several rows of one table."""

from __future__ import annotations

from typing import Any, Literal

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._native import attributes, native
from hotcount._types import Amounts, Key, Keys, OnErrors, ReadOnly, Seconds
from hotcount.batches import Int64Batch
from hotcount.stores import AnyDatabase


@attributes
class SlottedCounterBase(Handle):
    """The constructor, the options and the calls without waiting, of the sync and the aio class."""

    __slots__ = ()

    table: ReadOnly[str]
    slots: ReadOnly[int]
    slot_choice: ReadOnly[Literal["sticky", "random"]]
    key_column: ReadOnly[str]
    slot_column: ReadOnly[str]
    count_column: ReadOnly[str]
    op_keep: ReadOnly[float]
    # 'mysql' for MariaDB too.
    _dialect: ReadOnly[str]

    @native
    def __init__(
        self,
        db: AnyDatabase,
        table: str = "hotcount_slot",
        slots: int | Literal["adaptive"] = 100,
        slot_choice: Literal["sticky", "random"] = "sticky",
        key_column: str = "key",
        slot_column: str = "slot",
        count_column: str = "count",
        *,
        op_keep: Seconds = 86400.0,
    ) -> None:
        """Makes a counter; nothing is sent.

        Args:
            db: A Database (sync or aio), or its URL.
            table, key_column, slot_column, count_column: Names in the database.
            slots: Rows that a key may spread over, 1 to 10,000. 'adaptive' starts with 1 and
                doubles them, up to 100, whenever a writer finds its row locked. The attribute slots
                is their number now.
            slot_choice: 'sticky' keeps each connection on its slot, 'random' takes one per add.
            op_keep: Seconds that an op_id is remembered, 1 or more.

        At most 100,000 adds wait to be written. One more is a CapacityError, and an add_many waits
        for room within its timeout.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
        """

    @native
    def resize(self, slots: int) -> None:
        """Changes the number of slots for this object's later adds.

        Nothing is sent. Counts stay as they are: a read sums all slots.

        Args:
            slots: 1 to 10,000.

        Example:
            >>> import hotcount
            >>> counter = hotcount.SlottedCounter("sqlite:///:memory:")
            >>> counter.resize(8)
            >>> counter.slots
            8
        """

    @native
    def _session_statements(self, dialect: str) -> dict[str, str]:
        """The statements of an add in a transaction of the caller's own, by name."""

    @native
    def statement(self, key: Key, n: int = 1) -> Any:
        """A SQLAlchemy statement that adds n, to join a transaction of the caller's own.

        Nothing is sent. The slot is random. Needs the extra hotcount[sqlalchemy]; ImportError
        without it. The module hotcount.integrations.sqlalchemy has more functions of this kind.
        """


class SlottedCounter(Lifetime, SlottedCounterBase):
    """A count in a SQL database, spread over several rows of one table.

    The count of a key is the sum over its slots: writers seldom meet on one row, and the number of
    slots may change at any time. Every add is committed when the call returns; adds of concurrent
    callers share a transaction. Keys are str or bytes, 1 to 1,000 bytes without NUL; numbers are
    signed 64-bit. Safe from many threads and across fork.

    Example:
        >>> import hotcount
        >>> counter = hotcount.SlottedCounter("sqlite:///:memory:")
        >>> counter.create_table()
        >>> counter.add("photo:42")
        >>> counter.add("photo:42", 2)
        >>> counter.get("photo:42")
        3
    """

    __slots__ = ("__weakref__",)

    @native
    def create_table(self, *, timeout: Seconds | None = None) -> None:
        """Creates the table if it is missing. Idempotent.

        Args:
            timeout: Seconds, more than 0. None: the database's.

        Raises:
            DatabaseError: The database refuses, such as for lack of a right; nothing was created.
            HotcountError: As add does.

        Example:
            >>> import hotcount
            >>> hotcount.SlottedCounter("sqlite:///:memory:").create_table()
        """

    @native
    def add(
        self,
        key: Key,
        n: int = 1,
        *,
        op_id: Key | None = None,
        slot: int | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Adds n; committed when it returns.

        Args:
            key: The counter's key.
            n: Any int64, negative too.
            slot: The row to add to, 0 to slots - 1 (to 99 if slots='adaptive'), whether or not
                another transaction holds it. None: slot_choice decides.
            op_id: 1 to 1,000 bytes: the add is counted once, however often it is repeated within
                op_keep.
            timeout: Seconds, more than 0. None: the database's.

        Raises:
            CounterOverflowError: The slot would leave 64 bits; nothing changed.
            DeadlineError: The database was locked until then; nothing was applied.
            UnavailableError, CapacityError: Nothing was applied.
            OutcomeUnknownError: It may have been applied.
            ConfigError, TypeError: An argument is bad; nothing was sent.

        Example:
            >>> import hotcount
            >>> counter = hotcount.SlottedCounter("sqlite:///:memory:")
            >>> counter.create_table()
            >>> for attempt in range(3):
            ...     counter.add("k", 5, op_id="order:1")
            >>> counter.get("k")
            5
        """

    @native
    def add_many(
        self, mapping: Amounts, *, errors: OnErrors = "raise", timeout: Seconds | None = None
    ) -> Int64Batch:
        """Adds {key: n, ...} in as few transactions as 1,000 adds each allow.

        Args:
            mapping: Key to amount.
            errors: 'raise': BatchError with .result and .errors once all are settled. 'return':
                they are in the batch's .errors.
            timeout: Seconds for all of it, more than 0. None: the database's.

        Returns:
            The amounts added, in the mapping's order; 0 where one was refused.

        Raises:
            TypeError: An element has a wrong type; it names the index, and nothing was added.

        Example:
            >>> import hotcount
            >>> counter = hotcount.SlottedCounter("sqlite:///:memory:")
            >>> counter.create_table()
            >>> list(counter.add_many({"a": 1, "b": 2}))
            [1, 2]
        """

    @native
    def get(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """The sum over the key's slots; 0 where there are none.

        Args:
            key: The counter's key.
            timeout: Seconds, more than 0. None: the database's.

        Raises:
            CounterOverflowError: The sum leaves 64 bits.
            HotcountError: As add does, except OutcomeUnknownError.

        Example:
            >>> import hotcount
            >>> counter = hotcount.SlottedCounter("sqlite:///:memory:")
            >>> counter.create_table()
            >>> counter.get("never added")
            0
        """

    @native
    def get_many(
        self, keys: Keys, *, errors: OnErrors = "raise", timeout: Seconds | None = None
    ) -> Int64Batch:
        """The sums of many keys, in order, all from one snapshot. errors as in add_many.

        >>> import hotcount
        >>> counter = hotcount.SlottedCounter("sqlite:///:memory:")
        >>> counter.create_table()
        >>> counter.add("a", 4)
        >>> list(counter.get_many(["a", "b"]))
        [4, 0]
        """

    @native
    def reset(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """Removes the key's rows and returns their sum.

        Args:
            key: The counter's key.
            timeout: Seconds, more than 0. None: the database's.

        Raises:
            HotcountError: As add does.

        Example:
            >>> import hotcount
            >>> counter = hotcount.SlottedCounter("sqlite:///:memory:")
            >>> counter.create_table()
            >>> counter.add("k", 7)
            >>> counter.reset("k"), counter.get("k")
            (7, 0)
        """

    @native
    def compact(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """Gathers the key's rows into slot 0 and returns the unchanged sum.

        Args:
            key: The counter's key.
            timeout: Seconds, more than 0. None: the database's.

        Raises:
            HotcountError: As add does.

        Example:
            >>> import hotcount
            >>> counter = hotcount.SlottedCounter("sqlite:///:memory:", slot_choice="random")
            >>> counter.create_table()
            >>> _ = [counter.add("k") for _ in range(10)]
            >>> counter.compact("k")
            10
        """
