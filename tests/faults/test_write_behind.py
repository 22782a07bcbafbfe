"""write_behind beside kills of voters, workers, Redis: losses only where the contract says so."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import hotcount
import pytest
import sqlalchemy as sa
from hotcount import aio

from tests.support.eventually import eventually, stand_still
from tests.support.servers import PostgresServer, RedisServer
from tests.support.sqlalchemy_side import both_sides
from tests.support.write_behind_storm import ALWAYS, FSYNC, Storm, restart, survive

pytestmark = pytest.mark.server


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    servers: list[RedisServer] = []

    def start(*config: str) -> RedisServer:
        folder = tmp_path / f"redis{len(servers)}"
        folder.mkdir()
        servers.append(RedisServer(folder, config=config).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def acknowledged(storm: Storm, more: int) -> None:
    """Waits until `more` votes are acknowledged."""
    begun = storm.ledger.acknowledgements
    eventually(lambda: storm.ledger.acknowledgements >= begun + more, 30)


def make(tmp_path: Path, redis: RedisServer) -> Storm:
    storm = Storm(f"sqlite:///{tmp_path}/votes.db", redis, items=12)
    storm.start("voter")
    storm.start("worker")
    storm.start("worker")
    acknowledged(storm, 100)
    return storm


def test_kills_of_voters_lose_none(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    storm = make(tmp_path, start_redis())
    for kind in ("worker", "voter", "worker"):
        storm.kill(kind)
        acknowledged(storm, 100)
        storm.age()
    storm.check()


def test_kills_of_a_redis_that_syncs_every_write_lose_nothing(
    tmp_path: Path, start_redis: Callable[..., RedisServer]
) -> None:
    redis = start_redis(*ALWAYS)
    storm = make(tmp_path, redis)
    for _ in range(2):
        restart(redis)
        acknowledged(storm, 100)
    storm.check()


@pytest.mark.parametrize("how", ["no persistence", "FLUSHALL"])
def test_a_redis_that_loses_its_data_loses_what_waited_and_nothing_that_comes_later(
    tmp_path: Path, start_redis: Callable[..., RedisServer], how: str
) -> None:
    redis = start_redis()
    storm = make(tmp_path, redis)
    for _ in range(2):
        if how == "FLUSHALL":
            storm.lose(lambda: storm.run_in_redis("FLUSHALL"))
        else:
            storm.lose(lambda: restart(redis))
        acknowledged(storm, 100)
    storm.check()


# -- who waits, and for what ----------------------------------------------------------------------


FORKED = """
import hotcount, os, sys
votes = hotcount.Votes(sys.argv[1], sys.argv[2], "write_behind")
votes.create_tables()
votes.add_items([1])
worker = votes.sync_worker()
votes.cast(1, 1)
worker.run_once()
votes.cast(1, 2)
redis = hotcount.Redis(sys.argv[2])
(stream,) = redis.execute("KEYS", "waiting:*")
((_, name, *_),) = redis.execute("XINFO", "CONSUMERS", stream, "workers")
# The parent has taken it, and is about to write it.
redis.execute("XREADGROUP", "GROUP", "workers", name, "STREAMS", stream, ">")
child = os.fork()
if child == 0:
    os._exit(worker.run_once().scanned)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), worker.run_once().scanned)
"""


def test_a_forked_worker(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, f"sqlite:///{tmp_path}/votes.db", start_redis().url],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "0 1\n", done.stderr


def flush_beside_a_dead_worker(
    votes: hotcount.Votes, redis: hotcount.Redis, timeout: float
) -> tuple[bytes, threading.Thread, list[hotcount.FlushReport]]:
    """A vote's stream, whose vote a dead worker has; a flush that has begun; where it reports."""
    votes.create_tables()
    votes.add_items([1])
    votes.cast(1, 1)
    (stream,) = redis.execute("KEYS", "waiting:*")
    redis.execute("XREADGROUP", "GROUP", "workers", "dead", "STREAMS", stream, ">")
    reports: list[hotcount.FlushReport] = []
    flush = threading.Thread(target=lambda: reports.append(votes.flush(timeout=timeout)))
    flush.start()
    # It has begun: its own consumer is there.
    eventually(lambda: len(redis.execute("XINFO", "CONSUMERS", stream, "workers")) == 2)
    return stream, flush, reports


