"""The statements of hotcount.integrations.sqlalchemy, by dialect and by the names of the tables.

They agree with what the core writes (cpp/src/votes, cpp/src/counter/slot_table.cpp): both count in
the same rows at once.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql


def _place_of(strategy: str, dialect: str) -> str:
    """As count_place in cpp/src/votes/tables/layout.cpp."""
    if dialect == "sqlite":
        return {"slotted": "cells", "cached": "cache"}.get(strategy, "item")
    return {"naive": "item", "cached": "cache"}.get(strategy, "journal")


@dataclass(frozen=True)
class CounterText:
    update: sa.TextClause | None
    """key, slot, n; None where the upsert alone is as good."""
    find: sa.TextClause | None
    """key, slot: where an update that finds no row would lock the gap; -> 1 if the row is there
    or NULL, and the session's sql_mode."""
    add: sa.TextClause
    sum: sa.TextClause


@dataclass(frozen=True)
class VoteText:
    """The statements of a call, in their order; None for those that it does without."""

    place: str
    folds: bool
    """Its rows are in the journal until somebody folds them."""
    look: sa.TextClause | None
    """-> the place and the transaction's isolation. At READ COMMITTED that is enough: write_vote
    looks again, and leaves the vote alone where the counts are kept elsewhere by then."""
    hold_place: sa.TextClause
    """-> the place; in MySQL also the session's sql_mode, and whether an item that may have to be
    made is there."""
    add_item: sa.TextClause | None
    lock_item: sa.TextClause | None
    write_vote: sa.TextClause
    """item, user, value, version; -> prev, val where the dialect can."""
    read_vote: sa.TextClause | None
    note: sa.TextClause | None
    """item, difference: the journal's row, where write_vote has not written it."""
    find_cell: sa.TextClause | None
    bump_cell: sa.TextClause | None
    insert_cell: sa.TextClause | None
    bump_item: sa.TextClause | None
    ask_recount: sa.TextClause | None
    count: sa.TextClause


class _Grammar:
    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def quote(self, name: str) -> str:
        mark = "`" if self.dialect == "mysql" else '"'
        # text() takes ":name" for a parameter.
        return mark + name.replace(mark, 2 * mark).replace(":", r"\:") + mark

    def upsert(self, key: str) -> str:
        if self.dialect == "mysql":
            return " ON DUPLICATE KEY UPDATE "
        return f" ON CONFLICT ({key}) DO UPDATE SET "

    def excluded(self, column: str) -> str:
        return f"VALUES({column})" if self.dialect == "mysql" else f"excluded.{column}"

    def or_nothing(self, key: str) -> str:
        if self.dialect == "mysql":
            return f" ON DUPLICATE KEY UPDATE {key} = {key}"
        return " ON CONFLICT DO NOTHING"

    def total(self, column: str, more: str) -> str:
        """The sum, or an error where it leaves 64 bits: SQLite would make it a real in silence."""
        total = f"COALESCE({column}, 0) + {more}"
        if self.dialect != "sqlite":
            return total
        # Nothing but abs() of the least integer raises an error in an expression.
        least = "(-9223372036854775807 - 1)"
        return f"CASE WHEN typeof({total}) = 'integer' THEN {total} ELSE abs({least}) END"

    def share(self) -> str:
        return {"sqlite": "", "postgresql": " FOR SHARE", "mysql": " LOCK IN SHARE MODE"}[
            self.dialect
        ]

    def key_share(self) -> str:
        """Keeps the row there, and keeps nobody from changing its other columns."""
        return " FOR KEY SHARE" if self.dialect == "postgresql" else self.share()

    def typed(self, name: str, kind: type) -> str:
        """A parameter where PostgreSQL knows no column that it is for."""
        if self.dialect != "postgresql":
            return f":{name}"
        column = {int: "bigint", uuid.UUID: "uuid"}.get(kind, "text")
        return f"CAST(:{name} AS {column})"

    def id_type(self, kind: type) -> sa.types.TypeEngine[Any]:
        if kind is int:
            return sa.BigInteger()
        if kind is uuid.UUID and self.dialect == "postgresql":
            return postgresql.UUID(as_uuid=False)
        return sa.String()


