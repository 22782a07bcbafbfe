"""WriteBehindCounter and writers whose rows are gone from SQL."""

import sqlite3
import time
from pathlib import Path

import hotcount
import pytest
from hotcount import Database, Redis, WriteBehindCounter

DAY = 86_400


def counter(database: Database | str, cache: Redis) -> WriteBehindCounter:
    return WriteBehindCounter(database, cache, flush_interval=60)


def cell_of(cache: Redis, key: str) -> bytes:
    (found,) = cache.execute("KEYS", f"{cache.prefix!s}views:*:c:{key}")
    return bytes(found)


def writer_of(days_ago: float) -> str:
    return f"{int(time.time() - days_ago * DAY):010x}-0123456789abcdef"


def test_a_read_counts_no_cell_whose_row_may_be_gone(database: Database, cache: Redis) -> None:
    views = counter(database, cache)
    views.create_tables()
    worker = views.sync_worker()
    views.add("k")
    cells = cell_of(cache, "k")
    # Its adds came to SQL, its row has gone, and a message of it comes late.
    cache.execute("HSET", cells, writer_of(6.9), "100 0")
    worker.run_once()
    assert views.get("k") == 101
    views.add("k")
    cache.execute("HSET", cells, writer_of(8), "100 0")
    assert (views.get("k").value, views.get("k").pending) == (102, 1)
    done = worker.run_once()
    assert (done.saved, done.unsettled, done.at_risk) == (1, 1, 100)
    assert cache.execute("HLEN", cells) == 1, "it stays"
    assert (views.get("k").value, views.get("k").pending) == (102, 0)


def test_a_refused_cell_keeps_no_rows_of_old_writers(database_path: Path, cache: Redis) -> None:
    views = counter(f"sqlite:///{database_path}", cache)
    views.create_tables()
    views.add("k")
    cache.execute("HSET", cell_of(cache, "k"), writer_of(8), "1 0")
    views.sync_worker().run_once()  # It forgets writers from then on, and takes both cells.
    views.add("k")
    cache.execute("HSET", cell_of(cache, "k"), writer_of(9), "5 0")
    with sqlite3.connect(database_path) as direct:
        direct.execute(
            "INSERT INTO hotcount_views_cell VALUES ('other', ?, 1, 0, 0, 0)", (writer_of(10),)
        )
    direct.close()
    assert views.sync_worker().run_once().unsettled == 1
    with sqlite3.connect(database_path) as direct:
        (old,) = direct.execute(
            "SELECT count(*) FROM hotcount_views_cell WHERE writer < ?", (writer_of(7),)
        ).fetchone()
    direct.close()
    assert old == 0


def test_a_cell_not_saved_yet_is_not_made_too_old(database: Database, cache: Redis) -> None:
    views = counter(database, cache)
    views.create_tables()
    views.add("full", 2**63 - 1, ack="sql")
    views.add("full")
    cells = cell_of(cache, "full")
    cache.execute("HSET", cells, writer_of(8), "7 0")
    worker = views.sync_worker()
    for _ in range(2):
        with pytest.raises(hotcount.CounterOverflowError, match="full"):
            worker.run_once()
    views.add("full", -8)
    assert worker.run_once().unsettled == 0
    assert views.get("full") == 2**63 - 1
