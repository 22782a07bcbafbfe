"""Idle connections: closed after idle_timeout, replaced if they were ended."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.journal_side import JournalSide
from tests.support.mariadb_votes import MariaDbSide
from tests.support.mysql_server import new_server
from tests.support.postgres_votes import in_background
from tests.support.servers import PostgresDatabase
from tests.support.sql_votes import make_votes
from tests.support.together import in_child, together

pytestmark = pytest.mark.server


def use_many(votes: hotcount.Votes, first: int = 0) -> None:
    def use(user: int) -> None:
        votes.cast(1, user)
        votes.count(1, consistency="exact")

    together(lambda index: use(first + index), 8)


def test_idle_connections_are_closed_and_opened_again(side: JournalSide, strategy: str) -> None:
    with make_votes(side.own_url, strategy, idle_timeout=0.2) as votes:
        use_many(votes)
        eventually(lambda: not side.sessions())
        use_many(votes, 100)  # With no session left, it opens some.
        assert int(votes.count(1, consistency="exact")) == 16
        eventually(lambda: not side.sessions())


def test_without_an_idle_timeout_connections_stay(side: JournalSide) -> None:
    with make_votes(side.own_url, idle_timeout=None) as stay:
        stay.cast(1, 1)
        kept = len(side.sessions())
        with make_votes(side.own_url, idle_timeout=0.1) as go:
            go.cast(1, 2)
            eventually(lambda: len(side.sessions()) == kept)
            time.sleep(0.3)
            assert len(side.sessions()) == kept


def test_a_process_of_one_thread_has_few_connections(side: JournalSide, strategy: str) -> None:
    """PostgreSQL's sessions read and write; MariaDB's and MySQL's are made for one of the two."""
    with make_votes(side.own_url, strategy) as votes:
        for user in range(50):
            votes.cast(1, user)
            votes.count(1)
            votes.count(1, consistency="exact")
        votes.flush()
        few = 1 if side.dialect == "postgresql" else 2
        # What counts beside the voters has one of its own.
        assert len(side.sessions()) <= (few if strategy == "naive" else 3)


def test_folds_that_publish_need_one_connection_beside_those_of_the_process(
    side: JournalSide,
) -> None:
    # The copies' name is looked up again and again.
    options: dict[str, Any] = {"fold_interval": 0.01, "max_age": 0.01}
    with hotcount.Votes(hotcount.Database(side.own_url), hotcount.Memory(), **options) as votes:
        votes.create_tables()
        votes.add_items([1])
        users = iter(range(100_000))

        def has_folded() -> bool:
            for user in (next(users), next(users)):
                votes.cast(1, user)
                votes.count(1, consistency="exact")
            assert len(side.sessions()) <= 3
            return bool(votes.stats()["folds"] >= 12)

        eventually(has_folded, 30)


def test_a_forked_child_closes_its_own(side: JournalSide) -> None:
    with make_votes(side.own_url, idle_timeout=0.3) as votes:
        use_many(votes)

        def child() -> int:
            use_many(votes, 100)
            eventually(lambda: not side.sessions())
            votes.cast(2, 1)
            return len(side.sessions())

        assert in_child(child) >= 1
        assert votes.cast(2, 2).changed
        assert int(votes.count(1, consistency="exact")) == 16


def test_a_database_may_be_closed_while_connections_expire(side: JournalSide) -> None:
    with make_votes(side.own_url):
        for number in range(60):
            with hotcount.Database(side.own_url, timeout=20, idle_timeout=0.001) as database:
                database.ping()
                time.sleep(0.0005 * (number % 4))
    eventually(lambda: not side.sessions())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"idle_timeout": 0}, "idle_timeout"),
        ({"idle_timeout": -1}, "idle_timeout"),
    ],
)
def test_a_limit_that_means_nothing_is_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=said):
        hotcount.Database("sqlite:///:memory:", **options)


async def vote_in_a_loop(url: str, strategy: Any, user: int) -> None:
    votes = hotcount.aio.Votes(hotcount.aio.Database(url, timeout=20), None, strategy)
    assert (await votes.cast(1, user)).changed


def test_sessions_that_were_ended_while_idle_are_replaced(side: JournalSide, strategy: str) -> None:
    def no_session_is_left() -> bool:
        # Each time anew: a fold that was due opens another one.
        side.end_sessions()
        return not side.sessions()

    with make_votes(side.own_url, strategy) as votes:
        counter = hotcount.SlottedCounter(hotcount.Database(side.own_url, timeout=20))
        counter.create_table()
        for round in range(3):
            use_many(votes, 100 * round)
            counter.add("k")
            assert counter.get("k") == round + 1
            asyncio.run(vote_in_a_loop(side.own_url, strategy, 1000 + round))
            eventually(no_session_is_left)
        assert int(votes.count(1, consistency="exact")) == 24 + 3
        assert votes.reconcile(dry_run=True) == []


