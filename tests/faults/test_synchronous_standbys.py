"""A COMMIT that waits for a synchronous standby: a vote is counted when the standby has it. Both
servers answer a COMMIT whose wait was cancelled as if the standby had confirmed it.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import hotcount
import psycopg
import pytest

from tests.support.eventually import eventually
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import new_server
from tests.support.pgbouncer_server import PgBouncer
from tests.support.servers import PostgresServer

pytestmark = pytest.mark.server

STRATEGIES = ["naive", "slotted", "batched"]
VOTERS = range(1, 5)


class PostgresPrimary:
    """A PostgreSQL server; its silent standby is a name that no server has."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.url()

    def standby_falls_silent(self) -> None:
        self._set("ALTER SYSTEM SET synchronous_standby_names = 'away'")
        eventually(self._commits_wait)

    def standby_answers(self) -> None:
        """Ends all waits for a confirmation."""
        self._set("ALTER SYSTEM RESET synchronous_standby_names")

    def _set(self, setting: str) -> None:
        # Neither is a commit, so neither waits.
        self.server.psql(setting)
        self.server.psql("SELECT pg_reload_conf()")

    def _commits_wait(self) -> bool:
        # Not as soon as SHOW says the new names: when the checkpointer has read them.
        with psycopg.connect(self.url, autocommit=True) as probe, ThreadPoolExecutor(1) as pool:
            pid = probe.info.backend_pid
            commit = pool.submit(probe.execute, "SELECT pg_logical_emit_message(true, 'a', '')")
            eventually(lambda: commit.done() or pid in self.waiting())
            waits = not commit.done()
            self.server.psql(f"SELECT pg_cancel_backend({pid})")
        return waits

    def waiting(self) -> list[int]:
        """The sessions whose COMMIT waits for a standby."""
        pids = self.server.psql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        return [int(pid) for pid in pids.split()]

    def cancel_the_wait_twice(self) -> None:
        """The one wait there is, and the one of the commit that follows it."""
        (pid,) = self.waiting()
        self.server.psql(f"SELECT pg_cancel_backend({pid})")
        self.cancel_the_second_wait()

    def cancel_the_second_wait(self) -> None:
        """A server does that for one cancel as well: it sends the session two signals, and the
        second may come late.
        """
        second = self.commit_of_nothing_after("")
        self.server.psql(f"SELECT pg_cancel_backend({second.split()[0]})")
        self.commit_of_nothing_after(second)

    def commit_of_nothing_after(self, before: str) -> str:
        """Waits until a session waits in a commit of nothing that is another than `before`.
        Returns the session and when its commit began.
        """
        found = ""

        def another() -> bool:
            nonlocal found
            found = self.server.psql(
                "SELECT pid || ' ' || extract(epoch FROM query_start) FROM pg_stat_activity "
                "WHERE wait_event = 'SyncRep' AND query LIKE '%pg_logical_emit_message%'"
            ).strip()
            return found not in ("", before)

        eventually(another)
        return found


class MariaDbPrimary:
    def __init__(self, server: MariaDbServer) -> None:
        self.server = server
        self.url = server.url(server.create_database())
        server.execute("SET GLOBAL rpl_semi_sync_master_timeout = 3600000")
        server.execute("SET GLOBAL rpl_semi_sync_master_wait_no_slave = 1")

    def standby_falls_silent(self) -> None:
        self.server.execute("SET GLOBAL rpl_semi_sync_master_enabled = 1")

    def standby_answers(self) -> None:
        self.server.execute("SET GLOBAL rpl_semi_sync_master_enabled = 0")

    def waiting(self) -> list[int]:
        rows = self.server.execute(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE LIKE '%semi-sync%'"
        )
        return [id for (id,) in rows]


Primary = PostgresPrimary | MariaDbPrimary


@contextmanager
def standby_silent(primary: Primary) -> Iterator[None]:
    primary.standby_falls_silent()
    try:
        yield
    finally:
        primary.standby_answers()


@pytest.fixture(scope="module")
def postgres_primary() -> Iterator[PostgresPrimary]:
    server = PostgresServer()
    try:
        yield PostgresPrimary(server.start())
    finally:
        server.remove()


@pytest.fixture(scope="module")
def mariadb_primary() -> Iterator[MariaDbPrimary]:
    server = new_server(config=("--log-bin=binlog", "--server-id=1", "--sync-binlog=1"))
    try:
        yield MariaDbPrimary(server.start())
    finally:
        server.remove()


# The plugin is no part of the MySQL that scripts/setup fetches.
NO_PLUGIN = pytest.mark.mariadb_only("semi-synchronous replication")


@pytest.fixture(params=["postgres_primary", pytest.param("mariadb_primary", marks=NO_PLUGIN)])
def primary(request: pytest.FixtureRequest) -> Primary:
    found: Primary = request.getfixturevalue(request.param)
    return found


