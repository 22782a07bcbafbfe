"""
The extension behind hotcount; import names from hotcount itself.
"""

from __future__ import annotations
import collections.abc
import datetime
import hotcount
import hotcount.errors
from hotcount.batches import Casts, Counts, Int64Batch
from hotcount.stores import AnyDatabase, KeyValueStore
import threading
import typing
import typing_extensions
import uuid

__all__: list[str] = [
    "AsyncVotes",
    "Cast",
    "Contract",
    "Count",
    "Drift",
    "FlushReport",
    "Handle",
    "NativeFunction",
    "Pending",
    "SyncRound",
    "SyncWorker",
    "Votes",
    "native",
    "options",
    "result",
    "undeclared",
]

class Handle:
    """
    What all counters, limiters and sets are in C++.
    """

    def __init__(self, *arguments: typing.Any, **options: typing.Any) -> None: ...

class Buffer(Handle):
    """
    A Handle whose memory NumPy takes as it is.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...

class NativeFunction:
    """
    A declared function whose body is C++.
    """

    def __call__(self, *arguments: typing.Any, **options: typing.Any) -> typing.Any: ...

class SyncRound:
    """
    What one round of a SyncWorker did, in items.
    """
    def __eq__(self, other: typing.Any) -> typing.Any: ...
    def __hash__(self) -> int: ...
    def __init__(
        self,
        scanned: typing.SupportsInt | typing.SupportsIndex,
        filled: typing.SupportsInt | typing.SupportsIndex,
        saved: typing.SupportsInt | typing.SupportsIndex,
        deleted: typing.SupportsInt | typing.SupportsIndex,
        recounted: typing.SupportsInt | typing.SupportsIndex,
        unsettled: typing.SupportsInt | typing.SupportsIndex,
        at_risk: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def __reduce__(self) -> tuple[type, tuple[int, int, int, int, int, int, int]]: ...
    def __repr__(self) -> str: ...
    @property
    def at_risk(self) -> int:
        """
        Votes in those, which only the cache has counted.
        """
    @property
    def deleted(self) -> int:
        """
        Saved, past their retention, and taken out of the cache.
        """
    @property
    def filled(self) -> int:
        """
        Given what the database knew.
        """
    @property
    def recounted(self) -> int:
        """
        Summed again from the votes: a count was lost or in doubt.
        """
    @property
    def saved(self) -> int:
        """
        Written to the item table.
        """
    @property
    def scanned(self) -> int:
        """
        Counts found in the cache.
        """
    @property
    def unsettled(self) -> int:
        """
        Not saved as found: for the next round.
        """

class SyncWorker:
    """
    Brings the counts of a cache to the database; Votes.sync_worker() makes one.

    Any number may run at once, in threads and processes: each step is fenced, so one that
    dies or stalls between any two of them loses nothing and overwrites nothing.
    """
    def __repr__(self) -> str: ...
    def run(self, stop: threading.Event | None = None) -> None:
        """
        Rounds, with a pause of `interval` between them, until stop is set. None: for ever.

        A round that failed because a server is away is tried again; other errors are raised.
        """
    def run_once(self, *, timeout: float | datetime.timedelta | None = None) -> SyncRound:
        """
        Looks at every count in the cache once. timeout in seconds for the
        whole round; None: 60.
        """
    def stats(self) -> dict[str, int]:
        """
        Rounds, those that failed, and sums of what they did; unsettled and
        at_risk are those of the latest round.
        """

class Cast:
    """
    What a cast or retract came to.
    """
    def __eq__(self, other: typing.Any) -> typing.Any: ...
    def __hash__(self) -> int: ...
    def __init__(
        self,
        counted: bool,
        changed: bool,
        previous: typing.SupportsInt | typing.SupportsIndex,
        value: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def __reduce__(self) -> tuple[type, tuple[bool, bool, int, int]]: ...
    def __repr__(self) -> str: ...
    @property
    def changed(self) -> bool:
        """
        This call changed it; a repeat, or an older version, does not.
        """
    @property
    def counted(self) -> bool:
        """
        The user's vote counts now: value is not 0.
        """
    @property
    def previous(self) -> int:
        """
        The vote before this call, 0 for none.
        """
    @property
    def value(self) -> int:
        """
        The vote now.
        """

class Count:
    """
    An item's count; int(count) is its value.
    """
    def __bool__(self) -> bool: ...
    def __eq__(self, other: typing.Any) -> typing.Any: ...
    def __hash__(self) -> int: ...
    def __init__(
        self,
        value: typing.SupportsInt | typing.SupportsIndex,
        exact: bool,
        as_of: typing.SupportsFloat | typing.SupportsIndex,
        source: str,
        pending: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def __int__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, bool, float, str, int]]: ...
    def __repr__(self) -> str: ...
    @property
    def as_of(self) -> float:
        """
        When it was read, in seconds since 1970 UTC; of a copy, when a fold counted it.
        """
    @property
    def exact(self) -> bool:
        """
        Whether it agrees with the votes as of as_of.
        """
    @property
    def pending(self) -> int:
        """
        Votes acknowledged but not yet in value.
        """
    @property
    def source(self) -> str:
        """
        Where it was read: 'sql' or 'cache'.
        """
    @property
    def value(self) -> int:
        """
        The sum over the item's votes, and its opening balance.
        """

class Drift:
    """
    An item whose stored count differed from its votes.
    """
    def __eq__(self, other: typing.Any) -> typing.Any: ...
    def __hash__(self) -> int: ...
    def __init__(
        self,
        item: int | str | uuid.UUID,
        counted: typing.SupportsInt | typing.SupportsIndex,
        actual: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def __reduce__(self) -> tuple[type, tuple[int | str | uuid.UUID, int, int]]: ...
    def __repr__(self) -> str: ...
    @property
    def actual(self) -> int:
        """
        What the votes say, and the opening balance.
        """
    @property
    def counted(self) -> int:
        """
        What the count said.
        """
    @property
    def item(self) -> int | str | uuid.UUID:
        """
        The item's id.
        """

class FlushReport:
    """
    What flush() came to.
    """
    def __eq__(self, other: typing.Any) -> typing.Any: ...
    def __hash__(self) -> int: ...
    def __init__(
        self,
        acked: typing.SupportsInt | typing.SupportsIndex,
        pending: typing.SupportsInt | typing.SupportsIndex,
        at_risk: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def __reduce__(self) -> tuple[type, tuple[int, int, int]]: ...
    def __repr__(self) -> str: ...
    @property
    def acked(self) -> int:
        """
        Items whose count in the item table was brought up to date.
        """
    @property
    def at_risk(self) -> int:
        """
        Acknowledged votes that a crash now could lose.
        """
    @property
    def pending(self) -> int:
        """
        Items not reached before the deadline.
        """

class Contract:
    """
    What an acknowledgement means, and what may be lost.
    """
    def __eq__(self, other: typing.Any) -> typing.Any: ...
    def __hash__(self) -> int: ...
    def __init__(
        self, strategy: str, acknowledged: str, may_lose: str, durable: bool, exact: bool
    ) -> None: ...
    def __reduce__(self) -> tuple[type, tuple[str, str, str, bool, bool]]: ...
    def __repr__(self) -> str: ...
    @property
    def acknowledged(self) -> str:
        """
        What is true when cast returns.
        """
    @property
    def durable(self) -> bool:
        """
        An acknowledged vote survives the death of this process.
        """
    @property
    def exact(self) -> bool:
        """
        count() equals the committed votes at all times.
        """
    @property
    def may_lose(self) -> str:
        """
        What may be lost, and when.
        """
    @property
    def strategy(self) -> str:
        """
        The strategy's name.
        """

class Votes:
    """
    One user, one vote per item, and a count that is exact at every commit.

    A vote is a state: cast sets it, retract sets it to 0, and doing either again changes
    nothing, so every call may be retried after any failure. cast returns after the vote is
    committed. Strategies: 'naive' (one transaction per vote, the item's row updated in it),
    'slotted' (one transaction per vote, one of the item's cells), 'batched' (concurrent
    votes share a transaction), 'cached' (like it, with the count in Redis or memory, which
    sync_worker() saves: contract() says what that means). Safe from many threads and across
    fork.
    """
    def __enter__(self) -> typing_extensions.Self: ...
    def __exit__(self, *exception: typing.Any) -> None: ...
    def __init__(
        self,
        db: AnyDatabase,
        cache: KeyValueStore | None = None,
        strategy: typing.Literal["naive", "slotted", "batched", "cached"] = "batched",
        slots: int = 100,
        item_table: str = "item",
        item_id: str = "id",
        item_count: str = "vote_count",
        vote_table: str = "vote",
        vote_item: str = "item_id",
        vote_user: str = "user_id",
        item_type: type[int] | type[str] | type[uuid.UUID] = ...,
        user_type: type[int] | type[str] | type[uuid.UUID] = ...,
        max_age: float | datetime.timedelta = 30.0,
        retention: float | datetime.timedelta = 600.0,
        page: int = 1000,
        interval: float | datetime.timedelta = 1.0,
        workers: int = 2,
        max_batch: int = 1000,
        max_delay: float | datetime.timedelta = 0.0,
        missing_items: typing.Literal["refuse", "create"] = "refuse",
        commit_workers: int = 2,
        fold_interval: float | datetime.timedelta = 1.0,
        foreign_key: bool = True,
    ) -> None:
        """
        db: an object or its URL. cache: the same, for 'cached', which needs one, and 'batched',
        which then keeps copies of its counts there, published by folds, for count(); a Memory is
        for one process, and SQLite does without. slots: cells per item of 'slotted'. item_... and
        vote_...: the names of tables and columns. item_type, user_type: int, str or uuid.UUID, as
        the tables have them. For 'cached': retention, the seconds that a count stays in the cache
        after its last vote; page, the counts that a worker saves at once; interval, its pause in
        seconds; workers, its threads; max_age, the seconds that count() trusts what it knows of the
        tables. max_age with 'batched': the seconds that a copy lives, and so how old it may be where
        a fold could not reach the cache. max_batch: most votes in one transaction of 'batched' and
        'cached'; max_delay: seconds a transaction waits for company. missing_items: a vote for an
        item that has no row is an IntegrityError ('refuse') or makes the row ('create').
        commit_workers: threads of this object that write and answer votes of hotcount.aio, 1 to
        64; more than 2 gain nothing with 'batched' and 'cached'; callers that wait need none.
        fold_interval: 'batched' on servers, the least seconds between two folds, 0.01 to 3600: how
        far item.vote_count lags; exact counts add up what waits. foreign_key: False makes vote
        tables that do not reference the items, which spares voters a lock on the item's row; the
        votes of a deleted item stay.
        Bad values: ConfigError.
        """
    def __reduce__(self) -> typing.NoReturn: ...
    def __repr__(self) -> str: ...
    def _note_appended(self, rows: int) -> None:
        """
        The caller's own SQL has committed journal rows: folds them soon.
        """
    def add_items(
        self,
        items: collections.abc.Iterable[int | str | uuid.UUID],
        *,
        timeout: float | datetime.timedelta | None = None,
    ) -> None:
        """
        Adds rows to the item table, in one transaction; those there already stay as they are.
        """
    def cast(
        self,
        item: int | str | uuid.UUID,
        user: int | str | uuid.UUID | None,
        value: int = 1,
        *,
        version: int | None = None,
        op_id: str | None = None,
        timeout: float | datetime.timedelta | None = None,
    ) -> Cast:
        """
        Sets the user's vote for the item; committed when it returns. Idempotent.

        value: -2147483647 to 2147483647; 0 retracts. version: applied only where higher than the row's. An item
        or user of another type than item_type, user_type is a TypeError. IntegrityError: the
        item has no row. DeadlineError: the database was locked until then; nothing was applied.
        OutcomeUnknownError: cast it again. timeout in seconds; None: the database's.
        user=None: a vote without a user, whose op_id, 1 to 255 characters, names it for good:
        the first one under it stands. It takes no version and cannot be retracted.
        """
    def cast_many(
        self,
        items: collections.abc.Iterable[int | str | uuid.UUID],
        users: collections.abc.Iterable[int | str | uuid.UUID] | None,
        values: int | collections.abc.Iterable[int] = 1,
        *,
        op_ids: collections.abc.Iterable[str] | None = None,
        errors: typing.Literal["raise", "return"] = "raise",
        timeout: float | datetime.timedelta | None = None,
    ) -> Casts:
        """
        Casts many votes, in order: the k-th user votes for the k-th item.

        'batched' takes as few transactions as max_batch allows, the others one per vote. A
        failed element does not stop the others. errors='raise': BatchError with .result and
        .errors once all are settled. A wrong type is a TypeError naming the index, before
        anything is cast; columns of unequal length are a ConfigError. users=None with op_ids:
        votes without a user.
        """
    def close(self) -> None:
        """
        Ends this object; a database opened from a URL for it ends too.
        """
    def contract(self) -> Contract:
        """
        What an acknowledgement means with this strategy.
        """
    def count(
        self,
        item: int | str | uuid.UUID,
        *,
        consistency: typing.Literal["cached", "exact"] = "cached",
        timeout: float | datetime.timedelta | None = None,
    ) -> Count:
        """
        The item's count. consistency, where there is a cache: 'cached' reads it, and the
        tables where it has nothing (.source says which, .as_of what it has at least); it may be
        less than one read before, as contract() says. 'exact' reads the tables. Without a cache
        it is exact either way.
        """
    def count_many(
        self,
        items: collections.abc.Iterable[int | str | uuid.UUID],
        *,
        consistency: typing.Literal["cached", "exact"] = "cached",
        timeout: float | datetime.timedelta | None = None,
    ) -> Counts:
        """
        The counts of many items, in order, all from one snapshot; from a cache, each
        as it is found there.
        """
    def create_tables(
        self,
        *,
        existing_counts: typing.Literal["keep", "recount"] | None = None,
        timeout: float | datetime.timedelta | None = None,
    ) -> None:
        """
        Creates the tables and indexes that are missing. Idempotent.

        Tables that another strategy counted are reconciled. Tables that hotcount has not
        counted before may have counts that are not the sum of their votes (NULL is 0): a
        ConfigError says how many items differ, and nothing is created or changed, unless
        existing_counts says what is right. 'keep': the difference is the item's opening
        balance, for good; every count has it, and reconcile() expects it. 'recount': the
        votes; what was counted is lost. It is ignored where hotcount counts already.
        """
    def flush(self, timeout: float | datetime.timedelta | None = 5.0) -> FlushReport:
        """
        Brings the count in the item table up to date where the strategy does not by itself.
        """
    def reconcile(
        self,
        items: collections.abc.Iterable[int | str | uuid.UUID] | None = None,
        *,
        dry_run: bool = False,
        timeout: float | datetime.timedelta | None = None,
    ) -> list[Drift]:
        """
        Finds counts that disagree with the votes and sets them right, voters undisturbed.

        items: None for all. dry_run: only look. Returns what differed.
        """
    def retract(
        self,
        item: int | str | uuid.UUID,
        user: int | str | uuid.UUID,
        *,
        version: int | None = None,
        timeout: float | datetime.timedelta | None = None,
    ) -> Cast:
        """
        Sets the user's vote to 0. Idempotent; also where there was no vote.
        """
    def schema(self) -> str:
        """
        The SQL that create_tables runs, and what brings tables of an older release over.
        """
    def stats(self, *, timeout: float | datetime.timedelta | None = None) -> dict[str, typing.Any]:
        """
        What this object has done in this process, and what waits in the tables.

        votes and failed_votes; batches, the transactions that votes shared, and
        mean_batch_votes; retried_transactions of the database; waiting_votes, and held_votes,
        which wait for rows that other transactions have held for held_votes_s; median_call_s,
        p99_call_s and longest_call_s, within a quarter. Where the counts have a journal: folds,
        folded_rows, failed_folds, fold_error and last_fold_s of this process; pending_rows and
        pending_items of all, oldest_pending_s, the age of the oldest at most; held_items;
        refused_items, a dict of items that folds fail for, and why. Times are seconds.
        """
    def sync_worker(self) -> SyncWorker:
        """
        A worker that brings the counts of 'cached' to the item table; a
        ConfigError with a strategy that needs none.
        """
    @property
    def closed(self) -> bool:
        """
        Whether close() was called.
        """
    @property
    def foreign_key(self) -> bool:
        """
        Whether the votes' tables reference the items'.
        """
    @property
    def item_count(self) -> str:
        """
        Its column of counts.
        """
    @property
    def item_id(self) -> str:
        """
        Its column of ids.
        """
    @property
    def item_table(self) -> str:
        """
        The items' table.
        """
    @property
    def item_type(self) -> typing.Any:
        """
        int, str or uuid.UUID.
        """
    @property
    def missing_items(self) -> str:
        """
        'refuse' or 'create'.
        """
    @property
    def slots(self) -> int:
        """
        Cells per item of 'slotted'.
        """
    @property
    def strategy(self) -> str:
        """
        The strategy's name.
        """
    @property
    def user_type(self) -> typing.Any:
        """
        int, str or uuid.UUID.
        """
    @property
    def vote_item(self) -> str:
        """
        Its column of items.
        """
    @property
    def vote_table(self) -> str:
        """
        The votes' table.
        """
    @property
    def vote_user(self) -> str:
        """
        Its column of users.
        """

class AsyncVotes:
    """
    hotcount.Votes for event loops: the calls return what is awaited for their outcome.

    A call starts when it is made, not when it is awaited: awaited later, or not at all, it
    is made just the same, and cancelling what waits for it does not withdraw it. Votes made
    while others are written share the next transaction; of two votes of one user the one
    made later is applied later. At most commit_workers threads of this object write, and
    wake the loop once for all votes of a transaction. schema(), contract() and sync_worker()
    are not awaited; the worker is hotcount's, for a thread. Any number of loops may use it,
    in any threads, and so may forked children.
    """
    def __aenter__(
        self,
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, typing_extensions.Self]: ...
    def __aexit__(
        self, *exception: typing.Any
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, None]:
        """
        aclose().
        """
    def __init__(
        self,
        db: AnyDatabase,
        cache: KeyValueStore | None = None,
        strategy: typing.Literal["naive", "slotted", "batched", "cached"] = "batched",
        slots: int = 100,
        item_table: str = "item",
        item_id: str = "id",
        item_count: str = "vote_count",
        vote_table: str = "vote",
        vote_item: str = "item_id",
        vote_user: str = "user_id",
        item_type: type[int] | type[str] | type[uuid.UUID] = ...,
        user_type: type[int] | type[str] | type[uuid.UUID] = ...,
        max_age: float | datetime.timedelta = 30.0,
        retention: float | datetime.timedelta = 600.0,
        page: int = 1000,
        interval: float | datetime.timedelta = 1.0,
        workers: int = 2,
        max_batch: int = 1000,
        max_delay: float | datetime.timedelta = 0.0,
        missing_items: typing.Literal["refuse", "create"] = "refuse",
        commit_workers: int = 2,
        fold_interval: float | datetime.timedelta = 1.0,
        foreign_key: bool = True,
    ) -> None:
        """
        db: an object or its URL. cache: the same, for 'cached', which needs one, and 'batched',
        which then keeps copies of its counts there, published by folds, for count(); a Memory is
        for one process, and SQLite does without. slots: cells per item of 'slotted'. item_... and
        vote_...: the names of tables and columns. item_type, user_type: int, str or uuid.UUID, as
        the tables have them. For 'cached': retention, the seconds that a count stays in the cache
        after its last vote; page, the counts that a worker saves at once; interval, its pause in
        seconds; workers, its threads; max_age, the seconds that count() trusts what it knows of the
        tables. max_age with 'batched': the seconds that a copy lives, and so how old it may be where
        a fold could not reach the cache. max_batch: most votes in one transaction of 'batched' and
        'cached'; max_delay: seconds a transaction waits for company. missing_items: a vote for an
        item that has no row is an IntegrityError ('refuse') or makes the row ('create').
        commit_workers: threads of this object that write and answer votes of hotcount.aio, 1 to
        64; more than 2 gain nothing with 'batched' and 'cached'; callers that wait need none.
        fold_interval: 'batched' on servers, the least seconds between two folds, 0.01 to 3600: how
        far item.vote_count lags; exact counts add up what waits. foreign_key: False makes vote
        tables that do not reference the items, which spares voters a lock on the item's row; the
        votes of a deleted item stay.
        Bad values: ConfigError.
        """
    def __reduce__(self) -> typing.NoReturn: ...
    def __repr__(self) -> str: ...
    def aclose(self) -> collections.abc.Coroutine[typing.Any, typing.Any, None]:
        """
        Ends this object; a database opened from a URL for it ends too.

        Votes that are being written are finished and told; those that are waiting for that end
        with ClosedError where the database ends too. It is done when it returns. Idempotent.
        """
    def add_items(
        self,
        items: collections.abc.Iterable[int | str | uuid.UUID],
        *,
        timeout: float | datetime.timedelta | None = None,
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, None]:
        """
        Adds rows to the item table, in one transaction; those there already stay as they are.
        """
    def cast(
        self,
        item: int | str | uuid.UUID,
        user: int | str | uuid.UUID | None,
        value: int = 1,
        *,
        version: int | None = None,
        op_id: str | None = None,
        timeout: float | datetime.timedelta | None = None,
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, Cast]:
        """
        Sets the user's vote for the item; committed when it returns. Idempotent.

        value: -2147483647 to 2147483647; 0 retracts. version: applied only where higher than the row's. An item
        or user of another type than item_type, user_type is a TypeError. IntegrityError: the
        item has no row. DeadlineError: the database was locked until then; nothing was applied.
        OutcomeUnknownError: cast it again. timeout in seconds; None: the database's.
        user=None: a vote without a user, whose op_id, 1 to 255 characters, names it for good:
        the first one under it stands. It takes no version and cannot be retracted.
        """
    def cast_many(
        self,
        items: collections.abc.Iterable[int | str | uuid.UUID],
        users: collections.abc.Iterable[int | str | uuid.UUID] | None,
        values: int | collections.abc.Iterable[int] = 1,
        *,
        op_ids: collections.abc.Iterable[str] | None = None,
        errors: typing.Literal["raise", "return"] = "raise",
        timeout: float | datetime.timedelta | None = None,
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, Casts]:
        """
        Casts many votes, in order: the k-th user votes for the k-th item.

        'batched' takes as few transactions as max_batch allows, the others one per vote. A
        failed element does not stop the others. errors='raise': BatchError with .result and
        .errors once all are settled. A wrong type is a TypeError naming the index, before
        anything is cast; columns of unequal length are a ConfigError. users=None with op_ids:
        votes without a user.
        """
    def contract(self) -> Contract:
        """
        What an acknowledgement means with this strategy.
        """
    def count(
        self,
        item: int | str | uuid.UUID,
        *,
        consistency: typing.Literal["cached", "exact"] = "cached",
        timeout: float | datetime.timedelta | None = None,
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, Count]:
        """
        The item's count. consistency, where there is a cache: 'cached' reads it, and the
        tables where it has nothing (.source says which, .as_of what it has at least); it may be
        less than one read before, as contract() says. 'exact' reads the tables. Without a cache
        it is exact either way.
        """
    def count_many(
        self,
        items: collections.abc.Iterable[int | str | uuid.UUID],
        *,
        consistency: typing.Literal["cached", "exact"] = "cached",
        timeout: float | datetime.timedelta | None = None,
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, Counts]:
        """
        The counts of many items, in order, all from one snapshot; from a cache, each
        as it is found there.
        """
    def create_tables(
        self,
        *,
        existing_counts: typing.Literal["keep", "recount"] | None = None,
        timeout: float | datetime.timedelta | None = None,
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, None]:
        """
        Creates the tables and indexes that are missing. Idempotent.

        Tables that another strategy counted are reconciled. Tables that hotcount has not
        counted before may have counts that are not the sum of their votes (NULL is 0): a
        ConfigError says how many items differ, and nothing is created or changed, unless
        existing_counts says what is right. 'keep': the difference is the item's opening
        balance, for good; every count has it, and reconcile() expects it. 'recount': the
        votes; what was counted is lost. It is ignored where hotcount counts already.
        """
    def flush(
        self, timeout: float | datetime.timedelta | None = 5.0
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, FlushReport]:
        """
        Brings the count in the item table up to date where the strategy does not by itself.
        """
    def reconcile(
        self,
        items: collections.abc.Iterable[int | str | uuid.UUID] | None = None,
        *,
        dry_run: bool = False,
        timeout: float | datetime.timedelta | None = None,
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, list[Drift]]:
        """
        Finds counts that disagree with the votes and sets them right, voters undisturbed.

        items: None for all. dry_run: only look. Returns what differed.
        """
    def retract(
        self,
        item: int | str | uuid.UUID,
        user: int | str | uuid.UUID,
        *,
        version: int | None = None,
        timeout: float | datetime.timedelta | None = None,
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, Cast]:
        """
        Sets the user's vote to 0. Idempotent; also where there was no vote.
        """
    def schema(self) -> str:
        """
        The SQL that create_tables runs, and what brings tables of an older release over.
        """
    def stats(
        self, *, timeout: float | datetime.timedelta | None = None
    ) -> collections.abc.Coroutine[typing.Any, typing.Any, dict[str, typing.Any]]:
        """
        What this object has done in this process, and what waits in the tables.

        votes and failed_votes; batches, the transactions that votes shared, and
        mean_batch_votes; retried_transactions of the database; waiting_votes, and held_votes,
        which wait for rows that other transactions have held for held_votes_s; median_call_s,
        p99_call_s and longest_call_s, within a quarter. Where the counts have a journal: folds,
        folded_rows, failed_folds, fold_error and last_fold_s of this process; pending_rows and
        pending_items of all, oldest_pending_s, the age of the oldest at most; held_items;
        refused_items, a dict of items that folds fail for, and why. Times are seconds.
        """
    def sync_worker(self) -> SyncWorker:
        """
        A worker that brings the counts of 'cached' to the item table; a
        ConfigError with a strategy that needs none.
        """
    @property
    def closed(self) -> bool:
        """
        Whether aclose() was called.
        """

def batch(cls: typing.Any) -> typing.Any:
    """
    Has C++ make objects of a declared batch.
    """

def native(function: typing.Any) -> typing.Any:
    """
    The C++ body of a declared function. ImportError where the two differ.
    """

def options(name: str) -> dict[str, typing.Any]:
    """
    What reads each option that C++ has for a class, by its name.
    """

def result(cls: typing.Any) -> typing.Any:
    """
    Has C++ fill a declared result. ImportError where its fields differ.
    """

def undeclared() -> list[str]:
    """
    What C++ has and no module that is imported so far declares.
    """

__version__: str = "0.1.0"
