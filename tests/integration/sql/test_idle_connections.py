"""Connections that nobody uses: closed after idle_timeout, replaced where somebody ended them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.postgres_votes import STRATEGIES, in_background
from tests.support.servers import PostgresDatabase
from tests.support.together import in_child, together

pytestmark = pytest.mark.server


@dataclass
class Watched:
    """A database whose sessions the test counts and ends."""

    url: str
    sessions: Callable[[], int]
    end_sessions: Callable[[], object]


@pytest.fixture(params=["postgresql", "mariadb"])
def watched(request: pytest.FixtureRequest) -> Watched:
    if request.param == "postgresql":
        own: PostgresDatabase = request.getfixturevalue("postgres_database")
        name = own.schema
        ours = f"FROM pg_stat_activity WHERE application_name = '{name}'"
        return Watched(
            own.url + f"&application_name={name}",
            lambda: int(own.psql(f"SELECT count(*) {ours}")),
            lambda: own.psql(f"SELECT pg_terminate_backend(pid) {ours}"),
        )
    server: MariaDbServer = request.getfixturevalue("mariadb_server")
    database: str = request.getfixturevalue("mariadb_database")
    return Watched(
        server.url(database),
        lambda: len(server.sessions(database)),
        lambda: server.leave_database(database),
    )


def make_votes(url: str, strategy: str = "naive", **options: Any) -> hotcount.Votes:
    options = {"timeout": 20, **options}
    votes = hotcount.Votes(hotcount.Database(url, **options), None, strategy)  # type: ignore[arg-type]
    votes.create_tables()
    votes.add_items([1, 2, 3])
    return votes


def use_many(votes: hotcount.Votes, first: int = 0) -> None:
    def use(user: int) -> None:
        votes.cast(1, user)
        votes.count(1, consistency="exact")

    together(lambda index: use(first + index), 8)


# -- closed by us -------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_idle_connections_are_closed_and_opened_again(watched: Watched, strategy: str) -> None:
    with make_votes(watched.url, strategy, idle_timeout=0.2) as votes:
        use_many(votes)
        eventually(lambda: watched.sessions() == 0)
        use_many(votes, 100)  # With no session left, it opens some.
        assert int(votes.count(1, consistency="exact")) == 16
        eventually(lambda: watched.sessions() == 0)


def test_without_an_idle_timeout_connections_stay(watched: Watched) -> None:
    with make_votes(watched.url, idle_timeout=None) as stay:
        stay.cast(1, 1)
        kept = watched.sessions()
        with make_votes(watched.url, idle_timeout=0.1) as go:
            go.cast(1, 2)
            eventually(lambda: watched.sessions() == kept)
            time.sleep(0.3)
            assert watched.sessions() == kept


def test_a_used_connection_stays_open_and_idle_ones_are_closed(watched: Watched) -> None:
    with make_votes(watched.url, idle_timeout=0.5) as votes:
        use_many(votes)

        def one_voter_is_left() -> bool:
            votes.cast(1, 1)
            votes.count(1)
            return watched.sessions() <= 2

        eventually(one_voter_is_left)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_process_of_one_thread_has_few_connections(watched: Watched, strategy: str) -> None:
    """PostgreSQL's sessions read and write; MariaDB's and MySQL's are made for one of the two."""
    with make_votes(watched.url, strategy) as votes:
        for user in range(50):
            votes.cast(1, user)
            votes.count(1)
            votes.count(1, consistency="exact")
        votes.flush()
        few = 1 if watched.url.startswith("postgresql") else 2
        # What counts beside the voters has one of its own.
        assert watched.sessions() <= (few if strategy == "naive" else 3)


