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

    A vote is a state: cast sets it, retract sets it to 0, and doing either again changes nothing.
    Every call but toggle may therefore be repeated after any failure. cast returns after the vote
    is committed, except with 'write_behind'. contract() states the guarantee of each strategy:

    - 'naive': one transaction per vote, which also updates the item's row.
    - 'slotted': one transaction per vote, which also updates one of the item's cells.
    - 'batched': concurrent votes share a transaction.
    - 'cached': as 'batched', with the count in Redis or memory, which sync_worker() saves.
    - 'write_behind': the vote waits in Redis until sync_worker() writes it.

    Safe from many threads and across fork.

    Example:
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

        Tables that another strategy counted are reconciled. After 'write_behind' the rows keep its
        versions, about 1.8e18, to which a lower version= loses (docs/reference/existing-tables.md).

        Args:
            existing_counts: For tables with counts that are not the sums of their votes (NULL is
                0). None: a ConfigError with the number of such items; nothing is changed. 'keep':
                the difference becomes the item's opening balance, a permanent part of every count.
                'recount': each count becomes the sum of the votes, and the old counts are lost.
                Ignored for tables that hotcount has counted before.
            outside_writes: Which writes of other programs to the vote table triggers count.
                'deletes': deleted rows, which costs a vote nothing; for adopted tables. 'count':
                inserted and updated rows too; docs/explanation/your-tables.md has the price. 'none'
                drops the triggers, None keeps them as they are. reconcile() counts earlier writes.
                Counts contain such a row at once; on servers item.vote_count has it within 6 s
                while a process is open that has voted or read counts.
            timeout: Seconds, more than 0, waits for locks included. None: the database's.

        Raises:
            ConfigError: A column, default or key is missing; the role may not create triggers; a
                name is taken; a cascade runs no triggers there. Nothing was changed.
            OutcomeUnknownError, DeadlineError: Call it again.

        Example:
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
        """The SQL that these tables still need, for psql, mariadb or sqlite3.

        For tables of your own, such as one of likes: it adds the columns, keys and tables that
        votes need, in an order that lets the application run meanwhile, and counts the existing
        rows. An existing row is a vote of 1; a row without a user is a vote without a user. The
        call changes nothing.

        Args:
            existing_counts: As for create_tables.
            outside_writes: As for create_tables.
            timeout: Seconds, more than 0. None: the database's. The tables are read once.

        Returns:
            The statements, with comments that name uncounted cascades. "" if nothing is missing:
                create_tables() then changes nothing, takes no lock and needs no right to create.
                After a failure of the script a new call returns the rest. A vote table with
                triggers or checks takes two scripts: before the second, two votes are cast and
                rolled back.

        Raises:
            ConfigError: No statement can mend a column or key; the error names the table, the
                column and the remedy.
            DeadlineError: The tables could not be read within the timeout.

        Example:
            >>> import hotcount
            >>> votes = hotcount.Votes("sqlite:///:memory:")
            >>> "CREATE TABLE" in votes.migration(), votes.create_tables(), votes.migration()
            (True, None, '')
        """

    @native
    def add_items(self, items: Ids, *, timeout: Seconds | None = None) -> None:
        """Adds rows to the item table, in one transaction; existing rows are not changed.

        OutcomeUnknownError: call it again. After other errors nothing was added.

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
            item: The item's id, of item_type.
            user: The user's id, of user_type. None: a vote without a user, which needs an op_id,
                takes no version and cannot be retracted.
            value: -2147483647 to 2147483647; 0 retracts.
            version: The vote is applied only if this is higher than the row's version. None:
                always. Not with 'write_behind'.
            op_id: 1 to 255 characters, the name of a vote without a user. The first vote under it
                is final.
            with_count: Adds the item's .count after this vote. It is read exactly after the commit,
                by one more statement, which concurrent calls share. .count is None if it could not
                be read before the timeout; the vote is stored. With 'cached' the cache answers,
                else SQL. With 'write_behind' it is SQL's count, without this vote while it waits.
            timeout: Seconds, more than 0. None: the database's.

        Raises:
            TypeError: An item or user of another type than item_type, user_type.
            IntegrityError: The item has no row; .missing says whether the item or the user.
            DeadlineError: The database was locked until then; nothing was applied.
            UnavailableError: Nothing was applied.
            OutcomeUnknownError: Cast it again.

        Example:
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
        """Sets the user's vote to 0. Idempotent, also where there was no vote.

        Args:
            item, user, version, with_count, timeout: As for cast.

        Raises:
            HotcountError: As cast does.

        Example:
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
        """The item's count; 0 if the item has no row.

        Args:
            item: The item's id.
            consistency: 'cached': the cache or, with read_url and no cache, the replica answers;
                .source names it and .as_of its age. Such a count may be less than one read before.
                'exact': the tables answer. Without cache and read_url both are exact.
            timeout: Seconds, more than 0. None: the database's.

        Returns:
            A Count, which compares and formats as its value.

        Example:
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

        All are of one snapshot. With a cache, counts in it are as the cache has them, and the
        others are of one snapshot of the tables. One statement on PostgreSQL; on MariaDB one for
        each 512 items (64 if the ids are text).

        Args:
            items: Ids, in any order; they may repeat.
            consistency: As for count.
            timeout: Seconds for all of it, more than 0. None: the database's.

        Example:
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

        Of one snapshot, as committed. One statement for each 512 items; on PostgreSQL for each
        10,000.

        Args:
            items: Ids; they may repeat.
            user: The user's id.
            timeout: Seconds, more than 0. None: the database's.

        Returns:
            An Int64Batch; 0 where there is no vote.

        Example:
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
        """A page of the users whose votes for the item count.

        Reads the vote table's primary key (item, user) and passes over retracted votes, which
        prune() deletes. Votes without a user are not listed. Users who vote while you turn pages
        are found if they come later in the order.

        Args:
            item: The item's id.
            after: The last user of the page before. None: the first page.
            limit: 1 to 10,000.
            consistency: 'cached': the replica of read_url may answer, with votes that are up to
                read_max_lag old.
            timeout: Seconds, more than 0. None: the database's.

        Returns:
            (user, value), ascending by user. A page that is not full is the last.

        Example:
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

        Counts the votes themselves in one statement that reads all of the item's. The answer is
        exact with every strategy and has no opening balance. count() is faster.

        Args:
            item: The item's id.
            consistency: As for voters.
            timeout: Seconds, more than 0. None: the database's.

        Example:
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
        """The n items of the highest counts.

        The items are found by the count column of the item table; their counts are then read
        exactly. If that column lags, an item with new votes may be missing. The item table is
        scanned unless an index begins with that column: CREATE INDEX ON item (vote_count, id).
        create_tables() does not make the index, because every update of a count would write it.

        Args:
            n: 1 to 10,000.
            consistency: As for voters.
            timeout: Seconds, more than 0. None: the database's.

        Returns:
            (item, count), descending.

        Raises:
            ConfigError: item_count is None.

        Example:
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
        """Retracts the user's vote if it is value, and else sets it to value: a like button.

        NOT idempotent, unlike cast: a second toggle undoes the first. It is atomic. Every strategy
        uses a separate transaction, which does not queue behind votes that are still in progress. A
        page that knows the present vote should use cast and retract.

        Args:
            item: The item's id.
            user: The user's id.
            value: -2147483647 to 2147483647, and not 0.
            with_count: As for cast; with 'write_behind' the count has this vote, too.
            timeout: Seconds, more than 0. None: the database's.

        Raises:
            OutcomeUnknownError: Call get() before another toggle().
            HotcountError: As cast does; nothing was applied.

        Example:
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
        """Deletes the item's votes, its counts and its opening balance.

        Works in pages, each a transaction with a timeout of its own. The count column becomes 0,
        and an item created again begins at 0. Works for an item without a row too. The call does
        not end while votes arrive faster than it deletes them: stop voters first. A count cached by
        another process follows within max_age, with 'cached' in the next round of a worker.

        Args:
            item: The item's id.
            delete_row: The last step deletes the item's row too, so that no vote can come between.
                False: the row stays and may be voted for.
            timeout: Seconds of each page, more than 0. None: the database's.

        Returns:
            How many votes were deleted.

        Raises:
            IntegrityError: Another table of yours refers to the row; the votes are deleted.
            HotcountError: Call it again: committed pages stay, and the message has the number of
                their votes.

        Example:
            >>> import hotcount
            >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
            >>> votes.create_tables()
            >>> votes.cast(7, user=1).value, votes.remove_item(7), votes.count(7).value
            (1, 1, 0)
        """

    @native
    def erase_user(self, user: Id, *, timeout: Seconds | None = None) -> int:
        """Deletes all votes of a user, and takes them out of the counts.

        Works in pages, each a transaction with the timeout of its own that also moves the counts
        ('cached' notes the items for a recount, and recounts them at once if the cache answers).
        Votes that the user casts meanwhile may stay: lock the account first. Votes without a user
        are known by their op_id alone and stay.

        Reads an index that begins with the user: CREATE INDEX ON vote (user_id, item_id). Without
        one it scans the whole vote table, 10,000 rows a statement, and the logger 'hotcount' has a
        warning with the statement to run.

        Args:
            user: The user's id.
            timeout: Seconds of each page, more than 0. None: the database's.

        Returns:
            How many votes this call deleted.

        Raises:
            HotcountError: Call it again, also after a crash: it continues with what is left. The
                message has the number of votes erased before it.

        Example:
            >>> import hotcount
            >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
            >>> votes.create_tables()
            >>> len(votes.cast_many([7, 8], [1, 1])), votes.erase_user(1), votes.count(8).value
            (2, 2, 0)
        """

    @native
    def prune(self, before: int, *, timeout: Seconds | None = None) -> int:
        """Deletes rows of retracted votes; changes no count.

        The row of a retracted vote refuses an older version that comes late. Once it is gone, a
        retry of an older cast counts. Scans the vote table, 10,000 rows a statement.

        Args:
            before: Rows with a lower version, or with none, are deleted. Choose one that is older
                than any retry that may still come.
            timeout: Seconds of each statement, more than 0. None: the database's.

        Returns:
            How many rows were deleted.

        Raises:
            HotcountError: Call it again.

        Example:
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
        """Finds counts that differ from the votes and corrects them; voters do not wait for it.

        Works in pages of at most 512 items, each committed separately. Orphans (items without a row
        of which votes, a count or an opening balance are left) are reported after all items: their
        counts are corrected, and their votes and opening balances stay until remove_item().

        Args:
            items: Ids. None: all.
            dry_run: Corrects nothing.
            after: Begin behind this item, where an earlier call ended.
            progress: Called after each page with the last item that is done (None for named items
                and orphans), and with the numbers of items read and of items that differ so far; in
                aio from a thread. An exception that it raises ends the call.
            timeout: Seconds of each page, not of the call, more than 0. None: the database's.

        Returns:
            The items that differed, and the orphans.

        Raises:
            CounterOverflowError: An item's count or sum of votes leaves 64 bits; all other items
                are correct.
            HotcountError: Earlier pages stay committed; the message names the item for `after`.

        Example:
            >>> import hotcount
            >>> votes = hotcount.Votes("sqlite:///:memory:")
            >>> votes.create_tables()
            >>> votes.reconcile()
            []
        """

    @native
    def flush(self, timeout: Seconds | None = 5.0) -> FlushReport:
        """Brings the counts in the item table up to date if votes of the strategy do not.

        Args:
            timeout: Seconds, more than 0. None: the database's. Call it again after any error.

        Returns:
            A FlushReport: how many items were updated, and how many were not reached. If none is
            pending, the item table has every vote that was acknowledged before the call, and this
            process folds nothing until there are new votes.

        Raises:
            HotcountError: A fold failed as a whole, or another process folded until the timeout.
                The votes are safe and counted; the rest is not folded.

        Example:
            >>> import hotcount
            >>> votes = hotcount.Votes("sqlite:///:memory:")
            >>> votes.create_tables()
            >>> votes.flush().pending
            0
        """

    @native
    def stats(self, *, timeout: Seconds | None = None) -> dict[str, Any]:
        """Counts and times of this object in this process, and the waiting rows of the tables.

        Times are seconds. Names may be added.

        - votes, failed_votes; batches, the transactions that votes shared; mean_batch_votes;
          retried_transactions.
        - waiting_votes; held_votes, which wait for rows that other transactions have held for
          held_votes_s.
        - median_call_s, p99_call_s, longest_call_s: within a quarter.
        - If counts have a journal, of this process: folds, folded_rows, last_fold_s, failed_folds;
          failing_folds, the failures since the last successful fold, for failing_folds_s;
          fold_error; held_items; refused_items, a dict of items whose folds fail, with the reason.
        - Of all processes: pending_rows, pending_items, oldest_pending_s; pending_error, the reason
          if these could not be read and are 0.
        - outside_writes: 'none', 'deletes' or 'count', "" if it could not be read;
          uncounted_cascades.
        - With read_url: replica_reads, replica_fallbacks, replica_error, replica_lag_s.

        Args:
            timeout: Seconds, more than 0. None: the database's.

        Example:
            >>> import hotcount
            >>> votes = hotcount.Votes("sqlite:///:memory:", missing_items="create")
            >>> votes.create_tables()
            >>> votes.cast(7, user=1).counted, votes.stats()["votes"]
            (True, 1)
        """
