"""Removing items and users on the servers, beside folds, reconciles and transactions in the way."""

from __future__ import annotations

from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.journal_side import JournalSide
from tests.support.postgres_votes import in_background, session, waiting
from tests.support.servers import PostgresDatabase
from tests.support.sql_votes import make_votes

pytestmark = pytest.mark.server


def test_a_removed_item_leaves_no_row_behind_that_could_count(side: JournalSide) -> None:
    votes = side.made()
    votes.cast_many([1, 1, 2], [7, 8, 7])
    votes.flush(20)
    side.vote(1, 9)
    assert votes.remove_item(1) == 3
    for table, column in (("vote", "item_id"), ("vote_cell", "item"), ("vote_journal", "item")):
        rows = side.number(f"SELECT COUNT(*) FROM {table} WHERE {column} = 1")
        assert rows == 0, table
    assert (side.shown(1), side.seen(1), side.seen(2)) == (0, 0, 1)


def test_a_vote_in_an_open_transaction_is_waited_for_and_removed(side: JournalSide) -> None:
    votes = side.made()
    votes.cast(1, 7)
    with side.session() as voter:
        voter.execute("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 9, 1, 0)")
        voter.execute("INSERT INTO vote_journal (item, diff) VALUES (1, 1)")
        removed = in_background(lambda: votes.remove_item(1, timeout=30))
        # On PostgreSQL in its last step, for the item's row; on MariaDB for the vote.
        eventually(lambda: side.waits() > 0)
        assert not removed.is_over()
        voter.commit()
    assert removed() == 2
    assert side.number("SELECT COUNT(*) FROM vote") == 0
    assert int(votes.count(1)) == 0
    assert votes.reconcile(dry_run=True) == []


def test_a_removal_whose_time_is_over_leaves_counts_that_are_right(side: JournalSide) -> None:
    votes = side.made()
    votes.cast_many([1] * 3, [7, 8, 9])
    with side.session() as other:
        other.execute("SELECT id FROM item WHERE id = 1 FOR UPDATE")
        with pytest.raises(hotcount.DeadlineError):
            votes.remove_item(1, timeout=0.5)
        assert int(votes.count(1)) == votes.tally(1).score
        other.commit()
    votes.remove_item(1, timeout=20)
    assert (int(votes.count(1)), votes.reconcile(dry_run=True)) == (0, [])


def test_a_removal_waits_for_a_reconcile_that_has_read_its_item(side: JournalSide) -> None:
    votes = side.made()
    votes.cast(1, 7)
    with side.session() as reconcile:
        # Its lock, and then a difference that it has read: a journal row that it will write.
        reconcile.execute("SELECT value FROM vote_meta WHERE name = 'schema' FOR UPDATE")
        removed = in_background(lambda: votes.remove_item(1, timeout=30))
        eventually(lambda: side.number("SELECT COUNT(*) FROM vote") == 0)
        reconcile.execute("INSERT INTO vote_journal (item, diff) VALUES (1, 5)")
        reconcile.commit()
    assert removed() == 1
    assert int(votes.count(1)) == 0
    assert side.pending() == 0


def test_an_item_that_another_table_needs_keeps_its_row_and_no_votes(side: JournalSide) -> None:
    votes = side.made()
    side.run(
        "CREATE TABLE note (item_id BIGINT NOT NULL, FOREIGN KEY (item_id) REFERENCES item (id))",
        "INSERT INTO note (item_id) VALUES (1)",
    )
    votes.cast(1, 7)
    with pytest.raises(hotcount.IntegrityError):
        votes.remove_item(1, delete_row=True)
    assert (side.shown(1), votes.get(1, 7)) == (0, 0)
    assert (int(votes.count(1)), votes.reconcile(dry_run=True)) == (0, [])
    side.run("DROP TABLE note")


def test_what_an_item_left_behind_is_removed_after_its_row(side: JournalSide) -> None:
    votes = side.made(foreign_key=False)
    votes.cast_many([1, 2], [7, 7])
    votes.flush(20)
    side.run("DELETE FROM item WHERE id = 1")
    assert votes.remove_item(1) == 1
    votes.add_items([1])
    assert int(votes.count(1)) == 0
    assert votes.cast(1, 7).previous == 0
    assert [int(each) for each in votes.count_many([1, 2])] == [1, 1]


def test_a_copy_in_a_cache_does_not_come_back_after_its_item(side: JournalSide) -> None:
    with hotcount.Memory() as memory:
        votes = side.made(cache=memory)
        votes.cast_many([1, 1], [7, 8])
        votes.flush(20)
        assert (int(votes.count(1)), votes.count(1).source) == (2, "cache")
        votes.remove_item(1, delete_row=True)
        assert int(votes.count(1)) == 0
        votes.add_items([1])
        votes.cast(1, 9)
        votes.flush(20)
        assert (int(votes.count(1)), votes.count(1).source) == (1, "cache")


def test_a_user_is_erased_beside_a_vote_of_hers_that_is_not_committed(side: JournalSide) -> None:
    votes = side.made()
    votes.cast_many([1, 2, 3], [7, 7, 7])
    with side.session() as voter:
        voter.execute("UPDATE vote SET prev = val, val = 5 WHERE item_id = 2 AND user_id = 7")
        voter.execute("INSERT INTO vote_journal (item, diff) VALUES (2, 4)")
        erased = in_background(lambda: votes.erase_user(7, timeout=30))
        # Voters of the same items go on meanwhile.
        for user in range(20, 30):
            votes.cast(2, user, timeout=20)
        assert not erased.is_over()
        voter.commit()
    assert erased() == 3
    assert [int(each) for each in votes.count_many([1, 2, 3])] == [0, 10, 0]
    assert votes.reconcile(dry_run=True) == []


