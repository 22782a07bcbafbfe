"""Votes over a database that its URL names, with the options of both in one call."""

from __future__ import annotations

from typing import Any

import hotcount

from tests.support.servers import PostgresDatabase

STRATEGIES = ["naive", "slotted", "batched"]
OF_DATABASE = {"timeout", "idle_timeout", "max_writers", "max_readers", "prepare"}


def open_votes(
    where: str | PostgresDatabase, strategy: Any = "naive", **options: Any
) -> hotcount.Votes:
    url = where if isinstance(where, str) else where.url
    own = {name: options.pop(name) for name in OF_DATABASE & options.keys()}
    if strategy == "cached":
        options.setdefault("cache", hotcount.Memory())
    database = hotcount.Database(url, **{"timeout": 20, **own})
    return hotcount.Votes(database, strategy=strategy, **options)


def make_votes(
    where: str | PostgresDatabase, strategy: Any = "naive", **options: Any
) -> hotcount.Votes:
    """With its tables and three items."""
    votes = open_votes(where, strategy, **options)
    votes.create_tables(timeout=20)
    votes.add_items([1, 2, 3], timeout=20)
    return votes