def test_idle_session_timeout_fails_no_call(postgres: PostgresDatabase, strategy: str) -> None:
    role = postgres.role("idle_session_timeout = '1s'")
    sessions = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'"
    with make_votes(postgres.url_for(role), strategy) as votes:
        for round in range(3):
            use_many(votes, 100 * round)
            eventually(lambda: postgres.psql(sessions) == "0")
        assert int(votes.count(1, consistency="exact")) == 24


def test_a_vote_that_crosses_the_end_of_an_idle_session_is_cast(
    postgres: PostgresDatabase, strategy: str
) -> None:
    """What the server says to an idle session was said before it had heard of the vote."""
    role = postgres.role("idle_session_timeout = '1s'", f"search_path = {postgres.schema}")
    sessions = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'"
    with FaultProxy(postgres.server.folder / ".s.PGSQL.5432") as proxy:
        url = f"postgresql://{role}@127.0.0.1:{proxy.port}/postgres"
        with make_votes(url, strategy) as votes:
            votes.cast(1, 1)
            answered = proxy.passed[SERVER_TO_CLIENT]
            proxy.hold(CLIENT_TO_SERVER)
            cast = in_background(lambda: votes.cast(1, 7))
            eventually(lambda: proxy.fired > 0)
            eventually(lambda: postgres.psql(sessions) == "0")
            # Else the proxy might meet the closed session before it has passed its last words on.
            eventually(lambda: proxy.passed[SERVER_TO_CLIENT] > answered)
            proxy.heal()
            assert cast().changed
            assert int(votes.count(1, consistency="exact")) == 2


def test_wait_timeout_fails_no_call(strategy: str) -> None:
    with new_server(config=("--wait-timeout=1",)).started() as server:
        database = server.create_database()
        with make_votes(server.url(database), strategy) as votes:
            for round in range(2):
                use_many(votes, 100 * round)
                eventually(lambda: server.sessions(database) == [])
            assert int(votes.count(1, consistency="exact")) == 16


@pytest.fixture
def far(request: pytest.FixtureRequest, side: JournalSide) -> Iterator[tuple[FaultProxy, str]]:
    """A way to the database over TCP, and its URL there."""
    if side.dialect == "mysql":
        maria: MariaDbSide = request.getfixturevalue("maria")
        socket, login, place = maria.server.socket, "mariadb://root", maria.database
    else:
        postgres: PostgresDatabase = request.getfixturevalue("postgres")
        socket = postgres.server.folder / ".s.PGSQL.5432"
        schema = postgres.server.create_database().schema
        login, place = "postgresql://hotcount", f"postgres?options=-csearch_path%3D{schema}"
    with FaultProxy(socket) as proxy:
        yield proxy, f"{login}@127.0.0.1:{proxy.port}/{place}"


def test_connections_that_a_firewall_forgot_are_replaced(
    far: tuple[FaultProxy, str], strategy: str
) -> None:
    proxy, url = far
    with make_votes(url, strategy, timeout=8) as votes:
        use_many(votes)
        proxy.forget()
        time.sleep(2.1)  # For so long they are believed in.
        assert votes.cast(1, 100).changed
        assert int(votes.count(1, consistency="exact")) == 9
        use_many(votes, 200)
        assert int(votes.count(1, consistency="exact")) == 17
        assert proxy.fired > 0, "nothing was swallowed"


def options_of(port: int) -> list[dict[str, int]]:
    """Of this process's TCP connections to the port."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as end:
                if end.family != socket.AF_INET or end.getpeername()[1] != port:
                    continue
                found.append(
                    {
                        "keepalive": end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                        "idle": end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                        "interval": end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                        "count": end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                        "user": end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                    }
                )
        except OSError:
            continue
    return found


def test_a_connection_has_tcp_limits(far: tuple[FaultProxy, str]) -> None:
    proxy, url = far
    every = {"keepalive": 1, "idle": 15, "interval": 5, "count": 3}
    with hotcount.Database(url) as database:
        database.ping()
        ours = options_of(proxy.port)
        assert ours
        assert all(each == {**every, "user": 10_000} for each in ours)


def test_a_postgres_url_says_its_own_tcp_limits(
    far: tuple[FaultProxy, str], side: JournalSide
) -> None:
    proxy, url = far
    if side.dialect == "mysql":
        with pytest.raises(hotcount.ConfigError, match="keepalives_idle"):
            hotcount.Database(url + "?keepalives_idle=77")
        return
    with hotcount.Database(url + "&keepalives_idle=77&tcp_user_timeout=3000") as database:
        database.ping()
        (found,) = [each for each in options_of(proxy.port) if each["idle"] == 77]
        assert (found["user"], found["interval"]) == (3000, 5)
