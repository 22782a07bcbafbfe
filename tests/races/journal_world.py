"""Tables, row locks and transactions of a model of the votes' journal (journal_model.py).

- A transaction keeps its writes until it commits, and holds its rows until then.
- A statement on PostgreSQL, and a plain read on MariaDB, sees the tables as they were committed
  when the statement began (READ COMMITTED). A lock that it takes later does not renew what it sees.
- What a statement locks or changes it finds as committed last, after it has waited for the holder.
  MariaDB's locking reads see only what was committed last.
- Any actor with a transaction under way may die: its writes and its locks are gone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

OPENING = -2
FOLD = -1

Key = tuple[Any, ...]


class Row(NamedTuple):
    """A row of the journal. by: (actor, number), which tells equal rows apart."""

    by: tuple[int, int]
    item: int
    diff: int


class Cell(NamedTuple):
    n: int
    ver: int


class Tables(NamedTuple):
    mark: str = "journal"
    items: tuple[int | None, ...] = (0,)  # vote_count; None: no such item.
    votes: tuple[tuple[tuple[int, int], int], ...] = ()  # (item, user), val
    cells: tuple[tuple[tuple[int, int], Cell], ...] = ()  # (item, slot), cell
    journal: frozenset[Row] = frozenset()
    truncated: int = 0


class Actor(NamedTuple):
    kind: str
    script: tuple[Any, ...]  # What it has yet to do: an entry for each transaction.
    step: str = "rest"
    sees: Tables | None = None  # Its statement's snapshot.
    writes: tuple[Key, ...] = ()
    memo: tuple[Any, ...] = ()
    rows: int = 0  # Journal rows that it has made.


class World(NamedTuple):
    tables: Tables
    actors: tuple[Actor, ...]
    locks: frozenset[tuple[Key, int, str]] = frozenset()
    copies: tuple[Cell | None, ...] = (None,)
    deaths: int = 0  # That may still happen.


@dataclass(frozen=True)
class Design:
    """How the steps are done. The defaults are the protocol; the other values look right."""

    dialect: str = "postgres"
    fold_alone: bool = True  # Of two folds at once the second goes away.
    fold_slot: int = FOLD
    fold_sums: str = "deleted"  # Or "page": the rows as its snapshot has them.
    fold_waits: bool = False  # For item rows that others hold, instead of passing over them.
    fold_comes_back: bool = True  # To the items that it passed over.
    fold_truncates: bool = False
    fold_locks_in_its_statement: bool = True  # PostgreSQL: so its snapshot may be older.
    fold_holds_mark: bool = True  # It looks again, with a lock, before it takes rows.
    page: int = 0  # Rows that a fold takes; 0: all.
    reconcile_lock: str = "before"  # Or "inside" its statement, or "none".
    reconcile_pending: bool = True
    switch_stops_folds: bool = True
    switch_empties: bool = True  # The journal.
    switch_stops_voters: bool = True
    removal_stops_folds: bool = True
    removal_stops_reconciles: bool = True
    removal_holds_item: bool = True  # Before its last votes.
    removal_order: tuple[str, ...] = ("votes", "rows", "cells")  # Rows: the journal's.
    mark_held: bool = True  # MariaDB: a voter reads the mark with a shared lock.
    foreign_key: bool = True
    short_joins_item: bool = True  # Where there is no foreign key.
    copies: bool = False  # A fold publishes them.
    copy_has_pending: bool = False  # One that a reader makes.
    copy_is_versioned: bool = True

    # What the checks allow.
    drifts: tuple[int, ...] = (0,)
    lags: bool = False  # vote_count may be behind without a journal row, as slotted leaves it.


class Waits(Exception):
    """The step waits for these actors."""

    def __init__(self, holders: Iterable[int]) -> None:
        self.holders = tuple(holders)


# -- tables -----------------------------------------------------------------------------


def found(pairs: tuple[tuple[tuple[int, int], Any], ...], key: tuple[int, int]) -> Any:
    return next((value for each, value in pairs if each == key), None)


def with_entry(
    pairs: tuple[tuple[tuple[int, int], Any], ...], key: tuple[int, int], value: Any
) -> tuple[tuple[tuple[int, int], Any], ...]:
    others = [pair for pair in pairs if pair[0] != key]
    return tuple(sorted(others if value is None else [*others, (key, value)]))


def votes_of(tables: Tables, item: int) -> int:
    return sum(val for (of, _), val in tables.votes if of == item)


def cells_of(tables: Tables, item: int, but: int | None = None) -> int:
    return sum(cell.n for (of, slot), cell in tables.cells if of == item and slot != but)


def pending_of(tables: Tables, item: int) -> int:
    return sum(row.diff for row in tables.journal if row.item == item)


def truth_of(tables: Tables, item: int) -> int:
    opening = found(tables.cells, (item, OPENING))
    return votes_of(tables, item) + (opening.n if opening else 0)


def counted_of(tables: Tables, item: int) -> int:
    return cells_of(tables, item) + pending_of(tables, item)


def applied(tables: Tables, writes: Iterable[Key]) -> Tables:
    for write in writes:
        what, *values = write
        if what == "vote":
            tables = tables._replace(votes=with_entry(tables.votes, values[0], values[1]))
        elif what == "cell":
            tables = tables._replace(cells=with_entry(tables.cells, values[0], values[1]))
        elif what == "item":
            item, count = values
            tables = tables._replace(items=(*tables.items[:item], count, *tables.items[item + 1 :]))
        elif what == "note":
            tables = tables._replace(journal=tables.journal | {values[0]})
        elif what == "unnote":
            tables = tables._replace(journal=tables.journal - {values[0]})
        elif what == "truncate":
            tables = tables._replace(journal=frozenset(), truncated=tables.truncated + 1)
        else:
            tables = tables._replace(mark=values[0])
    return tables


# -- locks ------------------------------------------------------------------------------

# The four for rows of PostgreSQL. "share" and "update" are MariaDB's S and X, and table locks'.
CONFLICTS = {
    "key share": {"update"},
    "share": {"no key update", "update"},
    "no key update": {"share", "no key update", "update"},
    "update": {"key share", "share", "no key update", "update"},
}


VOTES = ("votes",)  # PostgreSQL: the tables of votes, which a switch locks.
MARK = ("mark",)  # Its row, which a switch locks, and on MariaDB each voter.
FOLDING = ("folding",)  # The fold's lock.
RECONCILING = ("reconciling",)  # A mark of its own, which voters leave alone.


def holders(world: World, me: int, key: Key, mode: str) -> list[int]:
    return [
        actor
        for each, actor, held in world.locks
        if each == key and actor != me and held in CONFLICTS[mode]
    ]


def locked(world: World, me: int, *wanted: tuple[Key, str]) -> World:
    """With these locks, or Waits."""
    for key, mode in wanted:
        others = holders(world, me, key, mode)
        if others:
            raise Waits(others)
    return world._replace(locks=world.locks | {(key, me, mode) for key, mode in wanted})


def put(world: World, me: int, **changes: Any) -> World:
    actor = world.actors[me]._replace(**changes)
    return world._replace(actors=(*world.actors[:me], actor, *world.actors[me + 1 :]))


def released(world: World, me: int) -> World:
    return world._replace(locks=frozenset(lock for lock in world.locks if lock[1] != me))


def committed(world: World, me: int, step: str = "rest", memo: tuple[Any, ...] = ()) -> World:
    tables = applied(world.tables, world.actors[me].writes)
    world = released(world._replace(tables=tables), me)
    return put(world, me, step=step, sees=None, writes=(), memo=memo)


def begun(world: World, me: int, step: str, *more: Any) -> World:
    """A transaction of the script's next entry, whose first statement begins now."""
    entry = world.actors[me].script[0]
    world = put(world, me, script=world.actors[me].script[1:], step=step, memo=(entry, *more))
    return put(world, me, sees=world.tables)


def noted(world: World, me: int, *rows: tuple[int, int]) -> World:
    actor = world.actors[me]
    new = tuple(
        ("note", Row((me, actor.rows + number), item, diff))
        for number, (item, diff) in enumerate(rows)
    )
    return put(world, me, writes=actor.writes + new, rows=actor.rows + len(new))


def wrote(world: World, me: int, *writes: Key) -> World:
    return put(world, me, writes=world.actors[me].writes + writes)


def at_rest(actor: Actor) -> bool:
    return actor.step == "rest" and not actor.script


def died(world: World, me: int) -> World:
    world = released(world, me)._replace(deaths=world.deaths - 1)
    return put(world, me, script=(), step="rest", sees=None, writes=(), memo=())