def test_folds_that_publish_need_one_connection_beside_those_of_the_process(
    watched: Watched,
) -> None:
    # The copies' name is looked up again and again.
    options: dict[str, Any] = {"fold_interval": 0.01, "max_age": 0.01}
    with hotcount.Votes(hotcount.Database(watched.url), hotcount.Memory(), **options) as votes:
        votes.create_tables()
        votes.add_items([1])
        users = iter(range(100_000))

        def has_folded() -> bool:
            for user in (next(users), next(users)):
                votes.cast(1, user)
                votes.count(1, consistency="exact")
            assert watched.sessions() <= 3
            return bool(votes.stats()["folds"] >= 12)

        eventually(has_folded, 30)


THREADS = """
import os, sys, time, hotcount
def threads():
    return len(os.listdir("/proc/self/task"))
before = threads()
votes = [hotcount.Votes(hotcount.Database(sys.argv[1], timeout=20 + number, idle_timeout=0.1),
         None, "naive") for number in range(3)]
for each in votes:
    each.cast(1, 7)
    each.count(1)
print(threads() - before)
"""


def test_all_pools_of_a_process_share_one_thread(watched: Watched) -> None:
    with make_votes(watched.url):
        done = subprocess.run(
            [sys.executable, "-c", THREADS, watched.url], capture_output=True, text=True
        )
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_a_forked_child_closes_its_own(watched: Watched) -> None:
    with make_votes(watched.url, idle_timeout=0.3) as votes:
        use_many(votes)

        def child() -> int:
            use_many(votes, 100)
            eventually(lambda: watched.sessions() == 0)
            votes.cast(2, 1)
            return watched.sessions()

        assert in_child(child) >= 1
        assert votes.cast(2, 2).changed
        assert int(votes.count(1, consistency="exact")) == 16


def test_a_database_may_be_closed_while_connections_expire(watched: Watched) -> None:
    with make_votes(watched.url):
        for number in range(60):
            with hotcount.Database(watched.url, timeout=20, idle_timeout=0.001) as database:
                database.ping()
                time.sleep(0.0005 * (number % 4))
    eventually(lambda: watched.sessions() == 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"idle_timeout": 0}, "idle_timeout"),
        ({"idle_timeout": -1}, "idle_timeout"),
        ({"tcp_user_timeout": 0}, "tcp_user_timeout"),
        ({"tcp_user_timeout": 100_000}, "tcp_user_timeout"),
    ],
)
def test_a_limit_that_means_nothing_is_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=said):
        hotcount.Database("sqlite:///:memory:", **options)


# -- ended by others ------------------------------------------------------------


def no_session_is_left(watched: Watched) -> bool:
    # Each time anew: a fold that was due opens another one.
    watched.end_sessions()
    return watched.sessions() == 0


def ended_sessions_cost_nothing(votes: hotcount.Votes, watched: Watched) -> None:
    counter = hotcount.SlottedCounter(hotcount.Database(watched.url, timeout=20))
    counter.create_table()
    for round in range(3):
        use_many(votes, 100 * round)
        counter.add("k")
        assert counter.get("k") == round + 1
        asyncio.run(vote_in_a_loop(watched.url, 1000 + round))
        eventually(lambda: no_session_is_left(watched))
    assert int(votes.count(1, consistency="exact")) == 24 + 3
    assert votes.reconcile(dry_run=True) == []


async def vote_in_a_loop(url: str, user: int) -> None:
    votes = hotcount.aio.Votes(hotcount.aio.Database(url, timeout=20), None, "batched")
    assert (await votes.cast(1, user)).changed


