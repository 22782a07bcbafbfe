"""The votes' journal on real servers, in the orders that test_journal_model.py explores.

A session of another client holds a row, so that a fold, a switch or a reconcile of hotcount's stops
exactly there; what others do meanwhile is then no matter of luck.
"""

from collections.abc import Iterator

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.journal_play import MariaDbPlay, Play, PostgresPlay, Session
from tests.support.postgres_votes import in_background

pytestmark = pytest.mark.server


@pytest.fixture(params=["postgres", "mariadb"])
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    play: Play
    if request.param == "postgres":
        play = PostgresPlay(request.getfixturevalue("postgres_database"))
    else:
        server = request.getfixturevalue("mariadb_server")
        play = MariaDbPlay(server, request.getfixturevalue("mariadb_database"))
    yield play
    play.close()


def vote_by_hand(session: Session, item: int, user: int) -> None:
    """A new vote as the protocol writes it, in the session's transaction."""
    session.run(f"INSERT INTO vote (item_id, user_id, val, prev) VALUES ({item}, {user}, 1, 0)")
    session.run(f"INSERT INTO vote_journal (item, diff) VALUES ({item}, 1)")


def test_votes_and_exact_counts_go_on_while_a_fold_stops(play: Play) -> None:
    play.cast(1, 1)
    with play.stopped_fold() as fold:
        assert play.counts(1) == {2}
        assert play.cast(1, 2).changed
        assert play.counts(1) == {3}
        assert play.stored(1) == 1
    assert not isinstance(fold(), Exception)
    assert play.counts(1) == {3}
    assert play.is_settled()


def test_of_two_folds_each_row_is_counted_once(play: Play) -> None:
    play.cast(1, 1)
    with play.stopped_fold() as fold:
        play.cast(1, 2)
        second = in_background(lambda: play.flush(play.other()))
        assert play.counts(1) == {3}
    assert not isinstance(fold(), Exception)
    assert not isinstance(second(), Exception)
    assert play.counts(1) == {3}
    assert play.is_settled()


def test_a_fold_that_is_killed_leaves_its_rows_to_the_next(play: Play) -> None:
    play.cast(1, 1)
    with play.stopped_fold() as fold:
        play.end_waiting()
        fired("killed in mid-fold")
    fold()  # An error, or it has begun again: both are right.
    assert play.counts(1) == {2}
    assert play.is_settled()


def test_a_flush_whose_session_ends_while_an_item_is_held_is_an_error(play: Play) -> None:
    play.cast(1, 1)
    with play.held("SELECT id FROM item WHERE id = 1 FOR UPDATE"):
        flush = in_background(play.flush)
        eventually(lambda: play.number("SELECT COUNT(*) FROM vote_journal WHERE diff = 0") == 1)
        # The next attempt has the row, and stops.
        with play.held("SELECT n FROM vote_cell WHERE item = 1 AND slot = -1 FOR UPDATE"):
            eventually(lambda: play.waiting() > 0)
            play.end_waiting()
            fired("killed in mid-fold")
            outcome = flush()
    assert isinstance(outcome, hotcount.UnavailableError), outcome
    assert "not folded yet: 1 items" in str(outcome)
    assert play.stored(1) == 1
    assert play.is_settled()


# As a tool does that compares tables by checksums.
READS_LOCKING = {
    "postgres": "SELECT * FROM vote_journal FOR SHARE",
    "mariadb": "SELECT * FROM vote_journal LOCK IN SHARE MODE",
}


def test_a_flush_does_not_pass_over_journal_rows_that_are_locked(play: Play) -> None:
    play.cast(1, 1)
    with play.held(READS_LOCKING[play.dialect]):
        in_vain = in_background(lambda: play.flush(timeout=1))()
        assert isinstance(in_vain, hotcount.DeadlineError) or in_vain.pending > 0, in_vain
        flush = in_background(play.flush)
        assert not flush.is_over(0.5)
        assert play.counts(1) == {2}
    assert flush().pending == 0
    assert (play.stored(1), play.pending(1)) == (2, 0)