@contextmanager
def votes_by(primary: Primary, strategy: Any, test: str) -> Iterator[hotcount.Votes]:
    with (
        hotcount.Database(primary.url, timeout=20) as database,
        hotcount.Votes(
            database,
            strategy=strategy,
            item_table=f"{test}_item_{strategy}",
            vote_table=f"{test}_vote_{strategy}",
        ) as votes,
    ):
        votes.create_tables()
        votes.add_items([1])
        votes.cast(1, 100)
        yield votes


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_votes_that_no_standby_confirms_are_unknown(strategy: str, primary: Primary) -> None:
    with votes_by(primary, strategy, "never") as votes:

        def voted(user: int) -> Exception | None:
            try:
                votes.cast(1, user, timeout=3)
            except hotcount.HotcountError as error:
                return error
            return None

        with standby_silent(primary), ThreadPoolExecutor(len(VOTERS)) as pool:
            told = list(pool.map(voted, VOTERS))
        # Voters that had not come to a COMMIT waited for those that had.
        unknown = [error for error in told if isinstance(error, hotcount.OutcomeUnknownError)]
        late = [error for error in told if isinstance(error, hotcount.DeadlineError)]
        assert len(unknown) + len(late) == len(VOTERS), told
        assert unknown
        # A COMMIT that is under way when its session is given up is carried out.
        eventually(lambda: primary.waiting() == [])
        eventually(lambda: votes.count(1).value == 1 + len(unknown))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_votes_that_a_standby_confirms_late_are_counted(strategy: str, primary: Primary) -> None:
    with votes_by(primary, strategy, "late") as votes, ThreadPoolExecutor(len(VOTERS)) as pool:
        with standby_silent(primary):
            casts = [pool.submit(partial(votes.cast, 1, user, timeout=30)) for user in VOTERS]
            eventually(lambda: primary.waiting() != [])
            # Longer than a statement runs before it gives way to others.
            with pytest.raises(TimeoutError):
                casts[0].result(1.5)
            assert not any(cast.done() for cast in casts)
        assert all(cast.result(30).counted for cast in casts)
        assert votes.count(1).value == 1 + len(VOTERS)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_cancelled_wait_is_counted_once(strategy: str, postgres_primary: PostgresPrimary) -> None:
    primary = postgres_primary
    with votes_by(primary, strategy, "cancelled") as votes, ThreadPoolExecutor(1) as pool:
        with standby_silent(primary):
            cast = pool.submit(partial(votes.cast, 1, 1, timeout=30))
            eventually(lambda: len(primary.waiting()) == 1)
            primary.cancel_the_wait_twice()
            assert not cast.done()
        assert cast.result(30).counted
        assert votes.count(1).value == 2


@pytest.fixture(scope="module")
def deaf_role(postgres_primary: PostgresPrimary) -> str:
    """A role whose settings hide the server's warnings."""
    postgres_primary.server.psql(
        "CREATE ROLE deaf SUPERUSER LOGIN; ALTER ROLE deaf SET client_min_messages = error"
    )
    return "deaf"


@pytest.mark.parametrize("through", ["server", "pooler", "unprepared"])
def test_votes_of_a_role_that_hears_no_warning_are_unknown_until_a_standby_confirms(
    through: str, postgres_primary: PostgresPrimary, deaf_role: str
) -> None:
    server = postgres_primary.server
    with ExitStack() as stack:
        url = server.url(user=deaf_role)
        if through == "pooler":
            pooler = PgBouncer(server)
            stack.callback(pooler.remove)
            pooler.add_role(deaf_role)
            url = pooler.start().url(user=deaf_role)
        database = stack.enter_context(
            hotcount.Database(url, timeout=20, prepare=through != "unprepared")
        )
        table = f"deaf_{through}"
        votes = stack.enter_context(
            hotcount.Votes(database, item_table=f"{table}_item", vote_table=f"{table}_vote")
        )
        votes.create_tables()
        votes.add_items([1])
        pool = stack.enter_context(ThreadPoolExecutor(len(VOTERS)))
        with standby_silent(postgres_primary):
            casts = [pool.submit(partial(votes.cast, 1, user)) for user in VOTERS]
            eventually(lambda: postgres_primary.waiting() != [])
            if through == "server":
                # Told the warnings, so only a cancel makes it commit again.
                with pytest.raises(TimeoutError):
                    casts[0].result(1.5)
            else:
                postgres_primary.cancel_the_second_wait()
            assert not any(cast.done() for cast in casts)
        assert all(cast.result(30).counted for cast in casts)
        assert votes.count(1).value == len(VOTERS)


def test_a_cancelled_wait_is_repeated(postgres_primary: PostgresPrimary, deaf_role: str) -> None:
    primary = postgres_primary
    with (
        hotcount.Database(primary.server.url(user=deaf_role), timeout=20) as database,
        ThreadPoolExecutor(1) as pool,
    ):
        counter = hotcount.SlottedCounter(database, table="deaf_counter")
        counter.create_table()
        with standby_silent(primary):
            add = pool.submit(counter.add, "a")
            eventually(lambda: primary.waiting() != [])
            primary.cancel_the_wait_twice()
            assert not add.done()
        add.result(30)
        assert counter.get("a") == 1


@pytest.mark.parametrize("lock", ["FLUSH TABLES WITH READ LOCK", "LOCK TABLES vote_meta WRITE"])
def test_votes_that_wait_for_a_locked_table_are_counted(
    lock: str, mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    """A statement that gave way has not begun to commit, so its votes are written again."""
    with (
        hotcount.Database(mariadb_server.url(mariadb_database), timeout=30) as database,
        hotcount.Votes(database, strategy="batched") as votes,
        mariadb_server.connect(mariadb_database) as other,
        other.cursor() as cursor,
        ThreadPoolExecutor(len(VOTERS)) as pool,
    ):
        votes.create_tables()
        votes.add_items([1])
        cursor.execute(lock)
        casts = [pool.submit(partial(votes.cast, 1, user)) for user in VOTERS]
        # Longer than a statement runs before it gives way to others.
        with pytest.raises(TimeoutError):
            casts[0].result(1.5)
        cursor.execute("UNLOCK TABLES")
        assert all(cast.result(30).counted for cast in casts)
