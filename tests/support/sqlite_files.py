"""Votes in a SQLite file, and what another program reads from it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import hotcount

STRATEGIES = ["naive", "slotted", "batched"]


def make_votes(path: Path, strategy: str = "batched", **options: Any) -> hotcount.Votes:
    database = hotcount.Database(f"sqlite:///{path}", timeout=20)
    votes = hotcount.Votes(database, strategy=strategy, **options)  # type: ignore[arg-type]
    votes.create_tables()
    votes.add_items([1, 2])
    return votes


def rows(path: Path, query: str) -> list[Any]:
    """What another program reads from the file."""
    with closing(sqlite3.connect(path)) as other:
        return other.execute(query).fetchall()


def write(path: Path, *scripts: str) -> None:
    with closing(sqlite3.connect(path)) as other:
        for script in scripts:
            other.executescript(script)