@pytest.mark.parametrize("play", ["mariadb"], indirect=True)  # On PostgreSQL the fold itself waits.
def test_a_flush_waits_for_an_item_whose_row_in_the_journal_is_locked(play: Play) -> None:
    with play.held(HOLD[play.dialect]):
        play.cast(1, 1)
        flush = in_background(play.flush)
        eventually(lambda: play.number("SELECT COUNT(*) FROM vote_journal WHERE diff = 0") == 1)
        tool = play.session()
        tool.run(READS_LOCKING[play.dialect])
    # The item is free now, and the flush still waits for the row that asks for it.
    assert not flush.is_over(0.5)
    assert play.stored(1) == 1
    tool.rollback()
    assert flush().pending == 0
    assert (play.stored(1), play.pending(1)) == (2, 0)


def test_a_fold_waits_for_no_vote_that_is_under_way(play: Play) -> None:
    session = play.session()
    vote_by_hand(session, 1, 1)
    play.cast(1, 2)
    play.flush(timeout=2)  # On MariaDB the vote under way holds its item as well.
    assert play.counts(1) == {2}
    session.commit()
    assert play.counts(1) == {3}
    assert play.is_settled()


def test_a_fold_waits_for_no_slotted_voter(play: Play) -> None:
    slotted = play.other("slotted", slots=1)
    slotted.cast(1, 1, timeout=30)
    # Its thread has asked for the item: a later request would be a row after the flush below.
    play.flush(slotted)
    with play.held("SELECT n FROM vote_cell WHERE item = 1 AND slot = 0 FOR UPDATE"):
        play.cast(1, 2)
        play.flush()
        assert play.pending(1) == 0
        assert play.counts(1) == {3} == {play.stored(1)}
    slotted.cast(1, 3, timeout=30)
    assert play.counts(1) == {4}


def test_a_row_that_commits_behind_later_ones_is_folded_too(play: Play) -> None:
    # Its number, where rows have one, is lower than that of rows that were folded before.
    session = play.session()
    vote_by_hand(session, 1, 1)
    play.cast(1, 2)
    play.flush(timeout=2)
    session.commit()
    play.flush()
    assert play.stored(1) == 3
    assert play.is_settled()


# So that votes pass and a fold does not: a session that has changed the row on PostgreSQL, one that
# votes for it on MariaDB.
HOLD = {
    "postgres": "UPDATE item SET vote_count = vote_count WHERE id = 1",
    "mariadb": "SELECT id FROM item WHERE id = 1 LOCK IN SHARE MODE",
}


def test_a_held_item_is_left_and_come_back_to(play: Play) -> None:
    with play.held(HOLD[play.dialect]):
        play.cast(1, 1)
        play.cast(2, 1)
        for _ in range(2):
            play.flush(timeout=2)
            # One row that asks for it, however often it was held.
            assert play.pending(1) == 1
            assert play.number("SELECT diff FROM vote_journal WHERE item = 1") == 0
        assert (play.stored(1), play.stored(2)) == (1, 2)
        assert play.counts(1) == play.counts(2) == {2}
    play.flush()
    assert (play.stored(1), play.pending(1)) == (2, 0)
    assert play.is_settled()


def test_votes_for_a_held_item_land_afterwards_in_their_order(play: Play) -> None:
    with play.held("SELECT id FROM item WHERE id = 1 FOR UPDATE"):
        first = in_background(lambda: play.cast(1, 1))
        eventually(play.held_up)
        second = in_background(lambda: play.votes.retract(1, 1, timeout=30))
        # The others go on.
        for user in range(1, 20):
            assert play.cast(2, user).changed
        assert play.voted(1) == 1
    assert first() == hotcount.Cast(counted=True, changed=True, previous=0, value=1)
    assert second() == hotcount.Cast(counted=False, changed=True, previous=1, value=0)
    assert play.is_settled()