@lru_cache(maxsize=256)
def counter_text(
    dialect: str, table: str, key_column: str, slot_column: str, count_column: str
) -> CounterText:
    g = _Grammar(dialect)
    t, key, slot, count = map(g.quote, (table, key_column, slot_column, count_column))
    types = (sa.bindparam("slot", type_=sa.BigInteger()), sa.bindparam("n", type_=sa.BigInteger()))
    add = (
        f"INSERT INTO {t} ({key}, {slot}, {count}) VALUES (:key, :slot, :n)"
        f"{g.upsert(f'{key}, {slot}')}{count} = {g.total(f'{t}.{count}', g.excluded(count))}"
    )
    # An upsert burns a value of a surrogate id, and may take gap locks in InnoDB.
    update = (
        f"UPDATE {t} SET {count} = {g.total(count, ':n')} WHERE {key} = :key AND {slot} = :slot"
    )
    return CounterText(
        update=None if dialect == "sqlite" else sa.text(update).bindparams(*types),
        find=sa.text(
            f"SELECT (SELECT 1 FROM {t} WHERE {key} = :key AND {slot} = :slot), @@sql_mode"
        ).bindparams(types[0])
        if dialect == "mysql"
        else None,
        add=sa.text(add).bindparams(*types),
        sum=sa.text(f"SELECT COALESCE(SUM({count}), 0) FROM {t} WHERE {key} = :key"),
    )


