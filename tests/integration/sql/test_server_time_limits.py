"""Limits of a server, a role or a user: on a statement's time, and on prepared statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.postgres_votes import STRATEGIES, in_background, session, waiting
from tests.support.servers import PostgresDatabase

pytestmark = pytest.mark.server


def make_votes(url: str, strategy: str = "naive", **options: Any) -> hotcount.Votes:
    database = hotcount.Database(url, timeout=20)
    votes = hotcount.Votes(database, None, strategy, **options)  # type: ignore[arg-type]
    votes.create_tables()
    votes.add_items([1, 2, 3])
    return votes


# -- statement_timeout --------------------------------------------------------


@pytest.fixture
def limited_url(postgres_database: PostgresDatabase) -> str:
    """Of a role whose statements may take a second."""
    role = f"limited_{postgres_database.schema}"
    postgres_database.psql(
        f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA {postgres_database.schema} TO {role}; "
        f"ALTER ROLE {role} SET statement_timeout = '1s'"
    )
    return postgres_database.url_for(role)


@pytest.mark.parametrize("strategy", ["naive", "slotted"])
def test_statement_timeout_is_named_and_applied_nothing(
    postgres_database: PostgresDatabase, limited_url: str, strategy: str
) -> None:
    with make_votes(limited_url, strategy) as votes:
        votes.cast(1, 7)
        with session(postgres_database, "SELECT FROM item, vote FOR UPDATE"):
            with pytest.raises(hotcount.DeadlineError, match="statement_timeout") as caught:
                votes.cast(1, 7, -1)
            assert caught.value.code == "57014"
            assert "nothing was applied" in str(caught.value)
        assert int(votes.count(1, consistency="exact")) == 1
        assert votes.cast(1, 7, -1).previous == 1
        assert votes.reconcile(dry_run=True) == []


def test_statement_timeout_ends_no_batched_vote_that_waits_for_a_row(
    postgres_database: PostgresDatabase, limited_url: str
) -> None:
    """It ends the statement that waits; the next one waits again, until the vote's own deadline."""
    with make_votes(limited_url, "batched") as votes:
        votes.cast(1, 7)
        with session(postgres_database, "SELECT FROM item, vote FOR UPDATE"):
            with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
                votes.cast(1, 7, 2, timeout=0.5)
            cast = in_background(lambda: votes.cast(1, 7, -1))
            eventually(lambda: votes.stats()["held_votes_s"] > 3)
        assert cast().previous == 1
        assert int(votes.count(1, consistency="exact")) == -1
        assert votes.reconcile(dry_run=True) == []