def test_a_switch_waits_for_the_fold_and_naive_counts_stay(play: Play) -> None:
    play.cast(1, 1)
    naive = play.other("naive")
    with play.stopped_fold() as fold:
        switch = play.stopped(lambda: naive.create_tables(timeout=30))
        assert play.number(MARKED) == 1
    assert not isinstance(fold(), Exception)
    assert switch() is None
    assert play.number(MARKED) == 0
    naive.cast(1, 2, timeout=30)
    assert play.stored(1) == 3 == int(naive.count(1))
    # A late fold: nothing is left that it could take, and it would not under this mark.
    with pytest.raises(hotcount.ConfigError, match="item"):
        play.cast(1, 3)
    in_background(play.flush)()
    assert play.stored(1) == 3 == play.voted(1)
    assert play.number("SELECT COUNT(*) FROM vote_journal") == 0
    # And back.
    play.votes.create_tables(timeout=30)
    play.cast(1, 4)
    assert play.counts(1) == {4}
    assert play.is_settled()


MARKED = "SELECT COUNT(*) FROM vote_meta WHERE name = 'counted_in' AND value = 'journal'"


@pytest.mark.mariadb_only("MySQL sets such a vote aside, and nothing of it is under way")
def test_a_switch_waits_for_votes_that_are_under_way(play: Play) -> None:
    # The vote has seen the mark and waits for its row, which the session has.
    naive = play.other("naive")
    with play.held("UPDATE vote SET prev = prev WHERE item_id = 1 AND user_id = 0"):
        vote = play.stopped(lambda: play.votes.retract(1, 0, timeout=30))
        switch = play.stopped(lambda: naive.create_tables(timeout=30))
        assert play.number(MARKED) == 1
    assert vote() == hotcount.Cast(counted=False, changed=True, previous=1, value=0)
    assert switch() is None
    assert play.stored(1) == 0 == play.voted(1)
    assert naive.reconcile(dry_run=True, timeout=30) == []


@pytest.mark.mysql_only
@pytest.mark.parametrize("play", ["mariadb"], indirect=True)
def test_a_vote_that_is_set_aside_during_a_switch_is_refused(play: Play) -> None:
    naive = play.other("naive")
    with play.held("UPDATE vote SET prev = prev WHERE item_id = 1 AND user_id = 0"):
        vote = play.stopped(lambda: play.votes.retract(1, 0, timeout=30))
        naive.create_tables(timeout=30)
    assert isinstance(vote(), hotcount.ConfigError)
    assert play.stored(1) == 1 == play.voted(1)
    assert naive.reconcile(dry_run=True, timeout=30) == []


def test_a_switch_does_not_deadlock_with_a_transaction_that_goes_on_to_count(play: Play) -> None:
    # As a caller's own transaction does it: its vote, some work, then the journal's row.
    naive = play.other("naive")
    caller = play.session()
    if play.dialect == "mariadb":
        caller.run("SELECT value FROM vote_meta WHERE name = 'counted_in' LOCK IN SHARE MODE")
    else:
        caller.run("SET LOCAL deadlock_timeout = '10ms'")  # So that it would be the victim.
    caller.run("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 1, 1, 0)")
    switch = play.stopped(lambda: naive.create_tables(timeout=30))
    caller.run("INSERT INTO vote_journal (item, diff) VALUES (1, 1)")
    caller.commit()
    assert switch() is None
    assert play.stored(1) == 2 == play.voted(1)


def test_a_fold_does_not_wait_for_a_switch(play: Play) -> None:
    play.cast(1, 1)
    naive = play.other("naive")
    holder = {
        "postgres": "INSERT INTO vote (item_id, user_id, val) VALUES (2, 99, 0)",
        "mariadb": "SELECT value FROM vote_meta WHERE name = 'counted_in' LOCK IN SHARE MODE",
    }
    with play.held(holder[play.dialect]):
        switch = play.stopped(lambda: naive.create_tables(timeout=30))
        fold = in_background(lambda: play.votes.flush(timeout=0.5))
        outcome = fold()
        # It gives up or reports that somebody else folds; it does not take the rows.
        assert isinstance(outcome, hotcount.DeadlineError) or outcome.acked == 0, outcome
        assert play.pending(1) == 1
    assert switch() is None
    assert play.stored(1) == 2


