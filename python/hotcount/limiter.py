"""Limiter: at most so many hits in so long, per key, for all processes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._limit import CostOf, F, KeyOf, Patience, RateOf, decorate
from hotcount._line import acquire_now, name_of
from hotcount._native import attributes, native
from hotcount._types import Key, LimiterKey, LimiterKeys, Numbers, OnErrors, ReadOnly, Seconds
from hotcount.batches import Decisions
from hotcount.rate import Rate, Rates
from hotcount.reservation import Reservation, Reserving, reserve_now
from hotcount.results import Decision
from hotcount.stores import AnyStore

Algorithm = Literal[
    "gcra", "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"
]

OnError = Literal["raise", "open", "closed", "local"]


@attributes
class LimiterBase(Handle):
    """The constructor and the options of the sync and the aio class."""

    __slots__ = ()

    rate: ReadOnly[Rate]
    rates: ReadOnly[tuple[Rate, ...]]
    algorithm: ReadOnly[Algorithm]
    name: ReadOnly[str]
    align: ReadOnly[Literal["clock", "first"]]
    charge_denied: ReadOnly[bool]
    shadow: ReadOnly[bool]
    table: ReadOnly[str]
    on_error: ReadOnly[OnError]
    deny_cache: ReadOnly[int]
    lease: ReadOnly[int]
    op_keep: ReadOnly[float]
    # Limiters with the same value can take hits in one step; None: with no other limiter.
    _joins: ReadOnly[int | None]

    @native
    def __init__(
        self,
        store: AnyStore,
        rate: Rates,
        *,
        algorithm: Algorithm = "gcra",
        name: str | None = None,
        align: Literal["clock", "first"] = "clock",
        charge_denied: bool = False,
        shadow: bool = False,
        table: str = "hotcount_limit",
        on_error: OnError = "raise",
        deny_cache: int = 0,
        lease: int = 0,
        op_keep: Seconds = 86400.0,
    ) -> None:
        """Makes a limiter; nothing is sent.

        Args:
            store: A Memory, a Redis or a Database (sync or aio), or its URL.
            rate: '100/minute', a Rate, or 2 to 8 of them: '10/second; 1000/hour', or a tuple. A hit
                takes from all of several rates or from none, in one step. The attribute rates has
                all of them, rate the first.
            algorithm: How hits are counted; see Limiter. A Database takes 'sliding_log' with limits
                up to 1,000.
            name: Part of the keys and of the headers: 1 to 100 printable ASCII characters without
                quotes and backslashes. None is 'default'.
            align: For fixed_window: windows begin at multiples of the period since the epoch
                ('clock'), or with a key's first hit ('first').
            charge_denied: Denied hits are charged too, up to twice the limit, so a client that
                keeps asking waits longer. For gcra, the buckets, fixed_window and sliding_window.
            shadow: Decides and counts as without it, and admits hits that the limit refuses, with
                reason 'shadow': a trial of a limit on live traffic.
            table: For a Database: the table's name, or 'schema.name', up to 55 bytes. Limiters
                share it.
            on_error: What a hit does while Redis is unreachable; the decision's reason says so.
                'raise' raises the error. 'open' admits every hit but one whose cost is above the
                limit. 'closed' admits none. 'local' limits in this process alone, at the same
                rates, without knowing earlier hits, for 100,000 keys at once at most.
            deny_cache: How many denied keys this object remembers, 0 to 10 million. Over Redis a
                hit of such a key with the same cost is denied without a round trip, with the
                remaining of the first denial, until retry_after has passed since the denied hit was
                sent. A reset(), refund() or block() of this process ends that at once; one of
                another process is not seen. Not with charge_denied; a Memory ignores it.
            lease: How many hits of a key this object takes from a Redis or a Database in advance,
                to spend without a round trip, 0 to 1 million; 0 and 1: none. (The lease of
                reserve() is a time.) The store counts the hits when they are taken. So each object
                may admit up to lease - 1 hits more in an interval than the algorithm does (none
                with a fixed_window of one rate). Unspent hits end with that window, with the
                shortest period and with the process; they are not given back. remaining is the
                number that the store had left at the last round trip, plus the unspent hits. Not
                with charge_denied or shadow; a Memory ignores it.
            op_keep: Seconds that hit remembers an op_id, 1 or more.

        A Database takes no on_error and no deny_cache.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
        """

    @native
    def stats(self) -> dict[str, Any]:
        """The decisions of this object in this process, read without a round trip.

        admitted and refused count hits and reserves at all rates; a hit_all counts at its first
        limiter. reasons counts the same by Decision.reason. test, peek and refunds do not count.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "1/minute")
            >>> limiter.hit("anna").allowed, limiter.hit("anna").allowed
            (True, False)
            >>> limiter.stats()
            {'admitted': 1, 'refused': 1, 'reasons': {'allowed': 1, 'limited': 1}}
        """

    @native
    def _refund_local(self, key: LimiterKey, n: int, *, rate: Rates | None = None) -> None:
        """Gives back hits that on_error='local' has counted in this process."""

    @native
    def _ahead(self, cost: int, *, rate: Rates | None = None) -> int:
        """How many microseconds early _hit_ahead may admit a hit; 0: as hit()."""

    def _patience(self, cost: int, timeout: Seconds | None, rate: Rates | None) -> Patience:
        """The patience of an acquire."""
        return Patience(timeout, self._ahead(cost, rate=rate) / 1e6)

    def limit(
        self, *, key: KeyOf, cost: CostOf = 1, rate: RateOf = None, timeout: Seconds | None = None
    ) -> Callable[[F], F]:
        """Decorates a function: each call is a hit, and a refused one raises LimitExceeded.

        The error's decision has the reason, and decision.headers() tells an HTTP client when to
        retry. The function may be a method (below @staticmethod and @classmethod), plain or async.
        An async function never blocks its loop, and its key, cost and rate may be async too; a
        plain function blocks until the hit is decided. Both hold for the sync and the aio class.

        Args:
            key: A value, or a function of the call's arguments. Its parameters may be some of the
                decorated function's parameters, by name, with their defaults; with ``*args`` and
                ``**kwargs`` it is called with the same arguments as the decorated function.
            cost: As key.
            rate: As key. None: the limiter's own.
            timeout: Seconds of the hit, more than 0. None: the store's.

        Raises:
            TypeError: The function is a generator, or key, cost or rate has a parameter that the
                function does not have.
            HotcountError: As hit does, when the function is called.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "2/minute", name="mail")
            >>> @limiter.limit(key=lambda user: ("mail", user))
            ... def send(user, text):
            ...     return f"to {user}: {text}"
            >>> send("anna", "one"), send(user="anna", text="two")
            ('to anna: one', 'to anna: two')
            >>> try:
            ...     send("anna", "three")
            ... except hotcount.LimitExceeded as error:
            ...     error.decision.reason
            'limited'
        """

        _ = self.name  # Raises here, not at the first call, if __init__ has not run.

        def decorator(function: F) -> F:
            return decorate(self, function, key, cost, rate, timeout)

        return decorator


class Limiter(Lifetime, Reserving, LimiterBase):
    """At most N hits in each period, per key, for all processes together.

    Works on Memory, Redis and SQL databases, on the store's clock. A hit is one round trip to
    Redis, and in a database a transaction that it shares with concurrent hits; create_table() makes
    the table. A denied hit costs nothing. Keys are str or bytes, 1 to 1,000 bytes, or tuples of
    them, encoded so that no two tuples, and no tuple and str, are one key; databases take no NUL,
    and PostgreSQL UTF-8 only. State is kept per name, algorithm and rate, and expires. Safe from
    many threads and across fork.

    Calls take rate= in place of the limiter's own rate, such as the rate of a caller's plan. A key
    has a separate state for each rate. A bad rate is a ConfigError that quotes it.

    With on_error other than 'raise', hit, hit_many, at_most, test, peek, reserve and hit_all are
    answered without the server after UnavailableError, DeadlineError, OutcomeUnknownError or
    CapacityError. One call a second asks the server in the background until it answers. The first
    call that fails waits for its timeout; later calls do not wait. A timeout= of less than nine
    tenths of the store's is no sign of an outage: when it passes, on_error answers that call alone,
    unless the store has answered none for the length of its own timeout. The logger 'hotcount' has
    one line at the beginning of an outage and one at its end. Other errors, and all errors of
    refund(), block() and reset(), are raised.

    The algorithms:

    - 'gcra': at most burst + rate x t in every interval of length t. 'token_bucket' and
      'leaky_bucket' are the same under other names.
    - 'fixed_window': at most the limit in each window; up to twice that within one period, across
      the edge of two windows.
    - 'sliding_window': at most the limit in each window, and at most twice that in any period: the
      previous window counts in part.
    - 'sliding_log': at most the limit in every period, exactly. It stores an entry for each hit, so
      limits go up to 100,000.

    Example:
        >>> import hotcount
        >>> limiter = hotcount.Limiter("memory://", "100/minute", name="api")
        >>> limiter.hit("user:1").remaining
        99
        >>> limiter.algorithm, str(limiter.rate)
        ('gcra', '100/minute')
        >>> limiter = hotcount.Limiter("memory://", "2/second; 1000/hour", algorithm="sliding_log")
        >>> [limiter.hit("user:1").violated for _ in range(3)]
        [(), (), ('2/second',)]
    """

    __slots__ = ("__weakref__",)

    @native
    def create_table(self, *, timeout: Seconds | None = None) -> None:
        """Creates the table in a Database if it is missing. Idempotent; other stores need none.

        Args:
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            DatabaseError: The database refuses, such as for lack of a right; nothing was created.
            HotcountError: As hit does.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("sqlite:///:memory:", "5/minute")
            >>> limiter.create_table()
            >>> limiter.hit("user:1").remaining
            4
        """

    @native
    def _hit_all(
        self,
        hits: Sequence[tuple[LimiterBase, LimiterKey, int, Rates | None]],
        *,
        timeout: Seconds | None = None,
    ) -> tuple[Decision, tuple[str, ...]]:
        """Takes the hits of one store, all or none; returns the decision and each hit's reason."""

    @native
    def hit(
        self,
        key: LimiterKey,
        cost: int = 1,
        *,
        rate: Rates | None = None,
        op_id: Key | None = None,
        timeout: Seconds | None = None,
    ) -> Decision:
        """Takes cost if the limit allows it.

        It checks and takes in one step: concurrent callers never exceed the limit together.

        Args:
            key: The limited key.
            cost: 1 or more. A cost above the limit is denied, with retry_after None.
            rate: In place of the limiter's own; see Limiter.
            op_id: 1 to 1,000 bytes, over Memory and Redis. The hit is taken once: a repeat for the
                key within op_keep returns the first decision unchanged, also a refusal, and takes
                nothing, even after reset(). So the call may be repeated after any error. A new hit,
                such as after retry_after, needs a new op_id. Every call asks the store, also for a
                key that deny_cache has; in an outage on_error decides.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            WrongTypeError: The key holds something else; nothing was taken.
            DeadlineError, UnavailableError: Nothing was taken.
            OutcomeUnknownError: It may have been taken.
            ConfigError, TypeError: An argument is bad, or op_id is a UUIDv7 older than op_keep;
                nothing was sent.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "5/minute")
            >>> limiter.hit(("user", "1"), 5).remaining
            0
            >>> denied = limiter.hit(("user", "1"))
            >>> denied.allowed, denied.reason
            (False, 'limited')
            >>> [limiter.hit("user:2", rate="9/minute").remaining, limiter.hit("user:2").remaining]
            [8, 4]
            >>> [limiter.hit("user:3", op_id="order:7").remaining for _ in range(2)]
            [4, 4]
        """

    @native
    def _hit_ahead(
        self,
        key: LimiterKey,
        cost: int = 1,
        *,
        rate: Rates | None = None,
        timeout: Seconds | None = None,
    ) -> Decision:
        """hit(), up to 10 ms ahead: retry_after is the time until the hit may be used."""

    @native
    def hit_many(
        self,
        keys: LimiterKeys,
        cost: Numbers = 1,
        *,
        rate: Rates | None = None,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Decisions:
        """Hits many keys, in order, each by itself.

        Equal keys are decided one after another. A failed element does not stop the others. Over
        Redis a round trip takes 256 keys, in a database a transaction takes 1,000.

        Args:
            keys: A sequence, or a mapping of key to cost, which takes no cost.
            cost: One int for all, or one for each.
            rate: In place of the limiter's own.
            errors: 'raise': BatchError with .result and .errors once all are settled. 'return':
                they are in the batch's .errors, by index.
            timeout: Seconds for all of it, more than 0. None: the store's.

        Raises:
            TypeError: An element has a wrong type; it names the index, and nothing was hit.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "2/minute")
            >>> list(limiter.hit_many(["a", "a", "a", "b"]).allowed)
            [True, True, False, True]
        """

    @native
    def at_most(
        self, key: LimiterKey, n: int, *, rate: Rates | None = None, timeout: Seconds | None = None
    ) -> int:
        """Takes as much of n as the limit allows, in one step, and returns how much that is.

        Args:
            key: The limited key.
            n: 1 or more. With shadow the answer is n.
            rate: In place of the limiter's own.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            ConfigError: n is below 1.
            HotcountError: As hit does.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "5/minute")
            >>> [limiter.at_most("user:1", 3) for _ in range(3)]
            [3, 2, 0]
        """

    @native
    def refund(
        self, key: LimiterKey, n: int, *, rate: Rates | None = None, timeout: Seconds | None = None
    ) -> int:
        """Gives back n that were taken and not used; returns what remains then.

        Never beyond a full limit, and to a key that has expired nothing. The newest hits are given
        back.

        Args:
            key: The limited key.
            n: 1 or more.
            rate: That at which they were taken.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            ConfigError: n is below 1.
            OutcomeUnknownError: It may have been given back, and once more would be once too often.
            HotcountError: As hit does.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "5/minute")
            >>> limiter.hit("user:1", 4).remaining, limiter.refund("user:1", 3)
            (1, 4)
        """

    @native
    def block(
        self,
        key: LimiterKey,
        seconds: Seconds,
        *,
        rate: Rates | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Refuses all hits of the key for a while, whatever its limits say.

        Refused hits have reason 'blocked' and in retry_after what is left; they cost nothing. A
        second block replaces the first; reset lifts it.

        Args:
            key: The limited key.
            seconds: More than 0, 366 days at most; on the store's clock.
            rate: In place of the limiter's own.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            OutcomeUnknownError: It may be blocked; call it again.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "5/minute")
            >>> limiter.block("user:1", 60)
            >>> denied = limiter.hit("user:1")
            >>> denied.allowed, denied.reason
            (False, 'blocked')
        """

    def reserve(
        self,
        key: LimiterKey,
        n: int,
        *,
        lease: Seconds = 30.0,
        rate: Rates | None = None,
        timeout: Seconds | None = None,
    ) -> Reservation:
        """Holds n until commit(actual), cancel() or the end of the lease.

        Other callers find it taken; only what is committed is charged.

        Args:
            key: The limited key.
            n: 1 or more.
            lease: Seconds that n is held at most, 0.001 to 366 days. It is no number of hits, as
                the limiter's own lease is.
            rate: In place of the limiter's own.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            HotcountError: As hit does, within the timeout.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "5000/minute")
            >>> limiter.reserve("user:1", 4000).commit(1234).remaining
            3766
        """
        return reserve_now(self, key, n, lease, rate, timeout)

    def acquire(
        self,
        key: LimiterKey,
        cost: int = 1,
        timeout: Seconds | None = None,
        *,
        rate: Rates | None = None,
    ) -> Decision:
        """Hits, and as long as it is refused sleeps for retry_after and hits again.

        Waiters of this object for one key and rate are a queue, first come first served: the first
        one hits, the others sleep. A large cost at the head holds up small ones behind it. Other
        objects and processes have queues of their own, and hit() passes all of them. With a limit
        without a burst ("50/second burst 1") the head takes its hit up to 10 ms ahead, and returns
        when its time has come: while others wait, nearly each hit() of the same limit is refused.

        Args:
            key: The limited key.
            cost: 1 or more.
            timeout: Seconds to wait, 0 or more. None: for ever.
            rate: In place of the limiter's own.

        Returns:
            The refusal when the timeout has passed; at once where the next hit, of this waiter or
                of the head before it, would come later, or where cost is above the limit.

        Raises:
            HotcountError: As hit, each of which has the store's timeout. If the store fails two
                heads in a row, all waiters get the error: "not sent", and nothing was taken.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "1/50 ms")
            >>> [bool(limiter.acquire("user:1")) for _ in range(2)]
            [True, True]
            >>> bool(limiter.acquire("user:1", timeout=0))
            False
        """
        patience = self._patience(cost, timeout, rate)

        def ask() -> Decision:
            hit = self._hit_ahead if patience.may_be_ahead() else self.hit
            return hit(key, cost, rate=rate)

        return acquire_now(self, name_of(key, rate), cost, patience, ask)

    wait = acquire

    @native
    def test(
        self,
        key: LimiterKey,
        cost: int = 1,
        *,
        rate: Rates | None = None,
        timeout: Seconds | None = None,
    ) -> Decision:
        """The decision that hit would return, with what remains now. It takes nothing.

        Args:
            key, cost, rate, timeout: As in hit.

        Raises:
            HotcountError: As hit does, except OutcomeUnknownError.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "5/minute")
            >>> limiter.test("user:1", 6).reason
            'cost_above_limit'
        """

    @native
    def peek(
        self, key: LimiterKey, *, rate: Rates | None = None, timeout: Seconds | None = None
    ) -> Decision:
        """test() with a cost of 1.

        >>> import hotcount
        >>> hotcount.Limiter("memory://", "5/minute").peek("user:1").remaining
        5
        """

    @native
    def reset(
        self, key: LimiterKey, *, rate: Rates | None = None, timeout: Seconds | None = None
    ) -> None:
        """Forgets the key: it is as if it had never been hit.

        Args:
            key: The limited key.
            rate: In place of the limiter's own.
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            OutcomeUnknownError: It may have been forgotten; call it again.
            HotcountError: As hit does.

        Example:
            >>> import hotcount
            >>> limiter = hotcount.Limiter("memory://", "1/minute")
            >>> bool(limiter.hit("user:1")), limiter.reset("user:1"), bool(limiter.hit("user:1"))
            (True, None, True)
        """
