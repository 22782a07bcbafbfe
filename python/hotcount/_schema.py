"""`hotcount schema`: the SQL of new tables, or the SQL that the tables behind a URL still need."""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Sequence
from typing import Any

import hotcount
from hotcount.functions import (
    dialect_names,
    limiter_schema,
    slotted_counter_schema,
    votes_schema,
    write_behind_schema,
)

ID_TYPES: dict[str, Any] = {"int": int, "str": str, "uuid": uuid.UUID}
NAMES = (
    ("item_table", "item"),
    ("item_id", "id"),
    ("item_count", "vote_count"),
    ("vote_table", "vote"),
    ("vote_item", "item_id"),
    ("vote_user", "user_id"),
    ("vote_value", "val"),
    ("vote_previous", "prev"),
    ("vote_version", "version"),
)


def add_names(parser: argparse._ActionsContainer) -> None:
    """Adds the options for the names of tables and columns and for the types of ids."""
    add = parser.add_argument
    for what in ("item", "user"):
        add(f"--{what}-type", choices=ID_TYPES, default="int", help=f"of {what} ids (default: int)")
    for name, default in NAMES:
        option = f"--{name.replace('_', '-')}"
        add(option, default=default, metavar="NAME", help=f"default: {default}")
    add("--no-item-count", action="store_true", help="the item table has no count column")


def names_of(options: argparse.Namespace) -> dict[str, Any]:
    """The values of the options of add_names(), as parameters of Votes."""
    names = {name: getattr(options, name) for name, _ in NAMES}
    if options.no_item_count:
        names["item_count"] = None
    for what in ("item_type", "user_type"):
        names[what] = ID_TYPES[getattr(options, what)]
    return names


def add_arguments(parser: argparse.ArgumentParser, strategies: Sequence[str]) -> None:
    add = parser.add_argument
    add("--dialect", choices=dialect_names())
    add("--strategy", choices=strategies, default="batched", help="of Votes")
    add_names(parser)
    add("--no-foreign-key", action="store_true", help="the vote tables do not reference the items")
    add(
        "--existing-counts",
        choices=["keep", "recount"],
        help="for counts that differ from the sum of their votes (default: refuse)",
    )
    add(
        "--outside-writes",
        choices=["none", "deletes", "count"],
        help="triggers that count the writes of other programs; needs a URL",
    )
    add(
        "--timeout",
        type=float,
        default=600,
        metavar="SECONDS",
        help="the time limit for reading the tables of a URL (default: 600)",
    )
    add("--json", action="store_true", help="the result as JSON")


def votes_of_tables(
    database: hotcount.Database | str, strategy: Any, names: dict[str, Any]
) -> hotcount.Votes:
    """Votes whose tables alone are used. Some strategies need a cache in the constructor; nothing
    connects to it."""
    caches = {"cached": "memory://", "write_behind": "redis://localhost"}
    return hotcount.Votes(database, caches.get(strategy), strategy, **names)


def migration(options: argparse.Namespace, names: dict[str, Any]) -> None:
    """Prints the SQL that the tables behind a URL still need."""
    with votes_of_tables(options.url, options.strategy, names) as votes:
        text = votes.migration(
            existing_counts=options.existing_counts,
            outside_writes=options.outside_writes,
            timeout=options.timeout,
        )
    if options.json:
        print(json.dumps({"migration": text}, indent=2))
    elif text:
        print(text, end="")
    else:
        print("hotcount schema: nothing is missing", file=sys.stderr)


def run(options: argparse.Namespace) -> int:
    names = names_of(options)
    names["foreign_key"] = not options.no_foreign_key
    if options.url:
        migration(options, names)
        return 0
    if not options.dialect:
        options.refuse("give --dialect, or the URL of a database")
    dialect = options.dialect
    parts = {
        "votes": votes_schema(dialect, options.strategy, **names).strip(),
        "slotted_counter": slotted_counter_schema(dialect).strip(),
        "write_behind_counter": write_behind_schema(dialect).strip(),
        "limiter": limiter_schema(dialect).strip(),
    }
    if options.json:
        print(json.dumps({"dialect": dialect, **parts}, indent=2))
    else:
        print(f"-- Votes, strategy {options.strategy}\n{parts['votes']}\n")
        print(f"-- SlottedCounter\n{parts['slotted_counter']}\n")
        print(f"-- WriteBehindCounter\n{parts['write_behind_counter']}\n")
        print(f"-- Limiter\n{parts['limiter']}")
    return 0
