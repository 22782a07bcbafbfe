"""Tables of a release without a journal, and processes of both releases beside each other."""

from __future__ import annotations

import threading

import hotcount
import psycopg
import pytest

from tests.support.eventually import eventually
from tests.support.journal_side import JournalSide
from tests.support.servers import PostgresDatabase

pytestmark = pytest.mark.server


def make_old_tables(side: JournalSide, strategy: str = "batched") -> None:
    """As the release before made them, with 3 votes for item 1 and an opening balance of 40."""
    side.made()
    side.run("DROP VIEW vote_count")
    side.run("DROP TABLE vote_journal")
    side.run(
        "DELETE FROM vote_meta WHERE name IN ('folded_at', 'fold_took', 'vote_route')",
        "UPDATE vote_meta SET value = 'cells' WHERE name = 'counted_in'",
        f"UPDATE vote_meta SET value = '{strategy}' WHERE name = 'counted_by'",
        "INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 1, 1, 0), (1, 2, 2, 0)",
        "INSERT INTO vote_cell (item, slot, n, ver) VALUES (1, 0, 3, 2), (1, -2, 40, 1)",
        "UPDATE item SET vote_count = 43 WHERE id = 1",
    )


def old_vote(side: JournalSide, user: int) -> list[tuple[int]]:
    """What the release before writes of a vote for item 1, if the mark lets it; whom it wrote."""
    with side.session() as session:
        mark = session.execute(
            "SELECT value FROM vote_meta WHERE name = 'counted_in'"
            + (" LOCK IN SHARE MODE" if side.dialect == "mysql" else "")
        )[0][0]
        if (mark.decode() if isinstance(mark, bytes) else mark) != "cells":
            return []
        session.execute(f"INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, {user}, 1, 0)")
        session.execute("UPDATE vote_cell SET n = n + 1 WHERE item = 1 AND slot = 0")
        session.execute("UPDATE item SET vote_count = vote_count + 1 WHERE id = 1")
        session.commit()
    return [(user,)]


@pytest.mark.parametrize("strategy", ["batched", "slotted"])
def test_a_process_of_this_release_refuses_tables_of_the_one_before(
    journal_side: JournalSide, strategy: str
) -> None:
    make_old_tables(journal_side, strategy)
    votes = journal_side.votes(strategy)
    with pytest.raises(hotcount.HotcountError, match="create_tables"):
        votes.cast(1, 3)
    with pytest.raises(hotcount.HotcountError, match="create_tables"):
        votes.count(1)
    assert old_vote(journal_side, 3) == [(3,)]


@pytest.mark.parametrize("before", ["batched", "slotted"])
@pytest.mark.parametrize("after", ["batched", "slotted"])
def test_create_tables_brings_counts_and_opening_balances_over(
    journal_side: JournalSide, before: str, after: str
) -> None:
    make_old_tables(journal_side, before)
    votes = journal_side.votes(after)
    votes.create_tables(timeout=20)
    assert (int(votes.count(1)), journal_side.shown(), journal_side.seen()) == (43, 43, 43)
    assert votes.reconcile(dry_run=True) == []
    journal_side.vote(1, 9)
    assert int(votes.count(1)) == 44
    votes.flush(20)
    assert journal_side.shown() == 44
    assert journal_side.number("SELECT n FROM vote_cell WHERE item = 1 AND slot = -2") == 40


def test_a_process_of_the_release_before_is_refused_from_then_on(journal_side: JournalSide) -> None:
    make_old_tables(journal_side)
    journal_side.votes().create_tables(timeout=20)
    assert old_vote(journal_side, 3) == []
    mark = journal_side.run("SELECT value FROM vote_meta WHERE name = 'counted_in'")[0][0]
    # Its error: "table vote was last counted in its journal, strategy batched counts in its cells".
    assert mark in ("journal", b"journal")


def test_the_printed_schema_brings_tables_over_too(journal_side: JournalSide) -> None:
    make_old_tables(journal_side)
    votes = journal_side.votes()
    for _ in range(2):
        for statement in votes.schema().split(";\n"):
            if statement.strip():
                journal_side.run(statement)
    assert int(votes.count(1)) == 43
    assert votes.reconcile(dry_run=True) == []


def run_as_psql_does(database: PostgresDatabase, level: str, script: str) -> None:
    """Each statement by itself, in a session that defaults to this level of isolation."""
    with psycopg.connect(
        host=str(database.server.folder),
        user=database.server.superuser,
        dbname="postgres",
        options=f"-c search_path={database.schema}",
        autocommit=True,
    ) as session:
        session.execute(f"SET default_transaction_isolation = '{level}'")
        for statement in script.split(";\n"):
            session.execute(statement)


