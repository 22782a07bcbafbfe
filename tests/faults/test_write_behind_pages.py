"""Pages of write_behind whose worker, Redis or database fails between two steps."""

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import psycopg
import pytest
from hotcount import Redis, Votes

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually, stand_still
from tests.support.servers import PostgresDatabase, RedisServer
from tests.support.votes_strategies import shard_of


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/votes.db"


@pytest.fixture
def votes(url: str, own_redis: RedisServer) -> Iterator[hotcount.Votes]:
    with hotcount.Votes(url, own_redis.url, "write_behind") as votes:
        votes.create_tables()
        votes.add_items(range(1, 41))
        yield votes


def streams(direct: hotcount.Redis) -> list[bytes]:
    return [key for key in direct.execute("KEYS", "waiting:*") if key.endswith(b"}")]


def pages(direct: hotcount.Redis) -> list[Any]:
    """What workers have, of all streams: entry, worker, idle milliseconds, how often taken."""
    taken: list[Any] = []
    for key in streams(direct):
        if direct.execute("XINFO", "GROUPS", key):
            taken += direct.execute("XPENDING", key, "workers", "-", "+", 1000)
    return taken


def age(direct: hotcount.Redis) -> None:
    """As if workers had had for 30 s what they have."""
    for key in streams(direct):
        for entry, owner, *_ in direct.execute("XPENDING", key, "workers", "-", "+", 1000):
            direct.execute("XCLAIM", key, "workers", owner, 0, entry, "IDLE", 30_001, "JUSTID")


# Of the stream that a worker asks first.
FIRST = next(item for item in range(1, 41) if shard_of(item, 16) == 0)


def test_a_lost_page_is_free(votes: Votes, url: str, proxy: FaultProxy, direct: Redis) -> None:
    with hotcount.Votes(url, proxy.url, "write_behind", workers=1) as through:
        worker = through.sync_worker()
        for user in range(2):
            votes.cast_many(list(range(1, 41)), [user] * 40)
            if user == 0:
                worker.run_once()  # It has a connection, and Redis the script.
        proxy.cut_after(0, SERVER_TO_CLIENT)
        with pytest.raises(hotcount.OutcomeUnknownError):
            worker.run_once()
        assert proxy.fired == 1
        had = len(pages(direct))
        assert had > 0
    # Others take a page over after 30 s, unless it was given back.
    assert votes.flush(timeout=15).pending == 0


def test_a_vote_that_two_workers_find_refused_is_set_aside_once(
    votes: hotcount.Votes, url: str, tmp_path: Path, proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    votes.cast(1, 6)
    votes.sync_worker().run_once()
    votes.cast_many([1, 99], [7, 7])
    cache = hotcount.Redis(proxy.url, timeout=60, silence_limit=60)
    done: list[hotcount.SyncRound] = []
    with (
        hotcount.Votes(hotcount.Database(url, timeout=60), cache, "write_behind") as through,
        sqlite3.connect(tmp_path / "votes.db", isolation_level=None) as holder,
    ):
        late = through.sync_worker()
        holder.execute("BEGIN IMMEDIATE")
        working = threading.Thread(target=lambda: done.append(late.run_once()))
        working.start()
        eventually(lambda: len(pages(direct)) == 2, 20)
        # It has both votes, and writes them when it may; what it says to Redis then is held.
        proxy.hold(CLIENT_TO_SERVER)
        holder.execute("ROLLBACK")
        eventually(lambda: votes.get(1, 7) == 1, 20)
        age(direct)
        other = votes.sync_worker().run_once()
        assert (other.refused, votes.stats()["refused_votes"]) == (1, 1)
        proxy.heal()
        working.join()
    holder.close()
    assert [round.refused for round in done] == [1]
    assert votes.stats()["refused_votes"] == 1


def test_a_vote_that_cannot_be_written_keeps_only_calls_about_its_own_stream_waiting(
    postgres_database: PostgresDatabase, own_redis: RedisServer
) -> None:
    other = next(item for item in range(2, 41) if shard_of(item, 16) != shard_of(1, 16))
    with hotcount.Votes(postgres_database.url, own_redis.url, "write_behind") as votes:
        votes.create_tables()
        votes.add_items([1, other])
        votes.cast(other, 7)
        votes.flush()
        with psycopg.connect(postgres_database.url) as session:
            session.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF NEW.user_id = 13 THEN RAISE EXCEPTION 'not you'; END IF; RETURN NEW; END $$"
            )
            session.execute(
                "CREATE TRIGGER no_thirteen BEFORE INSERT ON vote"
                " FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
        votes.cast(1, 13)
        assert votes.toggle(other, 7).previous == 1
        assert votes.remove_item(other) == 0
        for call in (lambda: votes.toggle(1, 7), lambda: votes.erase_user(7)):
            with pytest.raises(hotcount.HotcountError, match="not you"):
                call()
        # Another vote shows that it is this one's fault alone.
        votes.cast(other, 7)
        assert votes.toggle(1, 7).value == 1
        assert votes.stats()["refused_votes"] == 1


WORKER = """
import hotcount, sys
votes = hotcount.Votes(
    hotcount.Database(sys.argv[1], timeout=60),
    hotcount.Redis(sys.argv[2], timeout=60, silence_limit=60),
    "write_behind",
)
worker = votes.sync_worker()
worker.run_once()
print("ready", flush=True)
sys.stdin.readline()
try:
    worker.run_once()
except hotcount.HotcountError:
    pass
print("done", flush=True)
"""


@pytest.mark.long
def test_a_worker_that_was_stopped_with_its_page_brings_no_removed_vote_back(
    votes: hotcount.Votes, url: str, proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    # In the stream with which the worker's second round begins.
    item = next(item for item in range(1, 41) if shard_of(item, 16) == 1)
    votes.cast(item, 6)
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, url, proxy.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        votes.cast(item, 7)
        proxy.hold(SERVER_TO_CLIENT)
        program.stdin.write(b"\n")
        program.stdin.flush()
        eventually(lambda: len(pages(direct)) == 1, 20)
        stand_still(program.pid)
        proxy.heal()  # The page is in its socket.
        stopped = time.monotonic()
        age(direct)
        assert votes.remove_item(item) == 2
        # Longer than the 10 s in which a page is written; others would wait for 30.
        eventually(lambda: time.monotonic() > stopped + 10.5, 20)
        program.send_signal(signal.SIGCONT)
        assert program.stdout.readline() == b"done\n"
    assert (votes.voters(item), int(votes.count(item))) == ([], 0)
