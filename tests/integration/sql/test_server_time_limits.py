"""Limits of a server, a role or a user: on a statement's time, and on prepared statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import Any, NamedTuple

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


class Limited(NamedTuple):
    """A user whose statements may not take long, and how the server says so."""

    url: str
    hold_rows: Callable[[], AbstractContextManager[Any]]
    names: str
    code: str


ON_MARIADB = pytest.mark.mariadb_only("MySQL limits the time of a SELECT alone")


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=ON_MARIADB)])
def limited(request: pytest.FixtureRequest) -> Limited:
    if request.param == "postgresql":
        postgres: PostgresDatabase = request.getfixturevalue("postgres")
        url = postgres.url_for(postgres.role("statement_timeout = '1s'"))
        hold = partial(session, postgres, "SELECT FROM item, vote FOR UPDATE")
        return Limited(url, hold, "statement_timeout", "57014")
    maria: MariaDbSide = request.getfixturevalue("maria")
    url = maria.server.url(maria.database, user=maria.account("WITH MAX_STATEMENT_TIME 0.2"))
    hold = partial(maria.held, "SELECT * FROM item, vote FOR UPDATE")
    return Limited(url, hold, "max_statement_time, the", "1969")


@pytest.mark.parametrize("strategy", ["naive", "slotted"])
def test_the_time_limit_of_a_statement_is_named_and_applied_nothing(
    limited: Limited, strategy: str
) -> None:
    with make_votes(limited.url, strategy) as votes:
        votes.cast(1, 7)
        with limited.hold_rows():
            with pytest.raises(hotcount.DeadlineError, match=limited.names) as caught:
                votes.cast(1, 7, -1)
            assert caught.value.code == limited.code
            assert "nothing was applied" in str(caught.value)
        assert int(votes.count(1, consistency="exact")) == 1
        assert votes.cast(1, 7, -1).previous == 1
        assert votes.reconcile(dry_run=True) == []


def test_the_time_limit_of_a_statement_ends_no_batched_vote_that_waits_for_a_row(
    limited: Limited,
) -> None:
    """It ends the statement that waits; the next one waits again, until the vote's own deadline."""
    with make_votes(limited.url, "batched") as votes:
        votes.cast(1, 7)
        with limited.hold_rows():
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
        # A slotted vote is one statement with its COMMIT: a busy server may not answer the cancel
        # within 200 ms, and the outcome is unknown.
        with pytest.raises((hotcount.DeadlineError, hotcount.OutcomeUnknownError)) as caught:
            votes.cast(1, 7, timeout=0.3)
        is_known = isinstance(caught.value, hotcount.DeadlineError)
        assert ("nothing was applied" in str(caught.value)) == is_known
        assert is_known or strategy == "slotted"
        assert "statement_timeout" not in str(caught.value)


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
