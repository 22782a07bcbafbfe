"""Strategy batched in the caller's own transaction on the servers: it appends to the journal.

However long the transaction stays open, nobody else waits; what it comes to is in every count from
its commit on.
"""

from __future__ import annotations

from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount.integrations.sqlalchemy import cast_vote, retract_vote, vote_count
from sqlalchemy.orm import Session

from tests.support.eventually import eventually
from tests.support.postgres_votes import in_background
from tests.support.sql_votes import make_votes
from tests.support.sqlalchemy_side import BothSides
from tests.support.together import together

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


def one(server: BothSides, sql: str) -> int:
    return int(server.run(sql)[0][0])


def truth(server: BothSides, item: int = 1) -> int:
    return one(server, f"SELECT n FROM vote_count WHERE item = {item}")


def assert_agrees(server: BothSides, votes: hotcount.Votes, item: int, expected: int) -> None:
    assert truth(server, item) == int(votes.count(item)) == expected
    votes.flush(timeout=30)
    assert votes.reconcile(dry_run=True) == []
    assert truth(server, item) == int(votes.count(item)) == expected
    assert one(server, f"SELECT vote_count FROM item WHERE id = {item}") == expected


@pytest.mark.parametrize("level", LEVELS)
def test_an_open_transaction_keeps_no_voter_waiting(server: BothSides, level: str) -> None:
    votes = make_votes(server, "batched")
    # Rows beside those that the transaction touches: a lock on a gap would be between them.
    for user in (10, 20, 30):
        votes.cast(1, user)
    engine = server.engine.execution_options(isolation_level=level)
    with engine.connect() as held:
        assert cast_vote(held, votes, 1, 20, 5).changed
        assert cast_vote(held, votes, 1, 25).changed
        assert cast_vote(held, votes, 1, None, op_id="m").changed

        def vote(index: int) -> None:
            votes.cast(1, 11 + index)
            votes.cast(1, 1_000 + index)
            votes.retract(1, 1_000 + index)
            votes.cast(1, None, op_id=f"m{index}")
            with server.engine.begin() as connection:
                cast_vote(connection, votes, 1, 40 + index)

        # Each would end with an error after the database's 20 s.
        together(vote, 8)
        votes.cast(1, 10, 0)
        # Counts and folds go on as well; what is not committed is in neither.
        assert truth(server) == int(votes.count(1)) == 2 + 3 * 8
        votes.cast(2, 1)
        eventually(lambda: one(server, "SELECT vote_count FROM item WHERE id = 2") == 1)
        held.commit()
    assert_agrees(server, votes, 1, 5 + 1 + 1 + 1 + 3 * 8)


@pytest.mark.parametrize("level", LEVELS)
def test_an_item_that_is_to_be_made_where_it_is_missing_is_not_held(
    server: BothSides, level: str
) -> None:
    votes = make_votes(server, "batched", missing_items="create")
    engine = server.engine.execution_options(isolation_level=level)
    with engine.connect() as held:
        cast_vote(held, votes, 1, 1)
        votes.cast(1, 2)
        with server.engine.begin() as connection:
            cast_vote(connection, votes, 1, 3)
        # One that somebody adds after the snapshot.
        votes.add_items([7])
        if server.dialect == "postgresql" and level != "READ COMMITTED":
            with pytest.raises(sa.exc.OperationalError, match="serialize"):
                cast_vote(held, votes, 7, 1)
        else:
            assert cast_vote(held, votes, 7, 1).changed
        assert cast_vote(held, votes, 8, 1).changed
        held.commit()
    assert_agrees(server, votes, 1, 3)
    assert_agrees(server, votes, 8, 1)


def test_each_change_is_one_journal_row_and_what_changes_nothing_is_none(server: BothSides) -> None:
    votes = make_votes(server, "batched", fold_interval=3600)
    votes.cast(2, 1)
    votes.flush()
    with server.engine.connect() as connection:
        cast_vote(connection, votes, 1, 1, 3)
        cast_vote(connection, votes, 1, 1, 3)
        cast_vote(connection, votes, 1, 1, 1)
        retract_vote(connection, votes, 1, 2)
        rows = connection.execute(sa.text("SELECT item, diff FROM vote_journal ORDER BY diff"))
        assert [tuple(row) for row in rows] == [(1, -2), (1, 3)]
        cells = sa.text("SELECT COUNT(*) FROM vote_cell WHERE item = 1")
        assert connection.execute(cells).scalar() == 0
        assert vote_count(connection, votes, 1) == 1
        connection.commit()
    assert_agrees(server, votes, 1, 1)


def test_a_savepoint_rolled_back_leaves_no_journal_row(server: BothSides) -> None:
    votes = make_votes(server, "batched", fold_interval=3600)
    votes.cast(2, 1)
    votes.flush()
    with Session(server.engine) as session, session.begin():
        cast_vote(session, votes, 1, 1)
        inner = session.begin_nested()
        cast_vote(session, votes, 1, 2, 10)
        retract_vote(session, votes, 1, 1)
        assert vote_count(session, votes, 1) == 10
        inner.rollback()
        assert vote_count(session, votes, 1) == 1
        with session.begin_nested():
            cast_vote(session, votes, 1, 3, 100)
    assert one(server, "SELECT COUNT(*) FROM vote_journal") == 2
    assert_agrees(server, votes, 1, 101)


