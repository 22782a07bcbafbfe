"""ORMs, psql and voters write to the same votes, and are killed: counts are the rows."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.postgres_votes import session
from tests.support.servers import PostgresDatabase

pytestmark = pytest.mark.server

ROWS_AND_COUNTS = (
    "SELECT c.item, c.n, COALESCE((SELECT SUM(val) FROM vote WHERE item_id = c.item), 0)"
    " FROM vote_count AS c"
)


@pytest.mark.parametrize(
    "seconds", [6, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(300)])]
)
@pytest.mark.parametrize("strategy", ["batched", "naive"])
def test_counts_are_the_rows_at_every_moment_beside_orms_psql_voters_and_kills(
    postgres: PostgresDatabase, strategy: Any, seconds: int
) -> None:
    database = postgres
    votes = hotcount.Votes(hotcount.Database(database.url, timeout=20), None, strategy)
    votes.create_tables(outside_writes="count")
    votes.add_items(range(1, 6))
    url = database.url.replace("postgresql:", "postgresql+psycopg:", 1)
    seeds = iter(range(1, 10_000))

    def start(kind: str) -> subprocess.Popen[bytes]:
        words = [kind, url, str(database.server.folder), database.schema, str(next(seeds))]
        return subprocess.Popen([sys.executable, "-m", "tests.support.outside_writer", *words])

    kinds = ["django", "sqlalchemy", "psql"]
    writers = [start(kind) for kind in kinds]
    drawn = random.Random(1)
    kills = looks = voted = 0
    end = time.monotonic() + seconds
    next_kill = time.monotonic() + 1.5
    try:
        with session(database) as other:
            while time.monotonic() < end:
                for _ in range(20):
                    votes.cast(drawn.randint(1, 5), drawn.randint(1, 50), drawn.randint(0, 3))
                    voted += 1
                rows = other.execute(ROWS_AND_COUNTS).fetchall()
                other.rollback()
                assert all(int(n) == int(stored) for _, n, stored in rows)
                looks += 1
                if time.monotonic() > next_kill:
                    which = drawn.randrange(len(writers))
                    assert writers[which].poll() is None, f"{kinds[which]} ended by itself"
                    writers[which].send_signal(signal.SIGKILL)
                    writers[which].wait()
                    writers[which] = start(kinds[which])
                    kills += 1
                    next_kill = time.monotonic() + 1.0
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    eventually(
        lambda: (
            database.psql(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND"
                " pid <> pg_backend_pid() AND query LIKE '%vote%'"
            )
            == "0"
        )
    )
    assert kills >= 2
    assert looks > 10
    others = int(database.psql("SELECT count(*) FROM vote WHERE user_id >= 1000"))
    assert others > 20, "the writers wrote nothing"
    assert votes.reconcile(dry_run=True) == []