def meets_a_held_vote(side: JournalSide, votes: hotcount.Votes) -> str:
    """The second page of an erasure does, until its time is over; its error."""
    votes.cast_many(range(1100), [7] * 1100, timeout=60)
    # Enough of other users that MariaDB goes by the key to what a page deletes.
    side.run(
        "INSERT INTO vote (item_id, user_id, val, prev) SELECT i.id, u.id + 20, 0, 0 FROM item i "
        "CROSS JOIN item u WHERE u.id < 10",
        "CREATE INDEX vote_by_user ON vote (user_id, item_id)",
    )
    with side.session() as other:
        other.execute("SELECT val FROM vote WHERE item_id = 700 AND user_id = 7 FOR UPDATE")
        with pytest.raises(hotcount.DeadlineError) as erased:
            votes.erase_user(7, timeout=1)
    return str(erased.value)


def test_a_crash_between_two_pages_is_taken_up_by_the_next_call(
    side: JournalSide, strategy: str
) -> None:
    votes = side.made(strategy, missing_items="create", max_batch=1000)
    votes.cast(900, 8)
    meets_a_held_vote(side, votes)
    left = side.number("SELECT COUNT(*) FROM vote WHERE user_id = 7")
    assert left == 600
    assert sum(int(each) for each in votes.count_many(range(1100))) == left + 1
    assert votes.erase_user(7, timeout=30) == left
    assert sum(int(each) for each in votes.count_many(range(1100))) == 1
    votes.flush(20)
    assert votes.reconcile(dry_run=True) == []


def test_an_error_says_what_the_pages_before_it_did(side: JournalSide) -> None:
    votes = side.made(missing_items="create", max_batch=1000)
    votes.cast_many([1] * 3, [8, 9, 10])
    text = meets_a_held_vote(side, votes)
    assert "500 votes were erased before it: call again for the rest" in text
    assert "nothing was applied" not in text
    with side.session() as other:
        other.execute("SELECT id FROM item WHERE id = 1 FOR UPDATE")
        with pytest.raises(hotcount.DeadlineError, match="3 votes were removed before it"):
            votes.remove_item(1, timeout=1)
        # Of nothing there is nothing to tell.
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            votes.remove_item(1, timeout=0.3)


@pytest.mark.parametrize("delete_row", [False, True])
def test_the_last_step_of_naive_waits_for_votes_before_it_holds_the_item(
    postgres: PostgresDatabase, delete_row: bool
) -> None:
    """As voters lock there: one that has a vote and wants the item would wait for ever."""
    votes = make_votes(postgres, "naive")
    votes.cast(1, 7)
    with session(
        postgres, "SELECT value FROM vote_meta WHERE name = 'schema' FOR UPDATE"
    ) as reconcile:
        removed = in_background(lambda: votes.remove_item(1, delete_row=delete_row, timeout=30))
        eventually(lambda: votes.get(1, 7) == 0)
        votes.cast(1, 9)
        with session(postgres, "SELECT val FROM vote WHERE item_id = 1 FOR UPDATE") as voter:
            eventually(lambda: waiting(postgres) == 1)
            reconcile.commit()
            eventually(lambda: _waits_for_the_vote(postgres))
            voter.execute("SELECT id FROM item WHERE id = 1 FOR NO KEY UPDATE NOWAIT")
            # And a vote that comes at the last moment, counted where it is.
            voter.execute("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 50, 1, 0)")
            voter.execute("UPDATE item SET vote_count = vote_count + 1 WHERE id = 1")
            voter.commit()
    assert removed() == (3 if delete_row else 2)
    assert int(votes.count(1)) == votes.tally(1).score == (0 if delete_row else 1)
    assert votes.reconcile(dry_run=True) == []


def _waits_for_the_vote(database: PostgresDatabase) -> bool:
    return bool(
        database.psql(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = "
            "'hotcount' AND query LIKE '%\"vote\"%FOR UPDATE%'"
        ).strip()
    )


@pytest.mark.parametrize("strategy", ["naive", "batched"])
def test_an_item_that_is_added_while_it_is_removed_keeps_its_count_right(
    side: JournalSide, strategy: Any
) -> None:
    votes = side.made(strategy, foreign_key=False)
    votes.cast(1, 5)
    side.run("DELETE FROM item WHERE id = 1")
    with side.session() as reconcile:
        reconcile.execute("SELECT value FROM vote_meta WHERE name = 'schema' FOR UPDATE")
        removed = in_background(lambda: votes.remove_item(1, timeout=30))
        eventually(lambda: side.number("SELECT COUNT(*) FROM vote") == 0)
        side.run("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 5, 0, 0)")
        with side.session() as other:
            other.execute("SELECT val FROM vote WHERE item_id = 1 AND user_id = 5 FOR UPDATE")
            reconcile.commit()
            # The last step has found no item to hold, and waits for the vote.
            eventually(lambda: side.waits() > 0)
            assert not removed.is_over()
            votes.add_items([1])
            votes.cast(1, 3, timeout=20)
            other.commit()
    assert isinstance(removed(), int)
    assert int(votes.count(1)) == votes.tally(1).score
    votes.flush(20)
    assert votes.reconcile(dry_run=True) == []


def test_a_vote_for_an_item_that_was_deleted_and_made_again_is_counted(side: JournalSide) -> None:
    votes = side.made("naive", foreign_key=False)
    with side.session() as other:
        other.execute("DELETE FROM item WHERE id = 1")
        other.execute("INSERT INTO item (id) VALUES (1)")
        cast = in_background(lambda: votes.cast(1, 7, timeout=20))
        eventually(lambda: side.waits() > 0)
        other.commit()
    assert cast().counted
    assert int(votes.count(1)) == 1
