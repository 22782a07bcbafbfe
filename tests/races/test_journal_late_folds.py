"""A fold on PostgreSQL whose snapshot is older than its lock, held up exactly between the two.

The fold is one statement: it takes its snapshot, then tries its lock. Who folds, switches or
flushes in between has changed what it sees. The gap is of microseconds; here it lasts until the
test ends it, because the process of the late fold finds another pg_try_advisory_xact_lock() on its
search path.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import hotcount
import pytest

from tests.support.journal_play import PostgresPlay
from tests.support.postgres_votes import Background
from tests.support.servers import PostgresDatabase

# The lock 4711 is the test's.
WAITS_FIRST = """
CREATE FUNCTION pg_try_advisory_xact_lock(int, int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock(4711);
  RETURN pg_catalog.pg_try_advisory_xact_lock($1, $2);
END $$
"""


class LatePlay(PostgresPlay):
    """Beside the play's own process another, whose folds can be held up."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        admin = self.session()
        admin.run(WAITS_FIRST)
        admin.commit()
        self._options = "%2Cpg_catalog"  # Behind the schema with that function.
        self.late = self.other()
        self._options = ""

    @contextmanager
    def late_fold(self) -> Iterator[Background]:
        """A fold that has its snapshot, and tries its lock when the block ends."""
        with self.held("SELECT pg_advisory_xact_lock(4711)"):
            yield self.stopped(lambda: self.flush(self.late))


@pytest.fixture
def play(postgres_database: PostgresDatabase) -> Iterator[LatePlay]:
    play = LatePlay(postgres_database)
    yield play
    play.close()


def test_a_late_fold_does_not_count_again_what_another_fold_has_taken(play: LatePlay) -> None:
    play.cast(1, 1)
    with play.late_fold() as fold:
        play.flush()
        assert play.stored(1) == 2
        play.cast(1, 2)
    assert not isinstance(fold(), Exception)
    assert play.counts(1) == {3}
    assert play.is_settled()


def test_a_late_fold_does_not_undo_a_flush_that_has_shown_slotted_votes(play: LatePlay) -> None:
    slotted = play.other("slotted", slots=1)
    slotted.cast(1, 1, timeout=30)
    play.cast(1, 2)
    with play.late_fold() as fold:
        slotted.cast(1, 3, timeout=30)
        play.cast(1, 4)
        play.flush(slotted)
        assert play.stored(1) == 5
    assert not isinstance(fold(), Exception)
    assert play.stored(1) == 5
    assert play.counts(1) == {5}


def test_a_late_fold_overwrites_nothing_that_naive_has_counted(play: LatePlay) -> None:
    naive = play.other("naive")
    play.cast(1, 1)
    with play.late_fold() as fold:
        naive.create_tables(timeout=30)
        naive.cast(1, 2, timeout=30)
        assert play.stored(1) == 3
    fold()  # Nothing to fold, or an error that says where the counts are: both are right.
    assert play.stored(1) == 3 == play.voted(1)
    assert naive.reconcile(dry_run=True, timeout=30) == []


def test_a_late_fold_finds_nothing_after_a_switch_there_and_back(play: LatePlay) -> None:
    naive = play.other("naive")
    play.cast(1, 1)
    with play.late_fold() as fold:
        naive.create_tables(timeout=30)
        naive.cast(1, 2, timeout=30)
        play.votes.create_tables(timeout=30)
        play.cast(1, 3)
    fold()
    assert play.counts(1) == {4}
    assert play.is_settled()


def test_a_late_fold_does_not_undo_a_reconcile(play: LatePlay) -> None:
    play.cast(1, 1)
    with play.late_fold() as fold:
        drift = play.session()
        drift.run("UPDATE vote_cell SET n = n - 3 WHERE item = 1 AND slot = -1")
        drift.commit()
        assert len(play.votes.reconcile(timeout=30)) == 1
        assert play.counts(1) == {2}
    assert not isinstance(fold(), Exception)
    assert play.counts(1) == {2}
    assert play.is_settled()


def test_a_late_flush_waits_for_an_item_that_another_fold_has_found_locked(play: LatePlay) -> None:
    # The other fold puts the item back into the journal after the snapshot of the late one.
    play.cast(1, 1)
    with play.held("UPDATE item SET vote_count = vote_count WHERE id = 1"):
        with play.late_fold() as flush:
            assert play.flush(timeout=1).pending == 1
        assert not flush.is_over(0.5)
        assert play.stored(1) == 1
    assert flush().pending == 0
    assert play.stored(1) == 2
    assert play.is_settled()


def test_a_late_flush_goes_on_behind_a_page_that_another_fold_has_taken(play: LatePlay) -> None:
    # A full page is in its snapshot; all of these rows are gone, and one is left.
    rows = play.session()
    rows.run("INSERT INTO vote_journal SELECT 1, 0 FROM generate_series(1, 20000)")
    rows.run("INSERT INTO vote_journal VALUES (2, 0)")
    rows.commit()
    with play.late_fold() as flush:
        cell = "SELECT n FROM vote_cell WHERE item = 2 AND slot = -1 FOR UPDATE"
        with play.held(cell), pytest.raises(hotcount.DeadlineError):
            play.flush(timeout=2)
        assert (play.pending(1), play.pending(2)) == (0, 1)
    assert flush().pending == 0
    assert play.pending(2) == 0
    assert play.is_settled()
