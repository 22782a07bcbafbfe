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
    """Tells type checkers what add() returns."""

    __slots__ = ()


@result
@dataclass(frozen=True, slots=True)
class RetryQueue(Answers[int | Queued]):
    """Where the adds of a Counter or a PeriodCounter wait while Redis does not answer: its retry=.

    An add that returned a number or a Queued is counted exactly once, unless it expires. Redis
    remembers the number of each process's last add beside each key, so an add that is sent again is
    known. Over Memory nothing ever waits and no file is opened.

    >>> import hotcount
    >>> hotcount.RetryQueue(max_items=1000).max_age
    3600.0
    """

    path: str | os.PathLike[str] | None = None
    """A file that keeps what waits when the program is killed; the next process that opens it adds
    it, to the store of its own counter, with the ttl and the max_age that they came with. One
    process at a time owns it (path + ".lock"). A forked child does not, and its adds fail as not
    applied while Redis is away: give each worker a path of its own. None: memory alone, and what
    waits is lost with the process."""
    max_items: int = 200_000
    """Most adds that wait; each takes about 250 bytes of memory, and 70 and its key of the file."""
    max_age: float = 3600.0
    """Seconds after which an add that waits is counted nowhere (RetryStats.expired), 0.001 to 30
    days. Redis remembers a process's last add to a key for ten minutes more: 100 to 150 bytes. An
    add that may have been sent is too old also when Redis' clock says so. Adds found in a file keep
    the max_age that they came with."""
    when_full: Literal["raise", "drop_oldest"] = "raise"
    """'raise': an add that finds max_items waiting is a CapacityError, and not applied.
    'drop_oldest': the oldest is dropped for it, and counted in RetryStats.dropped."""
    fsync: Literal["always", "interval", "off"] = "always"
    """When the file is forced to the disk. No policy loses what returned Queued when the program is
    killed. 'always': before Queued is returned, so a power cut loses nothing; 0.1 to 10 ms for all
    adds that wait for it together. 'interval': once a second, which a power cut may lose. 'off':
    when the system does, up to 30 s."""


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
            prefix: Stands before every key, with a ':'; "" means the key itself.
            ttl: A key's life in seconds from its first add, 0.001 or more, which later adds do not
                extend. None: for ever.
            op_keep: Seconds that an op_id is remembered, 1 or more. Until then each costs 40 to 200
                bytes of the server, or 140 in memory.
            retry: Where adds wait while Redis does not answer. Such an add returns Queued, never a
                number, and later adds to its key go behind it. With a ttl it is counted in the life
                of the key that stood when it was accepted, or that it began; if that life is over,
                the add expires. try_add and adds with an op_id are never queued, get gives what the
                store has; reset does not touch adds that wait and does not begin the life anew.

        Raises:
            ConfigError: An option has a bad value, which the error names; or the file of retry is
                damaged, of another version, no journal, or another process's.
            TypeError: An option has a wrong type.
        """

    @native
    def retry_stats(self) -> RetryStats:
        """What waits in the retry queue and what became of it; ConfigError without retry=.

        An outage is also told to logging.getLogger("hotcount"): when it is noticed, and when
        nothing waits any more.
        """


class Counter(Lifetime, CounterBase[Added]):
    """A number under a key: add to it and learn the value after this very add.

    Works on Memory and Redis. Keys are str or bytes, 1 to 1,000 bytes; a str and its UTF-8 bytes
    are one key. Numbers are signed 64-bit; an add that would leave them is a CounterOverflowError
    and changes nothing. Without an op_id nothing is replayed: an add whose answer is lost is an
    OutcomeUnknownError. Safe from many threads and across fork. The value stands in the store under
    {store prefix}{prefix}:{key}, or {store prefix}{key} if the prefix is empty, a plain integer.

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
        """Adds n (any int64, negative too) and returns the value after this add.

        Every concurrent caller gets its own value. With an op_id (1 to 1,000 bytes) it is counted
        once: a repeat within op_keep returns the first result and adds nothing, also after reset()
        or expiry; later it counts again, or is a ConfigError where the op_id is one of new_op_id(),
        or another UUIDv7. After an OutcomeUnknownError call again with the same op_id. timeout:
        seconds, more than 0; None is the store's.

        With retry= it is a Queued while Redis does not answer, at the latest at the deadline or the
        store's own timeout, and a CapacityError where the queue or the disk is full.

        CounterOverflowError, WrongTypeError, DeadlineError, UnavailableError: nothing changed.
        OutcomeUnknownError: it may have been added; with a method other than 'script' also that it
        was, and its expiry failed.

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
        """Adds n only where the result stays within min and max, both inclusive.

        Checked and added in one step, so that an inventory is never oversold. A refusal is a value:
        .applied is False and .value what stands; so it is where the result would leave signed 64
        bits. Other errors as in add.

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

        keys: a sequence, or a NumPy array of str or bytes; they may repeat. n: one int for all, or
        one for each as a sequence, or as an array of any integers. Arrays are read in place. A
        mapping is key -> amount, and takes no n. A failed element does not stop the others.
        errors='raise': BatchError with .result and .errors once all are settled; 'return': they are
        in the batch's .errors. An element of a wrong type is a TypeError that names its index,
        before anything is added.

        With retry= it is an AddedBatch, whose elements are numbers, and Queued where an add waits;
        once one waits, so do the later ones of its key. Adds of others get their turn after at most
        1,024 of a batch.

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

        In one step: no add falls between the reading and the removing. OutcomeUnknownError: it may
        have been removed.

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
