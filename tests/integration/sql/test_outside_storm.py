"""Other programs and voters write to the same votes, and are killed: counts are the rows."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.postgres_votes import session
from tests.support.servers import PostgresDatabase
from tests.support.sql_votes import make_votes
from tests.support.sqlite_files import rows, write
from tests.support.sqlite_writers import PROGRAMS

ROWS_AND_COUNTS = (
    "SELECT c.n, COALESCE((SELECT SUM(val) FROM vote WHERE item_id = c.item), 0)"
    " FROM vote_count AS c"
)


def storm(
    votes: hotcount.Votes,
    kinds: Iterable[str],
    words: Callable[[str, int], list[str]],
    look: Callable[[], list[Any]],
    seconds: float,
) -> None:
    """Votes and looks beside programs, one of which is killed and started again now and then."""
    seeds = itertools.count(1)

    def start(kind: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, *words(kind, next(seeds))])

    writers = {kind: start(kind) for kind in kinds}
    drawn = random.Random(1)
    kills = looks = 0
    end = time.monotonic() + seconds
    next_kill = time.monotonic() + 1.5
    try:
        while time.monotonic() < end:
            for _ in range(5):
                votes.cast(drawn.randint(1, 5), drawn.randint(1, 50), drawn.randint(0, 3))
            assert [(n, stored) for n, stored in look() if int(n) != int(stored)] == []
            looks += 1
            if time.monotonic() > next_kill:
                kind = drawn.choice(list(writers))
                assert writers[kind].poll() is None, f"{kind} ended by itself"
                writers[kind].kill()
                writers[kind].wait()
                writers[kind] = start(kind)
                kills += 1
                next_kill = time.monotonic() + 0.8
    finally:
        for writer in writers.values():
            writer.kill()
            writer.wait()
    assert kills >= 2
    assert looks > 10


def lasting(seconds: int) -> pytest.MarkDecorator:
    minute = pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(300)])
    return pytest.mark.parametrize("seconds", [seconds, minute])


# Ours count our own votes only where the application has triggers, too.
BESIDE = "CREATE TRIGGER beside AFTER INSERT ON person BEGIN DELETE FROM person WHERE id = 0; END;"


@lasting(4)
@pytest.mark.parametrize(("strategy", "beside"), [("batched", ""), ("slotted", BESIDE)])
def test_counts_in_a_file_are_the_rows_at_every_moment(
    database_path: Path, strategy: str, beside: str, seconds: int
) -> None:
    write(database_path, "CREATE TABLE person (id INTEGER PRIMARY KEY);" + beside)
    with make_votes(database_path, strategy, items=range(1, 6), outside_writes="count") as votes:
        storm(
            votes,
            PROGRAMS,
            lambda kind, seed: ["-c", PROGRAMS[kind], str(database_path), str(seed), strategy],
            lambda: rows(database_path, ROWS_AND_COUNTS),
            seconds,
        )
        wrote = "SELECT COUNT(DISTINCT user_id / 1000) >= 3 FROM vote"
        assert rows(database_path, wrote) == [(1,)]
        fired("outside write")
        assert votes.reconcile(dry_run=True) == []


@lasting(6)
@pytest.mark.parametrize("strategy", ["batched", "naive"])
def test_counts_on_a_server_are_the_rows_at_every_moment_beside_orms_and_psql(
    postgres: PostgresDatabase, strategy: str, seconds: int
) -> None:
    votes = make_votes(postgres, strategy, items=range(1, 6), outside_writes="count")
    url = postgres.url.replace("postgresql:", "postgresql+psycopg:", 1)
    where = [url, str(postgres.server.folder), postgres.schema]
    with session(postgres) as other:

        def look() -> list[Any]:
            found = other.execute(ROWS_AND_COUNTS).fetchall()
            other.rollback()
            return found

        storm(
            votes,
            ["django", "sqlalchemy", "psql"],
            lambda kind, seed: ["-m", "tests.support.outside_writer", kind, *where, str(seed)],
            look,
            seconds,
        )
    still = (
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND"
        " pid <> pg_backend_pid() AND query LIKE '%vote%'"
    )
    eventually(lambda: postgres.psql(still) == "0")
    others = int(postgres.psql("SELECT count(*) FROM vote WHERE user_id >= 1000"))
    assert others > 20, "the writers wrote nothing"
    fired("outside write", others)
    assert votes.reconcile(dry_run=True) == []
