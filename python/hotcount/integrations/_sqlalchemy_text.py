"""The core's statements for a transaction of the caller's own, as SQLAlchemy's text().

The statements of each dialect are described in hotcount/detail/votes/integrations.hpp and
hotcount/detail/counter/session_statements.hpp in the core. Here they get the types of their
parameters, and each is made once for all objects over the same tables.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from hotcount import SlottedCounter, Votes


@dataclass(frozen=True)
class CounterText:
    """None: an add does without it."""

    update: sa.TextClause | None
    find: sa.TextClause | None
    add: sa.TextClause
    sum: sa.TextClause

    @property
    def one_writer(self) -> bool:
        """At a time, in the whole database: then more than one slot has no use."""
        return self.update is None


@dataclass(frozen=True)
class VoteText:
    """The statements of a vote, in their order. None: a vote does without it."""

    route: str
    folds: bool
    look: sa.TextClause | None
    hold_route: sa.TextClause
    add_item: sa.TextClause | None
    lock_item: sa.TextClause | None
    write_vote: sa.TextClause
    read_vote: sa.TextClause | None
    note: sa.TextClause | None
    find_cell: sa.TextClause | None
    bump_cell: sa.TextClause | None
    insert_cell: sa.TextClause | None
    bump_item: sa.TextClause | None
    ask_recount: sa.TextClause | None
    # Questions.
    count: sa.TextClause
    vote: sa.TextClause
    votes: sa.TextClause
    voters: sa.TextClause
    voters_after: sa.TextClause


_MOST_TEXTS = 256
_counter_texts: dict[tuple[Any, ...], CounterText] = {}
_vote_texts: dict[tuple[Any, ...], VoteText] = {}
# :name, unless a backslash precedes it, as in a quoted name.
_PARAMETER = re.compile(r"(?<!\\):(\w+)")


# The options that the statements of votes depend on.
_OPTIONS = (
    *("strategy", "item_table", "item_id", "item_count", "vote_table", "vote_item", "vote_user"),
    *("vote_value", "vote_previous", "vote_version", "item_type", "user_type", "foreign_key"),
    "missing_items",
)


def _members(cls: type[CounterText | VoteText], made: dict[str, sa.TextClause]) -> dict[str, Any]:
    return {field.name: made.get(field.name) for field in fields(cls)}


def counter_text(dialect: str, counter: SlottedCounter) -> CounterText:
    key = (dialect, counter.table, counter.key_column, counter.slot_column, counter.count_column)
    found = _counter_texts.get(key)
    if found is None:
        number = sa.BigInteger()
        made = _typed(counter._session_statements(dialect), {"slot": number, "n": number})
        found = CounterText(**_members(CounterText, made))
        _keep(_counter_texts, key, found)
    return found


def vote_text(dialect: str, votes: Votes, anonymous: bool = False) -> VoteText:
    """The statements over one item and, `anonymous`, the table of votes without a user."""
    key = (dialect, anonymous, *(getattr(votes, name) for name in _OPTIONS))
    found = _vote_texts.get(key)
    if found is None:
        texts = votes._session_statements(dialect, anonymous)
        route = texts.pop("route")
        folds = texts.pop("folds", None) is not None
        types: dict[str, sa.types.TypeEngine[Any]] = {
            "item": _id_type(dialect, votes.item_type),
            "user": _id_type(dialect, str if anonymous else votes.user_type),
        }
        types["items"] = types["item"]
        types["after"] = types["user"]
        for name in ("value", "version", "difference", "slot", "limit"):
            types[name] = sa.BigInteger()
        made = _members(VoteText, _typed(texts, types))
        found = VoteText(**{**made, "route": route, "folds": folds})
        _keep(_vote_texts, key, found)
    return found


def _typed(
    texts: dict[str, str], types: dict[str, sa.types.TypeEngine[Any]]
) -> dict[str, sa.TextClause]:
    """Statements with typed parameters; a parameter without a type is left to the driver."""
    made = {}
    for name, text in texts.items():
        known = sorted(set(_PARAMETER.findall(text)) & types.keys())
        binds = (
            sa.bindparam(parameter, type_=types[parameter], expanding=parameter == "items")
            for parameter in known
        )
        made[name] = sa.text(text).bindparams(*binds)
    return made


def _keep(texts: dict[tuple[Any, ...], Any], key: tuple[Any, ...], made: object) -> None:
    # Tables that are named anew for each test or tenant must not fill the memory.
    if len(texts) >= _MOST_TEXTS:
        texts.clear()
    texts[key] = made


def _id_type(dialect: str, kind: type) -> sa.types.TypeEngine[Any]:
    if kind is int:
        return sa.BigInteger()
    if kind is uuid.UUID and dialect == "postgresql":
        return postgresql.UUID(as_uuid=False)
    return sa.String()
