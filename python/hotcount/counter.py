"""Counter: a number under a key, and the value after this very add."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, overload

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._native import attributes, native, result
from hotcount._types import Amounts, Key, Keys, Numbers, OnErrors, ReadOnly, Seconds
from hotcount.batches import AddedBatch, Int64Batch
from hotcount.results import Queued, RetryStats, TryAdd
from hotcount.stores import KeyValueStore

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Added = TypeVar("Added", covariant=True, default=int)
else:
    from typing import TypeVar

    Added = TypeVar("Added", covariant=True)


class Answers(Generic[Added]):
    """The type that add() returns, for type checkers."""

    __slots__ = ()


@result
@dataclass(frozen=True, slots=True)
class RetryQueue(Answers[int | Queued]):
    """The queue, passed as retry=, in which adds of a counter wait while Redis does not answer.

    For Counter and PeriodCounter. An add that returned a number or a Queued is counted exactly
    once, unless it expires: Redis stores the number of each process's last add beside each key, so
    it recognizes an add that is sent again. On a cluster adds wait for the primary of their key,
    while adds to keys of other primaries are sent. Over Memory no add waits and no file is opened.

    Example:
        >>> import hotcount
        >>> hotcount.RetryQueue(max_items=1000).max_age
        3600.0
    """

    path: str | os.PathLike[str] | None = None
    """A file with the waiting adds, which survives a kill. The next process that opens it sends the
    adds to the store of its own counter, with their original ttl and max_age. One process at a time
    owns the file (path + ".lock"). A forked child does not own it, and its adds fail as not applied
    during an outage: give each worker a path of its own. None: the queue is in memory only, and
    waiting adds are lost with the process."""
    max_items: int = 200_000
    """Maximum of waiting adds. Each takes about 250 bytes of memory, and in the file 70 bytes and
    its key."""
    max_age: float = 3600.0
    """Seconds after which a waiting add expires uncounted (RetryStats.expired), 0.001 to 30 days.
    Redis keeps a process's last add to a key for 10 minutes more: 100 to 150 bytes. An add that may
    have been sent expires also by the clock of Redis. Adds found in a file keep their original
    max_age."""
    when_full: Literal["raise", "drop_oldest"] = "raise"
    """'raise': with max_items waiting, an add raises CapacityError and is not applied.
    'drop_oldest': the oldest waiting add is dropped, and counted in RetryStats.dropped."""
    fsync: Literal["always", "interval", "off"] = "always"
    """When the file is synced to disk. With each policy queued adds survive a kill of the process.
    'always': before Queued is returned, so a power failure loses nothing; one sync of 0.1 to 10 ms
    for all concurrent adds. 'interval': once a second; a power failure may lose that second. 'off':
    when the operating system does, up to 30 s."""


@attributes
class CounterBase(Handle, Generic[Added]):
    """The constructor and the options of the sync and the aio class.

    Counter[int] returns numbers; with retry= it is a Counter[int | Queued].
    """

    __slots__ = ()

    prefix: ReadOnly[Key]
    op_keep: ReadOnly[float]
    retry: ReadOnly[RetryQueue | None]

    @native
    def __init__(
        self,
        store: KeyValueStore,
        prefix: Key = "count",
        ttl: Seconds | None = None,
        *,
        op_keep: Seconds = 86400.0,
        retry: Answers[Added] | None = None,
    ) -> None:
        """Makes a counter; nothing is sent.

        Args:
            store: A Memory or a Redis (sync or aio), or its URL.
            prefix: The part of the stored key before the ':' and the key; "": the key alone.
            ttl: A key's life in seconds from its first add, 0.001 or more, which later adds do not
                extend. None: for ever.
            op_keep: Seconds that an op_id is kept, 1 or more. Each takes 40 to 200 bytes of the
                server, or 140 in memory.
            retry: The queue of adds while Redis does not answer. A queued add returns Queued, never
                a number, and later adds to its key are queued behind it. With a ttl it is counted
                in the life of the key at its acceptance, or the one that it began; if that life is
                over, the add expires. try_add and adds with an op_id are never queued; get returns
                the store's value; reset does not change waiting adds or the key's life.

        Raises:
            ConfigError: An option has a bad value, which the error names; or the file of retry is
                damaged, of another version, no journal, or another process's.
            TypeError: An option has a wrong type.
        """

    @native
    def retry_stats(self) -> RetryStats:
        """The waiting adds of the retry queue, and the outcomes of others; ConfigError without it.

        logging.getLogger("hotcount") also has a line when an outage begins and one when no add
        waits any more.
        """


class Counter(Lifetime, CounterBase[Added]):
    """A number under a key: add to it and learn the value after this very add.

    Works on Memory and Redis. Keys are str or bytes, 1 to 1,000 bytes; a str and its UTF-8 bytes
    are one key. Numbers are signed 64-bit. Without an op_id nothing is sent twice: an add whose
    answer is lost is an OutcomeUnknownError. The value stands in the store under {store
    prefix}{prefix}:{key}, or {store prefix}{key} if the prefix is empty, a plain integer. Safe from
    many threads and across fork.

    Example:
        >>> import hotcount
        >>> likes = hotcount.Counter("memory://")
        >>> likes.add("photo:42"), likes.add("photo:42", 5)
        (1, 6)
    """

    __slots__ = ("__weakref__",)

    @native
    def add(
        self, key: Key, n: int = 1, *, op_id: Key | None = None, timeout: Seconds | None = None
    ) -> Added:
        """Adds n and returns the value after this add.

        Every concurrent caller gets its own value. With retry= the add is a Queued while Redis does
        not answer, at the latest at the deadline or the store's own timeout.

        Args:
            key: The counter's key.
            n: Any int64, negative too.
            op_id: 1 to 1,000 bytes. The add is counted once: a repeat within op_keep returns the
                first result and adds nothing, also after reset() or expiry. Later it counts again,
                or is a ConfigError where the op_id is a UUIDv7, as those of new_op_id().
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            CounterOverflowError: The value would leave signed 64 bits; nothing changed.
            WrongTypeError, DeadlineError, UnavailableError: Nothing changed.
            OutcomeUnknownError: It may have been added. Call again with the same op_id.
            CapacityError: With retry=: the queue or the disk is full.

        Example:
            >>> import hotcount
            >>> orders = hotcount.Counter("memory://")
            >>> op_id = hotcount.new_op_id()
            >>> orders.add("today", op_id=op_id), orders.add("today", op_id=op_id)
            (1, 1)
        """

    @native
    def try_add(
        self,
        key: Key,
        n: int = 1,
        *,
        min: int | None = None,
        max: int | None = None,
        timeout: Seconds | None = None,
    ) -> TryAdd:
        """Adds n only where the result stays within min and max, in one step.

        An inventory is never oversold by it. A refusal is a value; so is a result that would leave
        signed 64 bits.

        Args:
            key: The counter's key.
            n: Any int64.
            min, max: Bounds of the result, both inclusive. None: no bound.
            timeout: Seconds, more than 0. None: the store's.

        Returns:
            TryAdd: .applied, and .value, which is the current one where it was refused.

        Raises:
            HotcountError: As add does.

        Example:
            >>> import hotcount
            >>> seats = hotcount.Counter("memory://")
            >>> seats.try_add("hall", 3, max=4), seats.try_add("hall", 3, max=4)
            (TryAdd(applied=True, value=3), TryAdd(applied=False, value=3))
        """

    # A Counter[int] is a Counter[int | Queued] too; the first that fits is taken.
    @overload
    def add_many(  # type: ignore[overload-overlap]
        self: Counter[int],
        keys: Keys | Amounts,
        n: Numbers = 1,
        *,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Int64Batch: ...
    @overload
    def add_many(
        self: Counter[int | Queued],
        keys: Keys | Amounts,
        n: Numbers = 1,
        *,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> AddedBatch: ...
    @native
    def add_many(
        self,
        keys: Keys | Amounts,
        n: Numbers = 1,
        *,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Int64Batch | AddedBatch:
        """Adds to many keys, in order, and returns the value after each add.

        A failed element does not stop the others. Adds of others get their turn after at most 1,024
        of a batch with retry=.

        Args:
            keys: A sequence, or a NumPy array of str or bytes, which is read in place; keys may
                repeat. Or a mapping of key to amount, which takes no n.
            n: One int for all, or one for each as a sequence or an array of any integers.
            errors: 'raise': BatchError with .result and .errors once all are settled. 'return':
                they are in the batch's .errors.
            timeout: Seconds for all of it, more than 0. None: the store's.

        Returns:
            An Int64Batch. With retry= an AddedBatch, whose elements are numbers, and Queued where
                an add waits; once one waits, so do the later ones of its key.

        Raises:
            TypeError: An element has a wrong type; it names the index, and nothing was added.

        Example:
            >>> import hotcount
            >>> likes = hotcount.Counter("memory://")
            >>> list(likes.add_many(["a", "b", "a"], [1, 2, 3]))
            [1, 2, 4]
        """

    @native
    def get(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """The value now; 0 where the key is absent or has expired.

        >>> import hotcount
        >>> hotcount.Counter("memory://").get("photo:42")
        0
        """

    @native
    def get_many(
        self, keys: Keys, *, errors: OnErrors = "raise", timeout: Seconds | None = None
    ) -> Int64Batch:
        """The values of many keys, in order; 0 where absent. Errors as in add_many.

        >>> import hotcount
        >>> likes = hotcount.Counter("memory://")
        >>> _ = likes.add("a", 7)
        >>> list(likes.get_many(["a", "b"]))
        [7, 0]
        """

    @native
    def reset(self, key: Key, *, timeout: Seconds | None = None) -> int:
        """Removes the key and returns its last value, 0 where it was absent.

        In one step: no add falls between the reading and the removing.

        Args:
            key: The counter's key.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            OutcomeUnknownError: It may have been removed.

        Example:
            >>> import hotcount
            >>> likes = hotcount.Counter("memory://")
            >>> likes.add("a", 7), likes.reset("a"), likes.get("a")
            (7, 7, 0)
        """

    @native
    def ttl(self, key: Key, *, timeout: Seconds | None = None) -> float | None:
        """Seconds until the key expires; None where it is absent or never expires.

        >>> import hotcount
        >>> visits = hotcount.Counter("memory://", ttl=60)
        >>> visits.add("today"), visits.ttl("today") <= 60
        (1, True)
        """
