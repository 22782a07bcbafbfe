"""A server, a role or a pooler without room for one more connection: calls wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import hotcount
import psycopg
import pymysql  # type: ignore[import-untyped]
import pytest

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.mariadb_votes import MariaDbSide
from tests.support.mysql_server import new_server
from tests.support.pgbouncer_server import PgBouncer
from tests.support.postgres_votes import in_background
from tests.support.servers import PostgresDatabase, PostgresServer
from tests.support.sql_votes import make_votes, open_votes
from tests.support.together import together

pytestmark = pytest.mark.server

ROOM = 2


@dataclass
class Narrow:
    """A database whose user may have ROOM connections."""

    url: str
    code: str  # What the server calls its refusal.
    connect: Callable[[], Any]  # One of them, held by another client.


@pytest.fixture(params=["postgresql", "mariadb"])
def narrow(request: pytest.FixtureRequest) -> Narrow:
    if request.param == "postgresql":
        postgres: PostgresDatabase = request.getfixturevalue("postgres")
        role = postgres.role(options=f"CONNECTION LIMIT {ROOM}")
        own: dict[str, Any] = {
            "host": str(postgres.server.folder),
            "user": role,
            "dbname": "postgres",
        }
        return Narrow(postgres.url_for(role), "53300", lambda: psycopg.connect(**own))
    maria: MariaDbSide = request.getfixturevalue("maria")
    user = maria.account(f"WITH MAX_USER_CONNECTIONS {ROOM}")
    url = maria.server.url(maria.database, user=user)
    return Narrow(url, "1226", lambda: maria.server.connect(maria.database, user=user))


def prepare(url: str, strategy: str = "naive") -> None:
    make_votes(url, strategy).close()


def is_taken(connect: Callable[[], Any], others: ExitStack) -> bool:
    try:
        others.enter_context(closing(connect()))
    except (psycopg.OperationalError, pymysql.err.OperationalError):
        return False
    return True


@contextmanager
def full(narrow: Narrow, strategy: str = "naive") -> Iterator[tuple[hotcount.Votes, ExitStack]]:
    """Votes whose room others have taken, when what we had of it has gone idle."""
    prepare(narrow.url, strategy)
    with open_votes(narrow.url, strategy, idle_timeout=0.1) as votes, ExitStack() as others:
        for _ in range(ROOM):
            eventually(lambda: is_taken(narrow.connect, others))
        yield votes, others


def test_more_callers_than_connections_take_turns(narrow: Narrow, strategy: str) -> None:
    """Each pool may have more connections than the server gives the process."""
    with make_votes(narrow.url, strategy) as votes:

        def vote(user: int) -> None:
            for item in (1, 2, 3):
                assert votes.cast(item, user).changed
                votes.count(item, consistency="exact")

        together(vote, 12)
        assert [int(votes.count(item, consistency="exact")) for item in (1, 2, 3)] == [12] * 3
        assert votes.reconcile(dry_run=True) == []


def test_one_connection_is_enough_to_read_and_write(narrow: Narrow) -> None:
    prepare(narrow.url)
    with closing(narrow.connect()), open_votes(narrow.url) as votes:
        for user in range(5):
            votes.cast(1, user)
            assert int(votes.count(1)) == user + 1


def test_a_call_goes_on_when_another_client_makes_room(narrow: Narrow, strategy: str) -> None:
    with full(narrow, strategy) as (votes, others):
        cast = in_background(lambda: votes.cast(1, 7))
        with pytest.raises(hotcount.DeadlineError, match="no connection came free"):
            votes.cast(2, 7, timeout=0.3)
        others.close()
        assert cast().changed
        assert int(votes.count(1)) == 1


def test_at_the_deadline_the_error_names_the_cause(narrow: Narrow, strategy: str) -> None:
    with full(narrow, strategy) as (votes, others):
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied") as caught:
            votes.cast(1, 7, timeout=0.5)
        assert time.monotonic() - started >= 0.4, "it waited"
        assert caught.value.code == narrow.code
        with pytest.raises(hotcount.DeadlineError) as caught:
            votes.count(1, timeout=0.2)
        assert caught.value.code == narrow.code
        others.close()
        assert int(votes.count(1)) == 0


def test_those_behind_a_leader_without_time_are_written_later(narrow: Narrow) -> None:
    with full(narrow, "batched") as (votes, others):
        leads = in_background(lambda: votes.cast(1, 1, timeout=1))
        follow = [in_background(partial(votes.cast, 1, user)) for user in range(2, 6)]
        assert leads().code == narrow.code
        others.close()
        assert all(each().changed for each in follow)
        assert int(votes.count(1, consistency="exact")) == 4


def test_a_database_is_opened_when_there_is_room(narrow: Narrow) -> None:
    with full(narrow) as (_, others):
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied") as caught:
            hotcount.Database(narrow.url, timeout=1)
        assert caught.value.code == narrow.code
        opened = in_background(lambda: hotcount.Database(narrow.url, timeout=20))
        with pytest.raises(hotcount.DeadlineError):
            hotcount.Database(narrow.url, timeout=0.2)
        others.close()
        with opened() as database:
            assert database.ping()


def test_a_full_postgres_is_waited_for() -> None:
    # Three, and the superuser's own.
    room = "max_connections=5", "superuser_reserved_connections=2"
    with PostgresServer().started(*room) as server:
        server.psql("CREATE ROLE app LOGIN; GRANT ALL ON SCHEMA public TO app")
        with make_votes(server.url(user="app")) as votes:
            together(lambda user: votes.cast(1, user), 12)
            assert int(votes.count(1)) == 12


def test_a_full_mariadb_is_waited_for() -> None:
    config = "--max-connections=10", "--max-user-connections=50"
    with new_server(config=config).started() as server:
        maria = MariaDbSide(server, server.create_database())
        user = maria.account()
        url = server.url(maria.database, user=user)
        prepare(url)
        with open_votes(url, max_writers=20) as votes:
            together(lambda user: votes.cast(1, user), 20)
            assert int(votes.count(1)) == 20
        with ExitStack() as others:
            eventually(
                lambda: not is_taken(lambda: server.connect(maria.database, user=user), others)
            )
            with pytest.raises(hotcount.DeadlineError, match="Too many connections") as caught:
                hotcount.Database(url, timeout=0.3)
        assert caught.value.code == "1040"
        server.execute("SET GLOBAL max_user_connections = 2")
        with open_votes(url) as votes:
            together(lambda user: votes.cast(2, user), 12)
            assert int(votes.count(2)) == 12


def test_a_full_pgbouncer_is_waited_for(postgres_server: PostgresServer) -> None:
    postgres_server.psql("DROP TABLE IF EXISTS pgb_vote, pgb_item CASCADE")
    names = {"item_table": "pgb_item", "vote_table": "pgb_vote"}
    with PgBouncer(postgres_server, config="max_client_conn = 3").started() as pooler:
        with make_votes(pooler.url(), **names) as votes:
            together(lambda user: votes.cast(1, user), 12)
            assert int(votes.count(1)) == 12
        with ExitStack() as others:
            eventually(lambda: not is_taken(pooler.connect, others))
            with pytest.raises(hotcount.DeadlineError, match="no more connections allowed"):
                hotcount.Database(pooler.url(), timeout=0.3)


def test_a_pgbouncer_before_a_full_server_is_waited_for(
    postgres_server: PostgresServer, strategy: str
) -> None:
    role = f"pooled_{strategy}"
    postgres_server.psql(
        f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1; GRANT ALL ON SCHEMA public TO {role}"
    )
    names = {"item_table": f"{role}_item", "vote_table": f"{role}_vote"}
    # It says so after a second, and tries again as often.
    made = PgBouncer(postgres_server, config="query_wait_timeout = 1\nserver_login_retry = 1")
    made.add_role(role)
    # A statement that is a transaction of its own may be in the pooler's queue then, which says
    # nothing of it.
    known = "nothing was applied" + ("" if strategy == "naive" else "|may or may not be applied")
    with (
        made.started() as pooler,
        make_votes(pooler.url(user=role), strategy, timeout=30, **names) as votes,
    ):
        # Another client's transaction has the one session.
        with psycopg.connect(
            host=str(pooler.folder), port=6432, user=role, dbname="postgres"
        ) as other:
            other.execute("SELECT 1", prepare=False)
            cast = in_background(lambda: votes.cast(1, 7))
            with pytest.raises(hotcount.HotcountError, match=known):
                votes.cast(1, 8, timeout=2.5)
        assert cast().changed
        assert int(votes.count(1, consistency="exact")) == 1


def test_waiting_callers_dial_one_at_a_time(narrow: Narrow) -> None:
    """Or a full server would have a storm of logins as well."""
    with full(narrow) as (votes, _):

        def cast(user: int) -> str:
            with pytest.raises(hotcount.DeadlineError) as caught:
                votes.cast(1, user, timeout=2)
            return str(caught.value)

        said = together(cast, 12)
    attempts = max(int(each.split("(")[-1].split()[0]) for each in said)
    # Twelve at first, then one with pauses that grow to half a second.
    assert 12 <= attempts <= 40
    fired("full server")