def test_a_statement_that_somebody_cancelled_is_no_timeout(
    postgres_database: PostgresDatabase,
) -> None:
    with make_votes(postgres_database.url) as votes:
        with session(postgres_database, "SELECT FROM item FOR UPDATE"):
            cast = in_background(lambda: votes.cast(1, 7))
            eventually(lambda: waiting(postgres_database) == 1)
            postgres_database.psql(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            )
            failure = cast()
        assert isinstance(failure, hotcount.DeadlineError)
        assert "pg_cancel_backend" in str(failure)
        assert "statement_timeout" not in str(failure)
        assert int(votes.count(1)) == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_our_own_deadline_blames_no_setting(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    with (
        make_votes(postgres_database.url, strategy) as votes,
        session(postgres_database, "SELECT FROM item FOR UPDATE"),
    ):
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied") as caught:
            votes.cast(1, 7, timeout=0.3)
        assert "statement_timeout" not in str(caught.value)


@pytest.mark.mariadb_only("MySQL limits the time of a SELECT alone")
@pytest.mark.parametrize("strategy", [each for each in STRATEGIES if each != "batched"])
def test_max_statement_time_is_named_and_applied_nothing(
    mariadb_server: MariaDbServer, mariadb_database: str, strategy: str
) -> None:
    user = f"limited_{mariadb_database}"
    mariadb_server.execute(f"CREATE USER {user}@localhost WITH MAX_STATEMENT_TIME 0.2")
    mariadb_server.execute(f"GRANT ALL ON {mariadb_database}.* TO {user}@localhost")
    with make_votes(mariadb_server.url(mariadb_database, user=user), strategy) as votes:
        votes.cast(1, 7)
        with closing(mariadb_server.connect(mariadb_database)) as other, other.cursor() as cursor:
            cursor.execute("SELECT * FROM item, vote FOR UPDATE")
            with pytest.raises(hotcount.DeadlineError, match="max_statement_time, the") as caught:
                votes.cast(1, 7, -1)
            assert caught.value.code == "1969"
            assert "nothing was applied" in str(caught.value)
            other.rollback()
        assert int(votes.count(1, consistency="exact")) == 1
        assert votes.cast(1, 7, -1).previous == 1
        assert votes.reconcile(dry_run=True) == []


@pytest.mark.mariadb_only("MySQL limits the time of a SELECT alone")
def test_a_roles_max_statement_time_ends_no_batched_vote_that_waits_for_a_row(
    mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    user = f"limited_{mariadb_database}"
    mariadb_server.execute(f"CREATE USER {user}@localhost WITH MAX_STATEMENT_TIME 0.2")
    mariadb_server.execute(f"GRANT ALL ON {mariadb_database}.* TO {user}@localhost")
    with make_votes(mariadb_server.url(mariadb_database, user=user), "batched") as votes:
        votes.cast(1, 7)
        with closing(mariadb_server.connect(mariadb_database)) as other:
            with other.cursor() as cursor:
                cursor.execute("SELECT * FROM item, vote FOR UPDATE")
            with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
                votes.cast(1, 7, 2, timeout=0.5)
            cast = in_background(lambda: votes.cast(1, 7, -1))
            eventually(lambda: votes.stats()["held_votes_s"] > 3)
            other.rollback()
        assert cast().previous == 1
        assert int(votes.count(1, consistency="exact")) == -1
        assert votes.reconcile(dry_run=True) == []


# -- prepared statements ------------------------------------------------------


@pytest.fixture
def miserly_mariadb() -> Iterator[tuple[MariaDbServer, str]]:
    """A server with room for few prepared statements, and a database there."""
    server = new_server(config=("--max-prepared-stmt-count=12",))
    try:
        yield server, server.start().create_database()
    finally:
        server.remove()


def kept(server: MariaDbServer) -> int:
    return int(server.execute("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")[0][1])


def test_a_server_without_room_for_statements_costs_round_trips_only(
    miserly_mariadb: tuple[MariaDbServer, str],
) -> None:
    server, name = miserly_mariadb
    for strategy in STRATEGIES:
        # A database of its own each: a session of one does not know of those of another.
        database = hotcount.Database(server.url(name), timeout=20 + len(strategy) / 10)
        votes = hotcount.Votes(
            database,
            None,
            strategy,  # type: ignore[arg-type]
            item_table=f"{strategy}_item",
            vote_table=f"{strategy}_vote",
        )
        votes.create_tables()
        votes.add_items([1, 2, 3])
        for user in range(10):
            assert votes.cast(1 + user % 3, user).changed
            votes.count(1, consistency="exact")
        assert sum(int(votes.count(item, consistency="exact")) for item in (1, 2, 3)) == 10
        votes.flush()
        assert votes.reconcile(dry_run=True) == []
        assert kept(server) <= 12
        database.close()
        eventually(lambda: kept(server) == 0)


def test_room_that_others_have_taken_is_waited_for(
    miserly_mariadb: tuple[MariaDbServer, str],
) -> None:
    server, name = miserly_mariadb
    make_votes(server.url(name)).cast(1, 1)
    server.leave_database(name)
    database = hotcount.Database(server.url(name), timeout=30, idle_timeout=0.1)
    votes = hotcount.Votes(database, None, "naive")
    eventually(lambda: server.sessions(name) == [])
    with closing(server.connect(name)) as other, other.cursor() as cursor:
        for number in range(12):
            cursor.execute(f"PREPARE s{number} FROM 'SELECT {number}'")
        # A new session has nothing to give away.
        with pytest.raises(hotcount.UnavailableError, match="max_prepared_stmt_count") as caught:
            votes.cast(1, 3, timeout=2)
        assert caught.value.code == "1461"
        assert "nothing was applied" in str(caught.value)
        with pytest.raises(hotcount.UnavailableError, match="nothing was applied"):
            hotcount.Database(server.url(name), timeout=1)
        cast = in_background(lambda: votes.cast(1, 3))
        # The deadline may pass in the middle of a dial.
        with pytest.raises(
            (hotcount.UnavailableError, hotcount.DeadlineError), match="nothing was applied"
        ):
            votes.cast(1, 4, timeout=0.2)
        assert int(server.execute(f"SELECT SUM(val) FROM {name}.vote")[0][0]) == 1
    assert cast().changed
    database.close()


def test_statements_kept_prepared_in_postgres_are_bounded(
    postgres_database: PostgresDatabase,
) -> None:
    """A session that has 256 of them throws all away; what comes then is prepared anew."""
    role = f"logged_{postgres_database.schema}"
    postgres_database.psql(
        f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA {postgres_database.schema} TO {role}; "
        f"ALTER ROLE {role} SET log_statement = 'all'"
    )
    log = postgres_database.server.folder / "server.log"
    before = log.read_text().count("DEALLOCATE ALL")
    with hotcount.Database(postgres_database.url_for(role), timeout=20) as database:
        everybodys = []
        for number in range(45):
            votes = hotcount.Votes(
                database, None, "naive", item_table=f"i{number}", vote_table=f"v{number}"
            )
            votes.create_tables()
            votes.add_items([1])
            assert votes.cast(1, 7).changed
            assert int(votes.count(1)) == 1
            everybodys.append(votes)
        for votes in everybodys:
            assert not votes.cast(1, 7).changed
    assert log.read_text().count("DEALLOCATE ALL") > before, "too few statements to tell"