@pytest.mark.parametrize(
    "name", ["page", "free", "clock", "totals", "here", "again", "written", "noted", "w", "b", "ok"]
)
def test_a_table_of_the_users_may_be_called_like_a_part_of_a_statement(
    server: BothSides, name: str
) -> None:
    options: dict[str, Any] = {"item_table": name, "vote_table": f"{name}_vote"}
    votes = hotcount.Votes(server.database, **options)
    votes.create_tables()
    votes.add_items([1])
    votes.cast(1, 1)
    with server.engine.begin() as connection:
        cast_vote(connection, votes, 1, 2)
    votes.flush(timeout=30)
    assert int(votes.count(1)) == one(server, f"SELECT vote_count FROM {name} WHERE id = 1") == 2
    assert votes.reconcile(dry_run=True) == []


def test_a_connection_that_stays_out_of_its_pool_does_not_hurry_the_folds(
    server: BothSides,
) -> None:
    votes = make_votes(server, "batched", fold_interval=30)
    with server.engine.connect() as connection:
        for user in range(1, 1101):
            cast_vote(connection, votes, 1, user)
        connection.commit()
        votes.flush(timeout=30)
        before = votes.stats()["folds"]
        # Rows are told once: 20,000 are folded before the interval is over.
        for user in range(1, 101):
            cast_vote(connection, votes, 1, user, 2)
            connection.commit()
        assert votes.stats()["folds"] - before <= 1


def test_votes_that_were_closed_before_the_commit_leave_the_fold_to_others(
    server: BothSides,
) -> None:
    make_votes(server, "batched")
    with server.engine.connect() as connection:
        with hotcount.Votes(hotcount.Database(server.url, timeout=20)) as passing:
            cast_vote(connection, passing, 1, 1)
        connection.commit()
    assert_agrees(server, hotcount.Votes(server.database), 1, 1)


@pytest.mark.parametrize("level", LEVELS)
def test_a_change_of_strategy_waits_for_an_open_transaction_and_loses_nothing(
    server: BothSides, level: str
) -> None:
    votes = make_votes(server, "batched")
    votes.cast(1, 1)
    naive = hotcount.Votes(server.database, strategy="naive")
    engine = server.engine.execution_options(isolation_level=level)
    with engine.connect() as held:
        cast_vote(held, votes, 1, 2)
        switch = in_background(lambda: naive.create_tables(timeout=30))
        # It is waiting: PostgreSQL and MariaDB both say so.
        eventually(lambda: somebody_waits(server))
        assert cast_vote(held, votes, 1, 3).changed
        held.commit()
    assert switch() is None
    with engine.connect() as late, pytest.raises(hotcount.ConfigError, match="create_tables"):
        cast_vote(late, votes, 1, 4)
    assert int(naive.count(1)) == 3
    assert naive.reconcile(dry_run=True) == []
    # What was in the journal then is counted once.
    votes.create_tables()
    assert one(server, "SELECT COUNT(*) FROM vote_journal") == 0
    assert_agrees(server, votes, 1, 3)


def somebody_waits(server: BothSides) -> bool:
    if server.dialect == "postgresql":
        return one(server, "SELECT COUNT(*) FROM pg_locks WHERE NOT granted") > 0
    return int(server.run("SHOW GLOBAL STATUS LIKE 'innodb_row_lock_current_waits'")[0][1]) > 0


@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_snapshot_from_before_a_change_of_strategy_writes_nothing_in_the_old_place(
    server: BothSides, level: str
) -> None:
    votes = make_votes(server, "batched")
    votes.cast(1, 1)
    engine = server.engine.execution_options(isolation_level=level)
    with engine.connect() as old:
        old.execute(sa.text("SELECT COUNT(*) FROM item" if level[0] == "R" else "SELECT 1")).all()
        naive = make_votes(server, "naive")
        with pytest.raises((hotcount.ConfigError, sa.exc.OperationalError)):
            cast_vote(old, votes, 1, 2)
        old.rollback()
    assert int(naive.count(1)) == 1
    assert naive.reconcile(dry_run=True) == []


def test_slotted_keeps_its_cells_and_counts_beside_the_journal(server: BothSides) -> None:
    batched = make_votes(server, "batched")
    slotted = make_votes(server, "slotted")
    with server.engine.begin() as connection:
        cast_vote(connection, slotted, 1, 1)
        cast_vote(connection, batched, 1, 2)
        assert vote_count(connection, slotted, 1) == vote_count(connection, batched, 1) == 2
    assert one(server, "SELECT COUNT(*) FROM vote_cell WHERE slot >= 0") == 1
    batched.cast(1, 3)
    slotted.cast(1, 4)
    assert_agrees(server, batched, 1, 4)


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched", "cached"])
def test_without_a_foreign_key_a_vote_for_a_missing_item_is_refused(
    server: BothSides, strategy: Any
) -> None:
    votes = make_votes(server, strategy, foreign_key=False)
    with server.engine.begin() as connection:
        with pytest.raises(hotcount.IntegrityError, match="does not exist"):
            cast_vote(connection, votes, 9, 1)
        assert cast_vote(connection, votes, 1, 1).changed
    assert one(server, "SELECT COUNT(*) FROM vote") == 1
    assert int(votes.count(1, consistency="exact")) == 1
