"""Votes: one user, one vote per item, and a count that is exact at every commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from hotcount._lifetime import Lifetime
from hotcount._native import native
from hotcount._types import Id, Ids, Numbers, OnErrors, Seconds
from hotcount._votes_base import Consistency, Progress, SyncWorker, VotesBase
from hotcount.batches import Casts, Counts, Int64Batch
from hotcount.results import Cast, Count, Drift, FlushReport, Tally

__all__ = ["SyncWorker", "Votes"]


class Votes(Lifetime, VotesBase):
    """One user, one vote per item, and a count that is exact at every commit.

    A vote is a state: cast sets it, retract sets it to 0, and doing either again changes nothing,
    so every call may be retried after any failure. cast returns after the vote is committed.
    Strategies: 'naive' (one transaction per vote, the item's row updated in it), 'slotted' (one
    transaction per vote, one of the item's cells), 'batched' (concurrent votes share a
    transaction), 'cached' (like it, with the count in Redis or memory, which sync_worker() saves),
    'write_behind' (the vote waits in Redis until sync_worker() writes it): contract() says what
    each means. Safe from many threads and across fork.

    >>> import hotcount
    >>> votes = hotcount.Votes("sqlite:///:memory:")
    >>> votes.create_tables()
    >>> votes.add_items([7])
    >>> votes.cast(7, user=1).changed, votes.cast(7, user=1).changed, votes.count(7) == 1
    (True, False, True)
    """

    __slots__ = ("__weakref__",)

    @native
    def create_tables(
        self,
        *,
        existing_counts: Literal["keep", "recount"] | None = None,
        outside_writes: Literal["none", "deletes", "count"] | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Creates the tables and indexes that are missing. Idempotent.

        Tables that another strategy counted are reconciled. Rows keep the versions of
        'write_behind', about 1.8e18, to which a lower version= loses (docs/reference/existing-tables.md). Tables that
        hotcount has not counted before may have counts that are not the sum of their votes (NULL is
        0): a ConfigError says how many items differ, and nothing is created or changed, unless
        existing_counts says what is right. 'keep': the difference is the item's opening balance,
        for good; every count has it, and reconcile() expects it. 'recount': the votes; what was
        counted is lost. It is ignored where hotcount counts already.

        outside_writes: which writes of others to the vote table triggers count: an ORM's, psql's,
        a cascade's. 'deletes': rows that are deleted, which costs a vote nothing; for adopted
        tables. 'count': inserted and updated rows too; docs/explanation/your-tables.md has the price. 'none' drops
        the triggers, None leaves what is there. ConfigError, with nothing changed: the role may
        not create triggers, a name is taken, or a cascade runs no triggers there. What others
        wrote before is found by reconcile(). Counts have such a row at once; on servers
        item.vote_count has it within 6 s while a process is open that has voted or read counts.

        OutcomeUnknownError, DeadlineError: do it again.

        >>> import hotcount
        >>> hotcount.Votes("sqlite:///:memory:").create_tables()
        """

    @native
    def migration(
        self,
        *,
        existing_counts: Literal["keep", "recount"] | None = None,
        outside_writes: Literal["none", "deletes", "count"] | None = None,
        timeout: Seconds | None = None,
    ) -> str:
        """What these tables still lack, as SQL for psql, mariadb or sqlite3; "" if nothing.

        For tables of your own, as one of likes: the columns, keys and tables that votes need, in an
        order that runs beside the application, and the rows that count what is there. Changes
        nothing itself. Run again after a failure, it returns the rest. A vote table with triggers
        or checks takes two scripts: before the second, two votes are cast and rolled back. When it
        is "", create_tables() changes nothing, takes no lock and needs no right to create.

        A row that is there is a vote of 1; a row without a user is counted and nobody's.
        existing_counts, outside_writes: as for create_tables. Comments name cascades that nothing
        counts, and writes that the triggers do not see. ConfigError: a column or key that no
        statement of ours mends; it names table and column and says what to do. DeadlineError: the
        tables are read once, which takes longer.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:")
        >>> "CREATE TABLE" in votes.migration(), votes.create_tables(), votes.migration()
        (True, None, '')
        """

    @native
    def add_items(self, items: Ids, *, timeout: Seconds | None = None) -> None:
        """Adds rows to the item table, in one transaction; those there already stay as they are.

        OutcomeUnknownError: do it again. After other errors nothing was added.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:")
        >>> votes.create_tables(), votes.add_items([7, 8]), votes.count(8).value
        (None, None, 0)
        """

    @native
    def cast(
        self,
        item: Id,
        user: Id | None,
        value: int = 1,
        *,
        version: int | None = None,
        op_id: str | None = None,
        with_count: bool = False,
        timeout: Seconds | None = None,
    ) -> Cast:
        """Sets the user's vote for the item; committed when it returns. Idempotent.

        Args:
            user: None: a vote without a user, which takes no version and cannot be retracted.
            value: -2147483647 to 2147483647; 0 retracts.
            version: applied only where higher than the row's.
            op_id: 1 to 255 characters; names a vote without a user for good: the first one stands.
            with_count: the item's .count after this vote, which is in it. It is read after the
                commit, exactly: a statement more, shared by calls that read at once. None where it
                could not be read until the timeout, or the server went away: the vote stands.
                'cached': the cache tells it when it counts the vote; if it cannot, the votes are
                summed in SQL. 'write_behind': one call of Redis and one statement for what SQL has,
                without this vote while it waits.
            timeout: seconds, more than 0; None is the database's.

        TypeError: an item or user of another type than item_type, user_type. IntegrityError: the
        item has no row. DeadlineError: the database was locked until then; nothing was applied.
        UnavailableError: nothing was applied. OutcomeUnknownError: cast it again.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, 1, 5, version=3).value, votes.cast(7, 1, 9, version=2).value
        (5, 5)
        >>> votes.cast(7, 2, with_count=True).count.value
        6
        """

    @native
    def retract(
        self,
        item: Id,
        user: Id,
        *,
        version: int | None = None,
        with_count: bool = False,
        timeout: Seconds | None = None,
    ) -> Cast:
        """Sets the user's vote to 0. Idempotent; also where there was no vote. Raises as cast does.

        version, with_count: as for cast.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, 1).value, votes.retract(7, 1).previous, votes.count(7).value
        (1, 1, 0)
        """

    @native
    def cast_many(
        self,
        items: Ids,
        users: Ids | None,
        values: Numbers = 1,
        *,
        op_ids: Iterable[str] | None = None,
        errors: OnErrors = "raise",
        timeout: Seconds | None = None,
    ) -> Casts:
        """Casts many votes, in order: the k-th user votes for the k-th item.

        A failed element does not stop the others. users=None with op_ids: votes without a user.
        Single casts of other threads or tasks go on beside it, a portion of the call at a time.

        Args:
            timeout: seconds for the whole call, however many votes; by default the database's. The
                call returns by then, or 0.1 s later. Votes that were not sent by then have a
                DeadlineError (nothing was applied), those whose COMMIT was sent and not answered an
                OutcomeUnknownError. 100,000 votes take 1 to 10 s: pass as much, or cast in parts.
            errors: 'raise': BatchError with .result and .errors once all are settled; 'return':
                they are in the batch's .errors. Elements that fail alike share an exception.

        Raises:
            TypeError: a wrong type, with its index, before anything is cast.
            ConfigError: columns of unequal length.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> list(votes.cast_many([7, 7, 8], [1, 1, 1]).changed)
        [True, False, True]
        """

    @native
    def count(
        self, item: Id, *, consistency: Consistency = "cached", timeout: Seconds | None = None
    ) -> Count:
        """The item's count; 0 where it has no row.

        consistency, where there is a cache: 'cached' reads it, and the tables where it has nothing
        (.source says which, .as_of what it has at least); it may be less than one read before, as
        contract() says. With read_url it reads the replica, unless there is a cache. 'exact' reads
        the tables. Without cache and read_url it is exact either way.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, user=1).counted, votes.count(7) == 1, votes.count(7).source
        (True, True, 'sql')
        """

    @native
    def count_many(
        self, items: Ids, *, consistency: Consistency = "cached", timeout: Seconds | None = None
    ) -> Counts:
        """The counts of many items, in order.

        All from one snapshot; from a cache, each as it is found there, and those that it lacks from
        one snapshot of the tables. Few statements: one on PostgreSQL, on MariaDB one for each 512
        items (64 if the ids are text).

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, user=1).counted, list(votes.count_many([7, 8]).value)
        (True, [1, 0])
        """

    @native
    def get(self, item: Id, user: Id, *, timeout: Seconds | None = None) -> int:
        """The user's vote for the item, 0 for none: as committed, with every strategy.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, user=1).value, votes.get(7, user=1), votes.get(7, user=2)
        (1, 1, 0)
        """

    @native
    def get_many(self, items: Ids, user: Id, *, timeout: Seconds | None = None) -> Int64Batch:
        """The user's votes for many items, in their order: "which of these did I vote for?".

        Of one snapshot. One statement for each 512 items; on PostgreSQL for each 10,000.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, user=1, value=-1).value, list(votes.get_many([6, 7, 8], user=1))
        (-1, [0, -1, 0])
        """

    @native
    def voters(
        self,
        item: Id,
        *,
        after: Id | None = None,
        limit: int = 100,
        consistency: Consistency = "exact",
        timeout: Seconds | None = None,
    ) -> list[tuple[Any, int]]:
        """A page of those whose votes for the item count: (user, value), ascending by user.

        after: the last user of the page before; limit: 1 to 10,000. A page that is not full is the
        last. Users who voted while you turn pages are found if they come later in the order. Reads
        the vote table's primary key (item, user) and passes over retracted votes, which prune()
        deletes. Votes without a user are not listed. consistency 'cached': the replica of read_url
        may answer, with votes that are read_max_lag old.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> len(votes.cast_many([7, 7, 7], [1, 2, 3]))
        3
        >>> votes.voters(7, limit=2), votes.voters(7, after=2, limit=2)
        ([(1, 1), (2, 1)], [(3, 1)])
        """

    @native
    def tally(
        self, item: Id, *, consistency: Consistency = "exact", timeout: Seconds | None = None
    ) -> Tally:
        """The item's votes counted by sign: up, down, and their sum.

        Counts the votes themselves in one statement, which reads all of the item's; so it is exact
        with every strategy, and has no opening balance. count() is the quick one. consistency: as
        for voters().

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> len(votes.cast_many([7, 7, 7], [1, 2, 3], [1, 1, -1])), votes.tally(7)
        (3, Tally(up=2, down=1, score=1))
        """

    @native
    def top(
        self, n: int, *, consistency: Consistency = "exact", timeout: Seconds | None = None
    ) -> list[tuple[Any, int]]:
        """The n items of the highest counts: (item, count), descending. n: 1 to 10,000.

        The items are found by the column of counts in the item table; the counts of those found are
        then read exactly, and they stand in that order. Where that column lags (contract() says by
        how much) an item whose votes are new may be missing. Scans the item table unless an index
        begins with that column: CREATE INDEX ON item (vote_count, id). It is not made for you,
        because every update of a count then writes it too. consistency: as for voters().
        ConfigError: item_count is None.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> len(votes.cast_many([7, 8, 8], [1, 1, 2])), votes.top(2)
        (3, [(8, 2), (7, 1)])
        """

    @native
    def toggle(
        self,
        item: Id,
        user: Id,
        value: int = 1,
        *,
        with_count: bool = False,
        timeout: Seconds | None = None,
    ) -> Cast:
        """Retracts the user's vote if it is value, and else sets it to value: what a button does.

        with_count: as for cast; with 'write_behind' the count has this vote, too.

        Atomic beside other toggles, casts and retracts of the same vote. A transaction of its own
        with every strategy; it does not queue behind votes that are not answered yet.

        NOT idempotent, unlike cast: after OutcomeUnknownError ask get() before you call it again,
        because a second toggle would undo the first. After other errors nothing was applied. A page
        that knows what it shows does better with cast and retract, which may be repeated.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.toggle(7, user=1).value, votes.toggle(7, user=1, with_count=True).count.value
        (1, 0)
        """

    @native
    def remove_item(
        self, item: Id, *, delete_row: bool = False, timeout: Seconds | None = None
    ) -> int:
        """Takes out all that counts for the item; returns how many votes that were.

        Its votes in pages, each a transaction with the timeout of its own, and at last its journal
        rows, cells, opening balance and copies; the column of counts becomes 0. An item that is
        made again begins at 0. delete_row: the last step deletes the item's row too, so that no
        vote can come between; without it the row, which is yours, stays, and may be voted for. Also
        for an item whose row is gone.

        Do it again after any error: pages that were committed stay, and the error says how many
        votes they had. While voters are quicker than it is, it goes on: stop them first.
        IntegrityError: another table of yours refers to the row; the votes are gone. A count cached
        by another process follows within max_age, with 'cached' with the next round of a worker.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, user=1).value, votes.remove_item(7), votes.count(7).value
        (1, 1, 0)
        """

    @native
    def erase_user(self, user: Id, *, timeout: Seconds | None = None) -> int:
        """Deletes all votes of a user, and takes them out of the counts; returns how many.

        In pages, each a transaction with the timeout of its own that also moves the counts
        ('cached' notes the items there for a recount, and recounts them at once if the cache
        answers). Do it again after any error, which says how many votes were erased before it, or
        after a crash: it goes on with what is left, and returns what it erased itself. Votes that
        the user casts meanwhile may stay: lock the account first.
        Votes without a user are known by their op_id alone and stay.

        Reads an index that begins with the user: CREATE INDEX ON vote (user_id, item_id). Without
        one it scans the whole vote table, 10,000 rows a statement, and the logger 'hotcount' gets a
        warning with the statement to run. create_tables() makes none: each new vote would write it.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> len(votes.cast_many([7, 8], [1, 1])), votes.erase_user(1), votes.count(8).value
        (2, 2, 0)
        """

    @native
    def prune(self, before: int, *, timeout: Seconds | None = None) -> int:
        """Deletes retracted votes of a version lower than before, or of none; returns how many.

        Changes no count. Scans the vote table, 10,000 rows a statement, each with the timeout of
        its own. Do it again after any error.

        The row of a retracted vote is what refuses an older version that comes late: once it is
        gone, a retry of an older cast counts. So before must be older than any retry that may still
        come.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, 1, version=1).value, votes.retract(7, 1, version=2).value
        (1, 0)
        >>> votes.prune(before=2), votes.prune(before=3)
        (0, 1)
        """

    @native
    def reconcile(
        self,
        items: Ids | None = None,
        *,
        dry_run: bool = False,
        after: Id | None = None,
        progress: Progress | None = None,
        timeout: Seconds | None = None,
    ) -> list[Drift]:
        """Finds counts that disagree with the votes and sets them right, voters undisturbed.

        items: None for all. dry_run: only look. Returns what differed, and orphans, told after all
        items: what is left of items that have no row any more. An orphan's count is made to follow
        its votes; votes and an opening balance, which nobody could make again, stay and are named
        each time: remove_item() deletes them.

        In pages of at most 512 items, fewer if they have many votes, each committed by itself.
        timeout: seconds for each page, not for the call. progress: called after each page with the
        last item that is done (None for named items and orphans), how many items were looked at,
        and how many differ so far; in aio from a thread. What it raises ends the call.

        After any error the pages before it stay right, and the message says where to go on: after,
        an item, begins behind it. Or do it all again. CounterOverflowError: an item's count or sum
        of votes leaves 64 bits; all others are right by then.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:")
        >>> votes.create_tables()
        >>> votes.reconcile()
        []
        """

    @native
    def flush(self, timeout: Seconds | None = 5.0) -> FlushReport:
        """Brings the count in the item table up to date where the strategy does not by itself.

        timeout: seconds, more than 0; None is the database's. Do it again after any error.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:")
        >>> votes.create_tables()
        >>> votes.flush().pending
        0
        """

    @native
    def stats(self, *, timeout: Seconds | None = None) -> dict[str, Any]:
        """What this object has done in this process, and what waits in the tables.

        votes and failed_votes; batches, the transactions that votes shared, and mean_batch_votes;
        retried_transactions of the database; waiting_votes, and held_votes, which wait for rows
        that other transactions have held for held_votes_s; median_call_s, p99_call_s and
        longest_call_s, within a quarter.

        Where the counts have a journal: folds, folded_rows and last_fold_s of this process;
        failed_folds, and failing_folds, those since the last fold that ended well, for
        failing_folds_s, with the last fold_error; pending_rows and pending_items of all processes;
        oldest_pending_s, the age of the oldest at most; pending_error, why these three could not be
        read and are 0; held_items; refused_items, a dict of items that folds fail for, and why. The
        logger 'hotcount' has a warning when folds begin to fail, and a line of level INFO when they
        work again, with the next answer of this object.

        outside_writes: which writes of others triggers count, 'none', 'deletes' or 'count', and ""
        if that could not be read; uncounted_cascades, foreign keys by which others change votes
        and which nothing counts.

        With read_url: replica_reads that it has answered, replica_fallbacks, which the primary has
        answered in its place; replica_error, why it is not used, empty while all is well;
        replica_lag_s, how old its last answer was at most. Times are seconds.

        >>> import hotcount
        >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
        >>> votes.create_tables()
        >>> votes.cast(7, user=1).counted, votes.stats()["votes"]
        (True, 1)
        """
