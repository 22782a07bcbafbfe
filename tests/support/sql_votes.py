"""Votes over a database that its URL names, with the options of both in one call."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hotcount

from tests.support.servers import PostgresDatabase
from tests.support.sqlalchemy_side import BothSides

STRATEGIES = ["naive", "slotted", "batched"]
OF_DATABASE = {"timeout", "idle_timeout", "max_writers", "max_readers", "prepare"}
Where = str | Path | PostgresDatabase | BothSides


def open_database(where: Where, **options: Any) -> hotcount.Database:
    if isinstance(where, BothSides):
        return where.database
    if isinstance(where, PostgresDatabase):
        where = where.url
    url = f"sqlite:///{where}" if isinstance(where, Path) else where
    return hotcount.Database(url, **{"timeout": 20, **options})


def open_votes(where: Where, strategy: Any = "naive", **options: Any) -> hotcount.Votes:
    own = {name: options.pop(name) for name in OF_DATABASE & options.keys()}
    if strategy == "cached":
        options.setdefault("cache", hotcount.Memory())
    return hotcount.Votes(open_database(where, **own), strategy=strategy, **options)


def make_votes(
    where: Where,
    strategy: Any = "naive",
    *,
    items: Iterable[Any] = (1, 2, 3),
    outside_writes: Any = None,
    **options: Any,
) -> hotcount.Votes:
    """With its tables and items."""
    votes = open_votes(where, strategy, **options)
    votes.create_tables(timeout=20, outside_writes=outside_writes)
    votes.add_items(list(items), timeout=20)
    return votes