def test_two_reconciles_at_once_add_a_drift_once(play: Play) -> None:
    drift = play.session()
    drift.run("UPDATE vote_cell SET n = n - 5 WHERE item = 1 AND slot = -1")
    drift.commit()
    gate = play.session()
    play.take_moving(gate)
    # Both have begun, and wait: a snapshot of before the other's commit would add 5 again.
    other = play.other()
    one = play.stopped(lambda: play.votes.reconcile(timeout=30))
    two = play.stopped(lambda: other.reconcile(timeout=30))
    play.cast(1, 1)
    gate.rollback()
    found = [*one(), *two()]
    assert len(found) == 1
    assert found[0].actual - found[0].counted == 5
    assert play.counts(1) == {2}
    assert play.is_settled()


def test_reconcile_counts_what_is_pending(play: Play) -> None:
    play.cast(1, 1)
    assert play.pending(1) > 0
    assert play.votes.reconcile(dry_run=True, timeout=30) == []
    assert play.votes.reconcile(timeout=30) == []
    assert play.counts(1) == {2}
    assert play.is_settled()


def test_reconcile_mends_what_alone_is_wrong_in_the_item_row(play: Play) -> None:
    session = play.session()
    session.run("UPDATE item SET vote_count = 77 WHERE id = 1")
    session.commit()
    assert play.counts(1) == {1}
    play.votes.reconcile(timeout=30)
    play.flush()
    assert play.stored(1) == 1
    assert play.is_settled()


def test_reconcile_waits_for_no_voter_and_keeps_none_waiting(play: Play) -> None:
    session = play.session()
    vote_by_hand(session, 1, 1)
    session.run("UPDATE vote_cell SET n = n WHERE item = 3 AND slot = -1")
    drift = play.session()
    drift.run("UPDATE vote_cell SET n = n + 2 WHERE item = 2 AND slot = -1")
    drift.commit()
    found = play.votes.reconcile(timeout=30)
    assert [each.item for each in found] == [2]
    session.commit()
    assert play.counts(1) == {2}
    assert play.is_settled()


def test_an_item_deleted_by_hand_and_made_again_is_set_right_by_reconcile(play: Play) -> None:
    by_hand = play.session()
    for statement in (
        "DELETE FROM vote WHERE item_id = 1",
        "DELETE FROM item WHERE id = 1",
        "INSERT INTO item (id, vote_count) VALUES (1, 0)",
    ):
        by_hand.run(statement)
    by_hand.commit()
    # Its cells were not deleted with it, and count on.
    assert play.number("SELECT n FROM vote_count WHERE item = 1") == 1
    assert play.votes.reconcile(timeout=30) == [hotcount.Drift(item=1, counted=1, actual=0)]
    assert play.counts(1) == {0}
    assert play.is_settled()


@pytest.mark.parametrize("foreign_key", [True, False])
def test_a_vote_for_an_item_that_is_being_deleted_is_refused(play: Play, foreign_key: bool) -> None:
    votes, same = (
        play.other(item_table="thing", vote_table="ballot", foreign_key=foreign_key)
        for _ in range(2)
    )
    votes.create_tables(timeout=30)
    votes.add_items([1], timeout=30)
    votes.cast(1, 1, timeout=30)
    by_hand = play.session()
    for statement in (
        "SELECT id FROM thing WHERE id = 1 FOR UPDATE",
        "DELETE FROM ballot WHERE item_id = 1",
        "DELETE FROM thing WHERE id = 1",
    ):
        by_hand.run(statement)
    new = in_background(lambda: votes.cast(1, 2, timeout=30))
    changed = in_background(lambda: same.retract(1, 1))
    eventually(lambda: play.held_up(votes))
    by_hand.commit()
    assert isinstance(new(), hotcount.IntegrityError)
    assert isinstance(changed(), hotcount.IntegrityError)
    assert play.number("SELECT COUNT(*) FROM ballot") == 0


