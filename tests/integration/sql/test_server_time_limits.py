"""Limits of a server, a role or a user: on a statement's time, and on prepared statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mariadb_votes import MariaDbSide
from tests.support.mysql_server import new_server
from tests.support.postgres_votes import in_background, session, waiting
from tests.support.servers import PostgresDatabase
from tests.support.sql_votes import STRATEGIES, make_votes

pytestmark = pytest.mark.server


@pytest.fixture
def limited_url(postgres: PostgresDatabase) -> str:
    """Of a role whose statements may take a second."""
    return postgres.url_for(postgres.role("statement_timeout = '1s'"))


@pytest.mark.parametrize("strategy", ["naive", "slotted"])
def test_statement_timeout_is_named_and_applied_nothing(
    postgres: PostgresDatabase, limited_url: str, strategy: str
) -> None:
    with make_votes(limited_url, strategy) as votes:
        votes.cast(1, 7)
        with session(postgres, "SELECT FROM item, vote FOR UPDATE"):
            with pytest.raises(hotcount.DeadlineError, match="statement_timeout") as caught:
                votes.cast(1, 7, -1)
            assert caught.value.code == "57014"
            assert "nothing was applied" in str(caught.value)
        assert int(votes.count(1, consistency="exact")) == 1
        assert votes.cast(1, 7, -1).previous == 1
        assert votes.reconcile(dry_run=True) == []


def test_statement_timeout_ends_no_batched_vote_that_waits_for_a_row(
    postgres: PostgresDatabase, limited_url: str
) -> None:
    """It ends the statement that waits; the next one waits again, until the vote's own deadline."""
    with make_votes(limited_url, "batched") as votes:
        votes.cast(1, 7)
        with session(postgres, "SELECT FROM item, vote FOR UPDATE"):
            with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
                votes.cast(1, 7, 2, timeout=0.5)
            cast = in_background(lambda: votes.cast(1, 7, -1))
            eventually(lambda: votes.stats()["held_votes_s"] > 3)
        assert cast().previous == 1
        assert int(votes.count(1, consistency="exact")) == -1
        assert votes.reconcile(dry_run=True) == []


def test_a_statement_that_somebody_cancelled_is_no_timeout(postgres: PostgresDatabase) -> None:
    with make_votes(postgres.url) as votes:
        with session(postgres, "SELECT FROM item FOR UPDATE"):
            cast = in_background(lambda: votes.cast(1, 7))
            eventually(lambda: waiting(postgres) == 1)
            postgres.psql(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            )
            failure = cast()
        assert isinstance(failure, hotcount.DeadlineError)
        assert "pg_cancel_backend" in str(failure)
        assert "statement_timeout" not in str(failure)
        assert int(votes.count(1)) == 0


def test_our_own_deadline_blames_no_setting(postgres: PostgresDatabase, strategy: str) -> None:
    with (
        make_votes(postgres.url, strategy) as votes,
        session(postgres, "SELECT FROM item FOR UPDATE"),
    ):
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied") as caught:
            votes.cast(1, 7, timeout=0.3)
        assert "statement_timeout" not in str(caught.value)


@pytest.mark.mariadb_only("MySQL limits the time of a SELECT alone")
@pytest.mark.parametrize("strategy", ["naive", "slotted"])
def test_max_statement_time_is_named_and_applied_nothing(maria: MariaDbSide, strategy: str) -> None:
    user = maria.account("WITH MAX_STATEMENT_TIME 0.2")
    with make_votes(maria.server.url(maria.database, user=user), strategy) as votes:
        votes.cast(1, 7)
        with maria.held("SELECT * FROM item, vote FOR UPDATE"):
            with pytest.raises(hotcount.DeadlineError, match="max_statement_time, the") as caught:
                votes.cast(1, 7, -1)
            assert caught.value.code == "1969"
            assert "nothing was applied" in str(caught.value)
        assert int(votes.count(1, consistency="exact")) == 1
        assert votes.cast(1, 7, -1).previous == 1
        assert votes.reconcile(dry_run=True) == []


@pytest.mark.mariadb_only("MySQL limits the time of a SELECT alone")
def test_a_roles_max_statement_time_ends_no_batched_vote_that_waits_for_a_row(
    maria: MariaDbSide,
) -> None:
    user = maria.account("WITH MAX_STATEMENT_TIME 0.2")
    with make_votes(maria.server.url(maria.database, user=user), "batched") as votes:
        votes.cast(1, 7)
        with maria.held("SELECT * FROM item, vote FOR UPDATE"):
            with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
                votes.cast(1, 7, 2, timeout=0.5)
            cast = in_background(lambda: votes.cast(1, 7, -1))
            eventually(lambda: votes.stats()["held_votes_s"] > 3)
        assert cast().previous == 1
        assert int(votes.count(1, consistency="exact")) == -1
        assert votes.reconcile(dry_run=True) == []


@pytest.fixture
def miserly_mariadb() -> Iterator[tuple[MariaDbServer, str]]:
    """A server with room for few prepared statements, and a database there."""
    with new_server(config=("--max-prepared-stmt-count=12",)).started() as server:
        yield server, server.create_database()


def kept(server: MariaDbServer) -> int:
    return int(server.execute("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")[0][1])


def test_a_server_without_room_for_statements_costs_round_trips_only(
    miserly_mariadb: tuple[MariaDbServer, str],
) -> None:
    server, name = miserly_mariadb
    for strategy in STRATEGIES:
        # A database of its own each: a session of one does not know of those of another.
        database = hotcount.Database(server.url(name), timeout=20 + len(strategy) / 10)
        own = {"item_table": f"{strategy}_item", "vote_table": f"{strategy}_vote"}
        votes = hotcount.Votes(database, None, strategy, **own)  # type: ignore[arg-type]
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


def test_statements_kept_prepared_in_postgres_are_bounded(postgres: PostgresDatabase) -> None:
    """A session that has 256 of them throws all away; what comes then is prepared anew."""
    role = postgres.role("log_statement = 'all'")
    log = postgres.server.folder / "server.log"
    before = log.read_text().count("DEALLOCATE ALL")
    with hotcount.Database(postgres.url_for(role), timeout=20) as database:
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