def test_sessions_that_were_ended_while_idle_are_replaced(watched: Watched) -> None:
    with make_votes(watched.url, "batched") as votes:
        ended_sessions_cost_nothing(votes, watched)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_idle_session_timeout_fails_no_call(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    role = f"idle_{postgres_database.schema}"
    postgres_database.psql(
        f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA {postgres_database.schema} TO {role}; "
        f"ALTER ROLE {role} SET idle_session_timeout = '1s'"
    )
    sessions = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'"
    with make_votes(postgres_database.url_for(role), strategy) as votes:
        for round in range(3):
            use_many(votes, 100 * round)
            eventually(lambda: postgres_database.psql(sessions) == "0")
        assert int(votes.count(1, consistency="exact")) == 24


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_vote_that_crosses_the_end_of_an_idle_session_is_cast(
    postgres_database: PostgresDatabase, strategy: str
) -> None:
    """What the server says to an idle session was said before it had heard of the vote."""
    server, schema = postgres_database.server, postgres_database.schema
    role = f"idle_{schema}"
    postgres_database.psql(
        f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA {schema} TO {role}; "
        f"ALTER ROLE {role} SET idle_session_timeout = '1s'; "
        f"ALTER ROLE {role} SET search_path = {schema}"
    )
    sessions = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'"
    with FaultProxy(server.folder / ".s.PGSQL.5432") as proxy:
        url = f"postgresql://{role}@127.0.0.1:{proxy.port}/postgres"
        with make_votes(url, strategy) as votes:
            votes.cast(1, 1)
            answered = proxy.passed[SERVER_TO_CLIENT]
            proxy.hold(CLIENT_TO_SERVER)
            cast = in_background(lambda: votes.cast(1, 7))
            eventually(lambda: proxy.fired > 0)
            eventually(lambda: postgres_database.psql(sessions) == "0")
            # Else the proxy might meet the closed session before it has passed its last words on.
            eventually(lambda: proxy.passed[SERVER_TO_CLIENT] > answered)
            proxy.heal()
            assert cast().changed
            assert int(votes.count(1, consistency="exact")) == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_wait_timeout_fails_no_call(strategy: str) -> None:
    server = new_server(config=("--wait-timeout=1",))
    try:
        database = server.start().create_database()
        with make_votes(server.url(database), strategy) as votes:
            for round in range(2):
                use_many(votes, 100 * round)
                eventually(lambda: server.sessions(database) == [])
            assert int(votes.count(1, consistency="exact")) == 16
    finally:
        server.remove()


# -- forgotten on the way ---------------------------------------------------------


@pytest.fixture
def far(request: pytest.FixtureRequest, watched: Watched) -> Iterator[tuple[FaultProxy, str]]:
    """A way to the database over TCP, and its URL there."""
    if watched.url.startswith("mariadb"):
        server: MariaDbServer = request.getfixturevalue("mariadb_server")
        proxy = FaultProxy(server.socket)
        name = request.getfixturevalue("mariadb_database")
        url = f"mariadb://root@127.0.0.1:{proxy.port}/{name}"
    else:
        own: PostgresDatabase = request.getfixturevalue("postgres_database")
        proxy = FaultProxy(own.server.folder / ".s.PGSQL.5432")
        url = (
            f"postgresql://{own.server.superuser}@127.0.0.1:{proxy.port}/postgres"
            f"?options=-csearch_path%3D{own.schema}"
        )
    with proxy:
        yield proxy, url


@pytest.mark.parametrize("strategy", STRATEGIES)
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


def test_tcp_limits_are_those_that_the_options_say(far: tuple[FaultProxy, str]) -> None:
    proxy, url = far
    every = {"keepalive": 1, "idle": 15, "interval": 5, "count": 3}
    with hotcount.Database(url) as database:
        database.ping()
        ours = options_of(proxy.port)
        assert ours
        assert all(each == {**every, "user": 10_000} for each in ours)
    with hotcount.Database(url, tcp_user_timeout=2.5) as database:
        database.ping()
        assert {**every, "user": 2500} in options_of(proxy.port)


def test_a_postgres_url_says_its_own_tcp_limits(
    far: tuple[FaultProxy, str], watched: Watched
) -> None:
    proxy, url = far
    if watched.url.startswith("mariadb"):
        with pytest.raises(hotcount.ConfigError, match="keepalives_idle"):
            hotcount.Database(url + "?keepalives_idle=77")
        return
    with hotcount.Database(url + "&keepalives_idle=77&tcp_user_timeout=3000") as database:
        database.ping()
        (found,) = [each for each in options_of(proxy.port) if each["idle"] == 77]
        assert (found["user"], found["interval"]) == (3000, 5)