WAITING_FOR_THE_MARKS = (
    "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE 'DO%vote_meta%' "
    "AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"
)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_the_printed_schema_counts_a_vote_that_it_waited_for_at_every_default_level(
    postgres_database: PostgresDatabase, level: str
) -> None:
    side = JournalSide(postgres=postgres_database)
    make_old_tables(side)
    votes = side.votes()
    with side.session() as voter:
        voter.execute("SELECT value FROM vote_meta WHERE name = 'counted_in' FOR SHARE")
        voter.execute("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 3, 1, 0)")
        voter.execute("UPDATE vote_cell SET n = n + 1 WHERE item = 1 AND slot = 0")
        migration = threading.Thread(
            target=run_as_psql_does, args=(postgres_database, level, votes.schema())
        )
        migration.start()
        eventually(lambda: side.number(WAITING_FOR_THE_MARKS) == 1)
        voter.commit()
    migration.join(30)
    assert int(votes.count(1)) == 44
    assert votes.reconcile(dry_run=True) == []


def test_tables_that_were_half_brought_over_are_finished(journal_side: JournalSide) -> None:
    """The journal is there and the mark is the old one: a process that died between the two."""
    make_old_tables(journal_side)
    journal_side.votes().create_tables(timeout=20)
    journal_side.run("UPDATE vote_meta SET value = 'cells' WHERE name = 'counted_in'")
    # An old process votes on, and a row from a voter whose mark was a moment older is there.
    assert old_vote(journal_side, 3) == [(3,)]
    journal_side.run("INSERT INTO vote_journal (item, diff) VALUES (1, 7)")
    votes = journal_side.votes()
    with pytest.raises(hotcount.ConfigError, match="create_tables"):
        votes.count(1)
    votes.create_tables(timeout=20)
    assert (int(votes.count(1)), journal_side.shown(), journal_side.pending()) == (44, 44, 0)


@pytest.mark.parametrize("missing", ["TABLE vote_journal", "VIEW vote_count", "VIEW vote_live"])
def test_create_tables_makes_what_is_missing_of_tables_that_are_counted(
    journal_side: JournalSide, missing: str
) -> None:
    votes = journal_side.made()
    cascades = journal_side.dialect == "postgresql" and missing.startswith("TABLE")
    journal_side.run(f"DROP {missing}{' CASCADE' if cascades else ''}")
    votes.create_tables(timeout=20)
    journal_side.vote(1, 1)
    assert (int(votes.count(1)), journal_side.seen()) == (1, 1)


def test_create_tables_writes_the_mark_of_folds_where_it_is_gone(journal_side: JournalSide) -> None:
    votes = journal_side.made()
    journal_side.run("DELETE FROM vote_meta WHERE name IN ('folded_at', 'fold_took', 'vote_route')")
    journal_side.vote(1, 1)
    votes.create_tables(timeout=20)
    journal_side.vote(1, 2)
    assert votes.flush(20).pending == 0
    assert (journal_side.shown(), int(votes.count(1)), journal_side.pending()) == (2, 2, 0)


def test_create_tables_waits_for_nobody_where_nothing_changes(journal_side: JournalSide) -> None:
    journal_side.made()
    with journal_side.session() as other:
        other.execute("SELECT * FROM vote_count")
        other.execute("SELECT value FROM vote_meta FOR UPDATE")
        other.execute("INSERT INTO vote (item_id, user_id, val, prev) VALUES (1, 1, 1, 0)")
        journal_side.votes().create_tables(timeout=20)
        journal_side.votes().create_tables(timeout=20)


@pytest.mark.parametrize("after", ["naive", "cached"])
def test_pending_votes_go_over_to_another_strategy_and_back(
    journal_side: JournalSide, after: str
) -> None:
    votes = journal_side.made()
    journal_side.vote(1, 1, 2)
    cache = hotcount.Memory() if after == "cached" else None
    other = journal_side.votes(after, cache=cache)
    other.create_tables(timeout=20)
    assert (int(other.count(1)), journal_side.shown(), journal_side.seen()) == (2, 2, 2)
    other.cast(1, 3)
    other.flush(20)
    with pytest.raises(hotcount.ConfigError, match="create_tables"):
        votes.flush(20)
    # Nothing is left in it that would be counted again.
    assert journal_side.pending() == 0
    votes.create_tables(timeout=20)
    assert (int(votes.count(1)), journal_side.shown(), journal_side.seen()) == (3, 3, 3)
    assert votes.reconcile(dry_run=True) == []


def test_without_a_foreign_key_the_vote_tables_reference_nothing(journal_side: JournalSide) -> None:
    journal_side.made(foreign_key=False)
    assert "FOREIGN KEY" not in journal_side.votes(foreign_key=False).schema()
    journal_side.run("INSERT INTO vote (item_id, user_id, val, prev) VALUES (99, 1, 1, 0)")
