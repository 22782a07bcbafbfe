"""Reads from a replica (read_url) that a test may promote: what a copy answers as a primary."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import hotcount
import psycopg
import pytest

from tests.support.eventually import eventually
from tests.support.pgbouncer_server import PgBouncer
from tests.support.replicas import MAKERS, Replicated, await_replica, check_age, open_votes
from tests.support.servers import PostgresServer, PostgresStandby
from tests.support.together import beside

pytestmark = pytest.mark.server


@pytest.fixture
def own_pair(request: pytest.FixtureRequest) -> Iterator[Replicated]:
    """One whose replica the test may promote."""
    made = MAKERS[str(request.param)]()
    try:
        made.create_database()
        yield made
    finally:
        made.remove()


both_own = pytest.mark.parametrize("own_pair", list(MAKERS), indirect=True)


@pytest.mark.long
@both_own
def test_a_promoted_replica_answers_no_longer_than_read_max_lag(own_pair: Replicated) -> None:
    with open_votes(own_pair, read_max_lag=1.0) as votes:
        await_replica(votes)
        own_pair.promote()
        promoted = time.time()
        votes.cast(1, 101)
        foreign = hotcount.Votes(own_pair.replica_url)
        # The split: it takes votes of its own.
        eventually(lambda: is_writable(foreign))
        while (count := votes.count(1)).source == "replica":
            assert count.as_of < promoted + 1.0
        assert votes.count(1) == 2
        eventually(lambda: votes.stats()["replica_error"] != "")


@contextlib.contextmanager
def url_of_copy(pair: Replicated, says_so: bool) -> Iterator[str]:
    """A server that will have what the replica writes as a primary, as a standby or not."""
    if says_so:
        yield pair.replica_url
    elif isinstance(pair.replica, PostgresServer):
        with PostgresStandby(pair.replica).started() as follows:
            yield follows.url(options="&" + pair.replica_url.partition("&")[2])
    else:
        pair.replica.execute("SET GLOBAL read_only = 0")
        yield pair.replica_url


@both_own
@pytest.mark.parametrize("says_so", [True, False], ids=["promoted", "that does not say so"])
def test_no_answer_of_a_copy_that_is_somebodys_primary_is_dated_by_its_heartbeats(
    own_pair: Replicated, says_so: bool
) -> None:
    acknowledged = [0.0]
    with (
        url_of_copy(own_pair, says_so) as url,
        open_votes(own_pair, read_url=url, read_max_lag=2.0) as votes,
    ):
        await_replica(votes)
        own_pair.promote()
        foreign = hotcount.Votes(
            own_pair.replica_url, read_url=own_pair.replica_url, read_max_lag=0.4
        )
        eventually(lambda: is_writable(foreign))
        until = time.monotonic() + 4.5
        while time.monotonic() < until:
            foreign.count(1)
            votes.cast(2, len(acknowledged))
            acknowledged.append(time.time())
            check_age(votes.count(2), acknowledged)
        assert votes.stats()["replica_error"] != ""
        assert votes.count(2) == len(acknowledged) - 1


def is_writable(votes: hotcount.Votes) -> bool:
    try:
        votes.cast(1, 999, timeout=5)
    except hotcount.HotcountError:
        return False
    return True


@pytest.mark.long
@both_own
def test_after_a_failover_to_the_replica_it_answers_as_both(own_pair: Replicated) -> None:
    with open_votes(own_pair) as votes:
        await_replica(votes)
    own_pair.primary.kill()
    own_pair.promote()
    own_pair.primary_url = own_pair.replica_url

    def cast() -> bool:
        with hotcount.Votes(own_pair.replica_url) as now:
            return is_writable(now)

    eventually(cast)
    with hotcount.Votes(own_pair.replica_url, read_url=own_pair.replica_url) as votes:
        await_replica(votes, 2)


@pytest.mark.long
@pytest.mark.parametrize("own_pair", ["postgresql"], indirect=True)
def test_pgbouncer_may_stand_before_the_replica(own_pair: Replicated) -> None:
    assert isinstance(own_pair.primary, PostgresServer)
    assert isinstance(own_pair.replica, PostgresServer)
    with PgBouncer(own_pair.replica, sessions=1).started() as pooler:
        # In the schema `public`: a pooler passes no search_path on.
        own_pair.primary_url = own_pair.primary.url()
        with open_votes(own_pair, read_url=pooler.url()) as votes, ThreadPoolExecutor(8) as pool:
            await_replica(votes)
            before = votes.stats()["replica_reads"]
            counts = list(pool.map(lambda _: votes.count(1), range(200)))
            assert set(counts) == {1}
            assert votes.stats()["replica_reads"] - before == 200


@pytest.mark.long
@pytest.mark.parametrize("own_pair", ["postgresql"], indirect=True)
def test_a_read_that_recovery_cancels_is_answered_all_the_same(own_pair: Replicated) -> None:
    """The primary takes a lock on the table that the standby's snapshots are in the way of."""
    assert isinstance(own_pair.replica, PostgresServer)
    own_pair.replica.psql("ALTER SYSTEM SET max_standby_streaming_delay = 0")
    own_pair.replica.psql("SELECT pg_reload_conf()")
    with open_votes(own_pair) as votes:
        votes.cast_many([2] * 20_000, range(20_000))
        await_replica(votes)
        url = own_pair.primary_url
        schema = url.rsplit("%3D", 1)[1]

        def lock(over: threading.Event) -> None:
            with psycopg.connect(
                host=str(own_pair.primary.folder), user="hotcount", dbname="postgres"
            ) as session:
                while not over.is_set():
                    session.execute(f'LOCK TABLE "{schema}".vote IN ACCESS EXCLUSIVE MODE')
                    session.commit()

        def cancelled() -> bool:
            assert votes.tally(2, consistency="cached").up == 20_000
            conflicts = "SELECT sum(confl_lock + confl_snapshot) FROM pg_stat_database_conflicts"
            assert isinstance(own_pair.replica, PostgresServer)
            return int(own_pair.replica.psql(conflicts)) > 2

        with beside(lock):
            eventually(cancelled)
        # That was no outage.
        await_replica(votes)
