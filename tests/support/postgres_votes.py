"""Sessions that are in the way of votes on PostgreSQL, and calls that wait for them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hotcount
import psycopg

from tests.support.servers import PostgresDatabase


@contextmanager
def session(database: PostgresDatabase, sql: str = "") -> Iterator[psycopg.Connection[Any]]:
    """A session that is not ours, in a transaction, after the statement."""
    with database.connect() as other:
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


class Background:
    """A call in a thread. Calling this waits for what it returned or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._call()
        except hotcount.HotcountError as error:
            self._outcome = error

    def is_over(self, seconds: float = 0) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def __call__(self) -> Any:
        assert self.is_over(60)
        return self._outcome


def in_background(call: Callable[[], Any]) -> Background:
    return Background(call)
