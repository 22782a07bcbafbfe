"""What the tests of PostgreSQL share: votes on a database, and sessions in their way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hotcount
import psycopg

from tests.support.servers import PostgresDatabase

STRATEGIES = ["naive", "slotted", "batched"]


def make_votes(
    database: PostgresDatabase, strategy: str = "naive", *, timeout: float = 20, **options: Any
) -> hotcount.Votes:
    opened = hotcount.Database(database.url, timeout=timeout)
    votes = hotcount.Votes(opened, None, strategy, **options)  # type: ignore[arg-type]
    votes.create_tables(timeout=20)
    votes.add_items([1, 2, 3], timeout=20)
    return votes


@contextmanager
def session(database: PostgresDatabase, sql: str = "") -> Iterator[psycopg.Connection[Any]]:
    """A session that is not ours, in a transaction, after the statement."""
    with psycopg.connect(
        host=str(database.server.folder),
        user=database.server.superuser,
        dbname="postgres",
        options=f"-c search_path={database.schema}",
    ) as other:
        if sql:
            other.execute(sql)
        yield other


def waiting(database: PostgresDatabase) -> int:
    """How many sessions wait for a lock in one of the database's tables, or a row of it."""
    return int(
        database.psql(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND application_name = 'hotcount'"
        )
    )


def in_background(call: Callable[[], Any]) -> Callable[[], Any]:
    """Starts it in a thread; what is returned waits for what it returned or raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call())
        except hotcount.HotcountError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> Any:
        thread.join(30)
        return outcome[0]

    return result
