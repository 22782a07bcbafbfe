"""Strategy cached: votes whose answer never came, a cache that is silent, a recount in between."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import hotcount
import pytest
import sqlalchemy as sa

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.mysql_server import is_mysql
from tests.support.servers import PostgresDatabase, RedisServer
from tests.support.sqlalchemy_side import BACKENDS, BothSides, both_sides


@pytest.fixture
def sides(request: pytest.FixtureRequest, database_path: Path) -> Iterator[BothSides]:
    made = both_sides(request, request.param, database_path)
    yield made
    made.close()


def make(sides: BothSides, redis: hotcount.Redis) -> hotcount.Votes:
    votes = hotcount.Votes(sides.database, redis, "cached")
    votes.create_tables()
    votes.add_items([1, 2])
    votes.cast_many([1, 2], [1, 1])  # And the fills.
    return votes


def far_url(sides: BothSides, request: pytest.FixtureRequest, proxy: FaultProxy) -> str:
    if sides.dialect == "mariadb":
        return (
            f"mariadb://root@127.0.0.1:{proxy.port}/{request.getfixturevalue('mariadb_database')}"
        )
    own: PostgresDatabase = request.getfixturevalue("postgres_database")
    return (
        f"postgresql://{own.server.superuser}@127.0.0.1:{proxy.port}/postgres"
        f"?options=-csearch_path%3D{own.schema}"
    )


@pytest.mark.parametrize("sides", BACKENDS[1:], indirect=True)
def test_a_vote_of_unknown_outcome_is_recounted_by_workers_of_other_processes(
    request: pytest.FixtureRequest, sides: BothSides, own_redis: RedisServer
) -> None:
    with ExitStack() as stack:
        redis = stack.enter_context(own_redis.redis(timeout=20))
        elsewhere = make(sides, redis)
        server = (
            request.getfixturevalue("mariadb_server").socket
            if sides.dialect == "mariadb"
            else request.getfixturevalue("postgres_server").folder / ".s.PGSQL.5432"
        )
        proxy = stack.enter_context(FaultProxy(server))
        database = hotcount.Database(far_url(sides, request, proxy), timeout=20)
        votes = hotcount.Votes(stack.enter_context(database), redis, "cached")
        worker = elsewhere.sync_worker()
        voter, unknown = 10, 0
        # The last answer of a vote is its commit's. Which number of bytes that is, is the server's:
        # MySQL, which has no compound statements, answers more of them.
        for passed in range(0, 1_000 if is_mysql() else 200, 10):
            voter += 1
            votes.cast(1, voter)
            proxy.cut_after(passed, SERVER_TO_CLIENT)
            try:
                votes.cast(1, -voter)
            except hotcount.OutcomeUnknownError:
                unknown += 1
            proxy.heal()
        assert unknown > 0, "void: no answer of a commit was cut"
        votes.cast(2, 2)  # SQL answers again.
        eventually(lambda: worker.run_once(timeout=20).unsettled == 0)
        assert elsewhere.reconcile(dry_run=True) == []


@pytest.mark.parametrize("sides", BACKENDS[1:], indirect=True)
def test_readers_have_the_count_of_sql_meanwhile(sides: BothSides, own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=20) as redis:
        votes = make(sides, redis)
        assert votes.flush(20).pending == 0
        own_redis.send_signal(signal.SIGSTOP)
        try:
            counts = votes.count_many([1, 2], timeout=4)
        finally:
            own_redis.send_signal(signal.SIGCONT)
        assert [(int(count), count.source) for count in counts] == [(1, "sql"), (1, "sql")]


@pytest.mark.parametrize("sides", BACKENDS[1:2], indirect=True)
def test_a_vote_whose_statement_began_before_a_recount_has_the_recounts_epoch(
    request: pytest.FixtureRequest, sides: BothSides, own_redis: RedisServer
) -> None:
    """The recount's sum lacks the vote, so under the older epoch no count would have it."""
    own: PostgresDatabase = request.getfixturevalue("postgres_database")
    with ExitStack() as stack:
        redis = stack.enter_context(own_redis.redis(timeout=20))
        elsewhere = make(sides, redis)
        role = f"voter_{own.schema}"
        connection = stack.enter_context(sides.engine.connect())
        # The policy is asked of each row that is scanned: after the snapshot, before the lock.
        for text in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA {own.schema} TO {role}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA {own.schema} TO {role}",
            "CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$ BEGIN "
            "PERFORM pg_advisory_xact_lock_shared(4712); RETURN true; END $$",
            "ALTER TABLE item ENABLE ROW LEVEL SECURITY",
            f"CREATE POLICY gated ON item TO {role} USING (gate()) WITH CHECK (true)",
        ):
            connection.execute(sa.text(text))
        connection.commit()
        stack.callback(own.psql, f"DROP OWNED BY {role}; DROP ROLE {role}")
        database = stack.enter_context(hotcount.Database(own.url_for(role), timeout=20))
        votes = hotcount.Votes(database, redis, "cached")
        votes.cast(2, 2)  # Its connection is open.
        worker = elsewhere.sync_worker()
        connection.execute(sa.text("INSERT INTO vote_recount (item, asked) VALUES (1, 1)"))
        connection.commit()
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(4712)"))
        voter = threading.Thread(target=votes.cast, args=(1, 2))
        voter.start()
        waits = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND objid = 4712")
        eventually(lambda: connection.execute(waits).scalar() == 1)
        assert worker.run_once(timeout=20).recounted == 1
        elsewhere.cast(1, 3)  # Into a hash of the new epoch.
        connection.rollback()
        voter.join()
        assert elsewhere.flush(30).pending == 0
        assert int(elsewhere.count(1)) == 3
        assert elsewhere.reconcile(dry_run=True) == []