def test_a_flush_beside_others(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with (
        hotcount.Votes(f"sqlite:///{tmp_path}/votes.db", server.url, "write_behind") as votes,
        server.redis() as redis,
    ):
        stream, flush, reports = flush_beside_a_dead_worker(votes, redis, timeout=3)
        redis.execute(
            "EVAL",
            "redis.call('XADD', KEYS[1], '*', 'i', '1', 'u', '2', 'v', '1')"
            "redis.call('XREADGROUP', 'GROUP', 'workers', 'dead', 'STREAMS', KEYS[1], '>')",
            1,
            stream,
        )
        flush.join()
        assert reports == [hotcount.FlushReport(acked=0, pending=1, at_risk=2)]


def test_a_flush_of_a_mute_redis(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with (
        hotcount.Votes(f"sqlite:///{tmp_path}/votes.db", server.url, "write_behind") as votes,
        server.redis() as redis,
    ):
        _, flush, reports = flush_beside_a_dead_worker(votes, redis, timeout=1)
        server.send_signal(signal.SIGSTOP)
        try:
            flush.join()
        finally:
            server.send_signal(signal.SIGCONT)
        assert reports == [hotcount.FlushReport(acked=0, pending=1, at_risk=1)]


def test_a_flush_of_a_locked_file(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    with hotcount.Votes(
        f"sqlite:///{tmp_path}/votes.db", start_redis().url, "write_behind"
    ) as votes:
        votes.create_tables()
        votes.add_items([1])
        votes.cast(1, 1)
        other = sqlite3.connect(tmp_path / "votes.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert votes.flush(timeout=1) == hotcount.FlushReport(acked=0, pending=1, at_risk=1)
        other.execute("ROLLBACK")
        other.close()
        assert votes.flush() == hotcount.FlushReport(acked=1, pending=0, at_risk=0)


def test_first_calls_go_together(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    url = f"sqlite:///{tmp_path}/votes.db"
    server = start_redis(*ALWAYS)
    with hotcount.Votes(url, server.url, "write_behind", missing_items="create") as votes:
        votes.create_tables()
        votes.cast_many(list(range(20)), [0] * 20)

    async def main() -> int:
        async with aio.Redis(server.url, timeout=20) as redis:
            votes = aio.Votes(url, redis, "write_behind", missing_items="create")

            async def vote(user: int) -> None:
                for item in range(20):
                    await votes.cast(item, user)

            await asyncio.gather(*(vote(user) for user in range(64)))
            return int(redis.stats()["combined"])

    # Of 1,280; when the first call made all later ones wait for one another, none.
    assert asyncio.run(main()) > 640


def test_votes_are_acknowledged_while_the_database_is_away_for_longer_than_max_age(
    start_redis: Callable[..., RedisServer], own_postgres: PostgresServer
) -> None:
    url = own_postgres.create_database().url
    with hotcount.Votes(url, start_redis().url, "write_behind", max_age=0.01) as votes:
        votes.create_tables()
        votes.add_items([1])
        votes.cast(1, 1)
        own_postgres.kill()
        killed = time.monotonic()
        eventually(lambda: time.monotonic() > killed + 0.02)
        for user in range(2, 5):
            assert votes.cast(1, user).pending
        own_postgres.start()
        votes.flush(timeout=20)
        assert int(votes.count(1)) == 4


@pytest.mark.long
def test_a_worker_ends_in_a_round(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with hotcount.Votes(f"sqlite:///{tmp_path}/votes.db", server.url, "write_behind") as votes:
        votes.create_tables()
        votes.cast(1, 1)
        answers = iter([False])  # Stopped as soon as it has begun a round.
        stop = threading.Event()
        stop.is_set = lambda: next(answers, True)  # type: ignore[method-assign]
        running = threading.Thread(target=votes.sync_worker().run, args=[stop])
        server.send_signal(signal.SIGSTOP)
        running.start()
        running.join(15)
        ended = not running.is_alive()
        server.send_signal(signal.SIGCONT)
        running.join()
        assert ended


@pytest.mark.long
@pytest.mark.parametrize("fsync", ["always", "everysec", "none"])
def test_a_storm_of_5000_votes_a_second(
    start_redis: Callable[..., RedisServer], own_postgres: PostgresServer, fsync: str
) -> None:
    """How many updates of counts a vote costs: `python -m loadtest.peers.write_behind` says it."""
    survived = survive(own_postgres, start_redis(*FSYNC[fsync]), fsync, seconds=60)
    if fsync == "always":
        assert survived.lost == 0
    assert survived.updates_per_vote < 0.05


HOLDS_THE_MARKS = """
import sys, hotcount
with hotcount.Votes(*sys.argv[1:], "write_behind") as votes:
    votes.cast(1, 1, timeout=60)
"""
WAITS = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    "AND datname = current_database()",
    "mariadb": "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status "
    "WHERE variable_name = 'Innodb_row_lock_current_waits'",
}


@pytest.mark.parametrize(
    "backend",
    ["postgresql", pytest.param("mariadb", marks=pytest.mark.mariadb_only("MySQL has no limit"))],
)
def test_a_process_that_stands_still_in_a_transaction_stops_others_for_5_seconds(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    start_redis: Callable[..., RedisServer],
    backend: str,
) -> None:
    """It makes a stream, and holds the row stream_open when it comes to stream_floor."""
    server = start_redis()
    sides = both_sides(request, backend, tmp_path)
    with closing(sides), hotcount.Votes(sides.url, server.url, "write_behind") as votes:
        votes.create_tables()
        votes.add_items([1])
        votes.cast(1, 1)
        assert votes.flush(timeout=20).at_risk == 0
        with sides.engine.begin() as other, sides.engine.connect() as look:
            look = look.execution_options(isolation_level="AUTOCOMMIT")
            other.execute(
                sa.text("SELECT value FROM vote_meta WHERE name = 'stream_floor' FOR UPDATE")
            )
            holder = subprocess.Popen(
                [sys.executable, "-c", HOLDS_THE_MARKS, sides.url, server.url]
            )
            eventually(lambda: look.scalar(sa.text(WAITS[backend])) == 1)
            stand_still(holder.pid)
        try:
            assert votes.cast(1, 2, timeout=30).pending
        finally:
            holder.kill()
            holder.wait()
        assert votes.flush(timeout=20).at_risk == 0
        assert votes.get(1, 2) == 1
