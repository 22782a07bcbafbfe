"""Votes over a database of MariaDB or MySQL, and what others write there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import hotcount

from tests.support.mariadb_server import MariaDbServer

ITEMS = [1, 2, 3]


def drifts(table: str = "vote", item: str = "item_id") -> str:
    """Items whose counts are not their rows: one statement, so of one instant."""
    return (
        f"SELECT c.item, c.n, COALESCE((SELECT SUM(val) FROM {table} WHERE {item} = c.item), 0) + "
        f"COALESCE((SELECT SUM(val) FROM {table}_anonymous WHERE {item} = c.item), 0) AS votes"
        f" FROM {table}_count AS c HAVING n <> votes"
    )


DRIFTS = drifts()


class VotesOfMariaDb:
    """Votes over one database, and sessions of others."""

    def __init__(self, server: MariaDbServer, database: str) -> None:
        self.server = server
        self.database = database
        self.url = server.url(database)

    def votes(self, strategy: Any = "batched", user: str = "root", **names: Any) -> hotcount.Votes:
        url = self.server.url(self.database, user=user)
        cache = "memory://" if strategy == "cached" else None
        return hotcount.Votes(hotcount.Database(url, timeout=20), cache, strategy, **names)

    def made(self, form: Any, strategy: Any = "batched") -> hotcount.Votes:
        votes = self.votes(strategy)
        votes.create_tables(outside_writes=form)
        votes.add_items(ITEMS)
        votes.cast_many([1] * 4 + [2] * 2, range(1, 7))
        return votes

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        for statement in statements:
            rows = self.server.execute(statement, database=self.database)
        return rows

    def triggers(self) -> set[str]:
        return {row[0] for row in self.run("SHOW TRIGGERS")}

    @contextmanager
    def session(self) -> Iterator[tuple[Any, Any]]:
        with closing(self.server.connect(self.database)) as session, session.cursor() as cursor:
            yield session, cursor


def counts(votes: hotcount.Votes) -> list[int]:
    return list(map(int, votes.count_many(ITEMS, consistency="exact")))