@lru_cache(maxsize=256)
def vote_text(
    dialect: str,
    strategy: str,
    item_table: str,
    item_id: str,
    item_count: str,
    vote_table: str,
    vote_item: str,
    vote_user: str,
    item_type: type,
    user_type: type,
    foreign_key: bool,
    missing_items: str,
    anonymous: bool = False,
) -> VoteText:
    """The statements over one item and, `anonymous`, the table of votes without a user."""
    g = _Grammar(dialect)
    item, id_, count = map(g.quote, (item_table, item_id, item_count))
    of_users, without_user = map(g.quote, (vote_table, vote_table + "_anonymous"))
    vote = without_user if anonymous else of_users
    voted, voter = map(g.quote, (vote_item, "op_id" if anonymous else vote_user))
    cell, journal, meta, again = (
        g.quote(vote_table + end) for end in ("_cell", "_journal", "_meta", "_recount")
    )
    known: dict[str, sa.types.TypeEngine[Any]] = {
        "item": g.id_type(item_type),
        "user": g.id_type(str if anonymous else user_type),
        "value": sa.BigInteger(),
        "version": sa.BigInteger(),
        "difference": sa.BigInteger(),
        "slot": sa.BigInteger(),
    }

    def text(sql: str, *names: str) -> sa.TextClause:
        return sa.text(sql).bindparams(*(sa.bindparam(name, type_=known[name]) for name in names))

    # The row keeps what it was. Assignments go from left to right in MySQL, so that what decides
    # comes after what it decides about.
    version = g.excluded("version")
    applies = f"({version} IS NULL OR {vote}.version IS NULL OR {vote}.version < {version})"
    upsert = (
        f"{g.upsert(f'{voted}, {voter}')}prev = {vote}.val, "
        f"val = CASE WHEN {applies} THEN {g.excluded('val')} ELSE {vote}.val END, "
        f"version = CASE WHEN {applies} THEN COALESCE({version}, {vote}.version) "
        f"ELSE {vote}.version END"
    )
    columns = f"INSERT INTO {vote} ({voted}, {voter}, val, prev, version) "
    write = f"{columns}VALUES (:item, :user, :value, 0, :version){upsert}"
    returns = dialect != "mysql"
    place = _place_of(strategy, dialect)
    mark = f"{meta} WHERE name = 'counted_in'"
    # batched on PostgreSQL: one statement. Who moves the counts waits for every transaction that
    # has written votes, and a statement that waited for him reads its snapshot after his commit:
    # so the mark needs no lock, but at the levels whose snapshot is the transaction's.
    at_once = dialect == "postgresql" and strategy == "batched"
    if at_once:
        source = (
            f"SELECT {g.typed('item', item_type)}, "
            f"{g.typed('user', str if anonymous else user_type)}, {g.typed('value', int)}, 0, "
            f"{g.typed('version', int)} FROM {meta} WHERE name = 'counted_in' AND "
            f"value = '{place}'"
        )
        write = (
            f"WITH w AS ({columns}{source}{upsert} RETURNING prev, val), "
            f"noted AS (INSERT INTO {journal} (item, diff) "
            f"SELECT {g.typed('item', item_type)}, val - prev FROM w WHERE val <> prev) "
            "SELECT prev, val FROM w"
        )
    elif returns:
        write += " RETURNING prev, val"
    # As in the core, or two would wait for each other. Or where nothing else refuses a vote for an
    # item that is not there: SQLite looks at foreign keys only where its connection was told to.
    locks = None
    if strategy == "naive" and dialect == "mysql":
        locks = " FOR UPDATE"
    elif dialect == "sqlite" or not foreign_key:
        locks = g.key_share()
    counts = {
        "item": f"SELECT COALESCE({count}, 0) FROM {item} WHERE {id_} = :item",
        "cells": f"SELECT COALESCE(SUM(n), 0) FROM {cell} WHERE item = :item",
        "journal": f"SELECT (SELECT COALESCE(SUM(n), 0) FROM {cell} WHERE item = :item) + "
        f"(SELECT COALESCE(SUM(diff), 0) FROM {journal} WHERE item = :item)",
        # Slot -2 is the item's opening balance.
        "cache": "SELECT "
        + " + ".join(
            f"(SELECT COALESCE(SUM({column}), 0) FROM {table} WHERE {key} = :item)"
            for column, table, key in (
                ("val", of_users, voted),
                ("val", without_user, voted),
                ("n", cell, "slot = -2 AND item"),
            )
        ),
    }
    in_cells = strategy == "slotted"
    creates = missing_items == "create"
    there = f"(SELECT 1 FROM {item} WHERE {id_} = :item)" if creates else "NULL"
    return VoteText(
        place=place,
        folds=place == "journal" and not in_cells,
        look=text(f"SELECT value, current_setting('transaction_isolation') FROM {mark}")
        if at_once
        else None,
        hold_place=text(
            f"SELECT value, @@sql_mode, {there} FROM {mark}{g.share()}", *("item",) * creates
        )
        if dialect == "mysql"
        else text(f"SELECT value FROM {mark}{g.share()}"),
        # Where it is taken, MySQL's upsert would keep the item's row from everybody else.
        add_item=text(
            f"INSERT INTO {item} ({id_}) VALUES (:item)"
            f"{'' if dialect == 'mysql' else g.or_nothing(id_)}",
            "item",
        )
        if creates
        else None,
        lock_item=None
        if locks is None
        else text(f"SELECT 1 FROM {item} WHERE {id_} = :item{locks}", "item"),
        write_vote=text(write, "item", "user", "value", "version"),
        read_vote=None
        if returns
        # Locked, which the upsert has done already, and so read as it is: a plain read under
        # REPEATABLE READ has the row as the transaction's snapshot has it, unless the upsert has
        # changed it.
        else text(
            f"SELECT prev, val FROM {vote} WHERE {voted} = :item AND {voter} = :user FOR UPDATE",
            "item",
            "user",
        ),
        note=text(
            f"INSERT INTO {journal} (item, diff) VALUES (:item, :difference)",
            *("item", "difference"),
        )
        if place == "journal" and not in_cells and not at_once
        else None,
        find_cell=text(
            f"SELECT (SELECT 1 FROM {cell} WHERE item = :item AND slot = :slot), @@sql_mode",
            *("item", "slot"),
        )
        if in_cells and dialect == "mysql"
        else None,
        bump_cell=text(
            f"UPDATE {cell} SET n = {g.total('n', ':difference')}, ver = ver + 1 "
            "WHERE item = :item AND slot = :slot",
            *("difference", "item", "slot"),
        )
        if in_cells
        else None,
        insert_cell=text(
            f"INSERT INTO {cell} (item, slot, n, ver) VALUES (:item, :slot, :difference, 1)"
            f"{g.upsert('item, slot')}n = {g.total(f'{cell}.n', g.excluded('n'))}, "
            f"ver = {cell}.ver + 1",
            *("difference", "item", "slot"),
        )
        if in_cells
        else None,
        bump_item=text(
            f"UPDATE {item} SET {count} = {g.total(count, ':difference')} WHERE {id_} = :item",
            *("difference", "item"),
        )
        if place == "item"
        else None,
        ask_recount=text(
            f"INSERT INTO {again} (item, asked) VALUES (:item, 1)"
            f"{g.upsert('item')}asked = {again}.asked + 1",
            "item",
        )
        if place == "cache"
        else None,
        count=text(counts[place], "item"),
    )