def test_an_old_snapshot_keeps_its_counts_and_holds_up_nobody(play: Play) -> None:
    play.cast(1, 1)
    old = play.session()
    old.run(
        "BEGIN ISOLATION LEVEL REPEATABLE READ"
        if play.dialect == "postgres"
        else "START TRANSACTION WITH CONSISTENT SNAPSHOT"
    )
    # In pg_dump's way: the snapshot is taken by the first look, at one table.
    assert old.number("SELECT COUNT(*) FROM vote") == 4
    for user in range(10, 20):
        play.cast(1, user)
        play.flush()
    assert play.counts(1) == {12} == {play.stored(1)}
    cells = old.number("SELECT SUM(n) FROM vote_cell WHERE item = 1")
    pending = old.number("SELECT COALESCE(SUM(diff), 0) FROM vote_journal WHERE item = 1")
    assert cells + pending == 2
    assert old.number("SELECT n FROM vote_count WHERE item = 1") == 2
    old.rollback()
    assert play.is_settled()


def test_a_process_that_starts_waits_for_no_reader_of_the_journal(play: Play) -> None:
    # A dump reads each table for as long as it takes. A lock that conflicts with reading would
    # wait for it, and every voter behind that lock.
    reader = play.session()
    reader.run("BEGIN" if play.dialect == "postgres" else "START TRANSACTION")
    for table in ("vote", "vote_cell", "vote_journal", "vote_meta", "item"):
        reader.run(f"SELECT COUNT(*) FROM {table}")
    play.other().create_tables(timeout=20)
    assert play.cast(1, 1).changed
    reader.rollback()


ABORT = {
    "postgres": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'not this one'; END$$",
        "CREATE TRIGGER no BEFORE UPDATE ON item FOR EACH ROW WHEN (OLD.id = 2)"
        " EXECUTE FUNCTION refuse()",
    ],
    "mariadb": [
        "CREATE TRIGGER no BEFORE UPDATE ON item FOR EACH ROW BEGIN IF OLD.id = 2 THEN"
        " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END"
    ],
}


def test_an_item_whose_fold_fails_stops_no_other(play: Play) -> None:
    admin = play.session()
    for statement in ABORT[play.dialect]:
        admin.run(statement)
    admin.commit()
    for item in (1, 2, 3):
        play.cast(item, 1)
    in_background(play.flush)()
    assert [play.stored(item) for item in (1, 2, 3)] == [2, 1, 2]
    assert [play.pending(item) for item in (1, 2, 3)] == [0, 1, 0]
    assert play.counts(2) == {2}
    assert "not this one" in play.votes.stats()["refused_items"][2]
    admin.run("DROP TRIGGER no ON item" if play.dialect == "postgres" else "DROP TRIGGER no")
    admin.commit()
    assert play.is_settled()


def test_an_overflow_of_one_item_stops_no_other(play: Play) -> None:
    largest = 2**63 - 1
    admin = play.session()
    admin.run(f"UPDATE vote_cell SET n = {largest} WHERE item = 2 AND slot = -1")
    admin.commit()
    for item in (1, 2, 3):
        play.cast(item, 1)
    in_background(play.flush)()
    assert [play.stored(item) for item in (1, 3)] == [2, 2]
    assert play.pending(2) == 1
    assert list(play.votes.stats()["refused_items"]) == [2]
    admin.run("UPDATE vote_cell SET n = 1 WHERE item = 2 AND slot = -1")
    admin.commit()
    assert play.is_settled()


@pytest.mark.parametrize("play", ["postgres"], indirect=True)
def test_a_flush_of_write_behind_reports_items_that_are_not_folded(
    play: Play, direct: hotcount.Redis
) -> None:
    behind = play.other("write_behind", direct)
    behind.create_tables(timeout=30)
    behind.cast(1, 1, timeout=30)
    with play.held(HOLD[play.dialect]):
        assert play.flush(behind, timeout=2) == hotcount.FlushReport(acked=1, pending=1, at_risk=0)
    admin = play.session()
    for statement in ABORT[play.dialect]:
        admin.run(statement)
    admin.commit()
    behind.cast(2, 1, timeout=30)
    assert play.flush(behind) == hotcount.FlushReport(acked=1, pending=1, at_risk=0)
    assert (play.stored(1), play.stored(2)) == (2, 1)
    admin.run("DROP TRIGGER no ON item")
    admin.commit()
    assert play.flush(behind).pending == 0
    assert play.stored(2) == 2
