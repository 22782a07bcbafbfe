"""Votes and counters through PgBouncer in transaction mode: any transaction, any server session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import hotcount
import pytest

from tests.support.pgbouncer_server import PgBouncer
from tests.support.servers import PostgresServer
from tests.support.sql_votes import open_votes
from tests.support.together import together

pytestmark = pytest.mark.server

USERS = 150
ITEMS = [1, 2, 3]


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with PostgresServer().started() as server:
        yield server


@pytest.fixture
def pooled_postgres(running: PostgresServer) -> PostgresServer:
    """Empty."""
    running.psql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return running


@pytest.fixture
def pooler(pooled_postgres: PostgresServer) -> Iterator[PgBouncer]:
    """Two sessions of the server for everybody, and an empty database."""
    with PgBouncer(pooled_postgres).started() as made:
        yield made


def votes_of(url: str, application: str, strategy: str) -> hotcount.Votes:
    names = {"item_table": f"{application}_item", "vote_table": f"{application}_vote"}
    return open_votes(url, strategy, **names)


def new_votes(url: str, application: str, strategy: str) -> hotcount.Votes:
    votes = votes_of(url, application, strategy)
    votes.create_tables()
    votes.add_items(ITEMS)
    return votes


# Votes from four threads at once, each on its own; each user on an item by his number.
VOTE = """
import sys, threading, hotcount
url, application, strategy, first, users, prepare = sys.argv[1:]
options = {} if prepare == "default" else {"prepare": prepare == "True"}
votes = hotcount.Votes(
    hotcount.Database(url, timeout=20, **options), None, strategy,
    item_table=f"{application}_item", vote_table=f"{application}_vote",
)
failures = []
def work(part):
    for user in range(int(first) + part, int(first) + int(users), 4):
        try:
            assert votes.cast(1 + user % 3, user).changed
            votes.count(1 + user % 3, consistency="exact")
        except BaseException as failure:
            failures.append(repr(failure))
threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(failures), failures[:3])
"""


def vote_in_processes(url_of: dict[str, str], strategy: str, prepare: str = "default") -> None:
    """One process for each application; the users of each are its own."""
    voters = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", VOTE, url, application, strategy),
                *(str(10_000 * (index + 1)), str(USERS), prepare),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index, (application, url) in enumerate(url_of.items())
    ]
    said = [voter.communicate(timeout=120)[0].strip() for voter in voters]
    assert said == ["0 []"] * len(voters)


def users_of(server: PostgresServer, application: str) -> set[int]:
    return {int(user) for user in server.psql(f"SELECT user_id FROM {application}_vote").split()}


def own_users(index: int) -> set[int]:
    return set(range(10_000 * (index + 1), 10_000 * (index + 1) + USERS))


@pytest.mark.parametrize("prepare", ["default", "False"])
def test_votes_of_two_applications_stay_in_their_own_tables(
    pooler: PgBouncer, strategy: str, prepare: str
) -> None:
    for application in ("one", "two"):
        new_votes(pooler.url(), application, strategy).close()
    vote_in_processes({"one": pooler.url(), "two": pooler.url()}, strategy, prepare)
    for index, application in enumerate(("one", "two")):
        assert users_of(pooler.server, application) == own_users(index)
        with votes_of(pooler.url(), application, strategy) as votes:
            assert sum(int(votes.count(item)) for item in ITEMS) == USERS
            assert votes.reconcile(dry_run=True) == []


def test_votes_of_two_processes_of_one_application_are_all_counted(
    pooler: PgBouncer, strategy: str
) -> None:
    new_votes(pooler.url(), "one", strategy).close()
    # Told apart by application_name, so that each has connections, users and statements of its own.
    for first in range(2):
        vote_in_processes({"one": pooler.url(options=f"&application_name=a{first}")}, strategy)
        # Out of the way of the next, and never onto one that is there.
        pooler.server.psql(
            f"UPDATE one_vote SET user_id = user_id + {100_000 * (first + 1)} "
            "WHERE user_id < 100000"
        )
    with votes_of(pooler.url(), "one", strategy) as votes:
        assert sum(int(votes.count(item)) for item in ITEMS) == 2 * USERS
        assert votes.reconcile(dry_run=True) == []


def test_the_same_table_names_in_two_schemas_are_two_tables(
    pooled_postgres: PostgresServer, strategy: str
) -> None:
    """A role's search_path is the one that a pool of sessions keeps apart."""
    pooler = PgBouncer(pooled_postgres)
    roles = f"first_{strategy}", f"second_{strategy}"
    for role in roles:
        pooled_postgres.psql(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA {role} AUTHORIZATION {role}")
        pooled_postgres.psql(f"ALTER ROLE {role} SET search_path = {role}")
        pooler.add_role(role)
    with pooler.started():
        for role in roles:
            new_votes(pooler.url(user=role), "same", strategy).close()
            assert pooled_postgres.psql(f"SELECT count(*) FROM {role}.same_vote") == "0"

        def vote(index: int) -> None:
            with votes_of(pooler.url(user=roles[index % 2]), "same", strategy) as votes:
                for user in range(index * 1000, index * 1000 + 50):
                    votes.cast(1 + user % 3, user)

        together(vote, 4)
        for role, own in zip(roles, ({0, 2}, {1, 3})):
            there = pooled_postgres.psql(f"SELECT user_id FROM {role}.same_vote").split()
            assert {int(user) // 1000 for user in there} == own
            assert len(there) == 100


def test_what_a_transaction_asks_of_its_session_ends_with_it(pooler: PgBouncer) -> None:
    """Or it would hold for another application's next transaction."""
    # Those of plpgsql show from the first DO block on, which create_tables() may run.
    settings = (
        "SELECT name, setting FROM pg_settings "
        "WHERE name <> 'application_name' AND name NOT LIKE 'plpgsql.%' ORDER BY 1"
    )

    def of_every_session() -> dict[object, object]:
        with pooler.connect() as first, pooler.connect() as second:
            # Both in a transaction: two clients, two sessions.
            return {
                session.execute("SELECT pg_backend_pid()").fetchone(): session.execute(
                    settings
                ).fetchall()
                for session in (first, second)
            }

    before = of_every_session()
    with new_votes(pooler.url(), "one", "batched") as votes:
        together(lambda index: votes.cast(1, index), 16)
        votes.reconcile()
    with hotcount.SlottedCounter(hotcount.Database(pooler.url())) as counter:
        counter.create_table()
        counter.add("k")
    assert of_every_session() == before
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    assert pooler.server.psql(held) == "0"


def test_a_wait_for_a_lock_ends_at_its_deadline_through_the_pooler(pooler: PgBouncer) -> None:
    with new_votes(pooler.url(), "one", "batched") as votes:
        votes.cast(1, 7)
        with pooler.connect() as other:
            other.execute("SELECT FROM one_vote, one_item FOR UPDATE")
            with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
                votes.cast(1, 7, -1, timeout=0.3)
        assert votes.cast(1, 7, -1).previous == 1
        assert votes.reconcile(dry_run=True) == []


@pytest.fixture
def strict_pooler(pooled_postgres: PostgresServer) -> Iterator[tuple[PgBouncer, dict[str, str]]]:
    """A pooler, and two applications' URLs: REPEATABLE READ and SERIALIZABLE by default."""
    pooler = PgBouncer(pooled_postgres)
    roles = {"one": "repeatable read", "two": "serializable"}
    for role, isolation in roles.items():
        pooled_postgres.psql(
            f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN; "
            f"GRANT ALL ON SCHEMA public TO {role}; "
            f"ALTER ROLE {role} SET default_transaction_isolation = '{isolation}'"
        )
        pooler.add_role(role)
    with pooler.started():
        yield pooler, {role: pooler.url(user=role) for role in roles}
    pooled_postgres.psql("DROP OWNED BY one, two CASCADE")
    pooled_postgres.psql("DROP ROLE one, two")


@pytest.mark.parametrize("prepare", ["default", "False"])
def test_votes_of_sessions_that_default_to_strict_isolation_are_all_counted(
    strict_pooler: tuple[PgBouncer, dict[str, str]], strategy: str, prepare: str
) -> None:
    pooler, urls = strict_pooler
    for application, url in urls.items():
        new_votes(url, application, strategy).close()
    vote_in_processes(urls, strategy, prepare)
    for index, (application, url) in enumerate(urls.items()):
        assert users_of(pooler.server, application) == own_users(index)
        with votes_of(url, application, strategy) as votes:
            exact = [int(votes.count(item, consistency="exact")) for item in ITEMS]
            assert sum(exact) == USERS
            assert [int(votes.count(item)) for item in ITEMS] == exact
            votes.flush()
            assert votes.reconcile(dry_run=True) == []
            # And votes that meet on one row of votes, of the same application.
            before = int(votes.count(1, consistency="exact"))
            together(lambda value: votes.cast(1, 1, 1 - value % 2 * 2), 16)
            assert abs(int(votes.count(1, consistency="exact")) - before) == 1
            assert votes.reconcile(dry_run=True) == []


def test_slotted_counters_of_sessions_that_default_to_strict_isolation_lose_nothing(
    strict_pooler: tuple[PgBouncer, dict[str, str]],
) -> None:
    _, urls = strict_pooler

    def count(index: int) -> None:
        name = ("one", "two")[index % 2]
        database = hotcount.Database(f"{urls[name]}&application_name=s{index}", timeout=20)
        with hotcount.SlottedCounter(database, table=f"slots_{name}", slots=2) as counter:
            for _ in range(50):
                counter.add("k")
                counter.add_many({"k": 1, "l": 2})
                counter.get("k")

    for name, url in urls.items():
        with hotcount.SlottedCounter(hotcount.Database(url), table=f"slots_{name}") as counter:
            counter.create_table()
    together(count, 6)
    for name, url in urls.items():
        with hotcount.SlottedCounter(hotcount.Database(url), table=f"slots_{name}") as counter:
            assert list(counter.get_many(["k", "l"])) == [300, 300]
            counter.compact("k")
            assert counter.get("k") == 300
