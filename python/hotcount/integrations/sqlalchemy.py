"""Counts and votes inside your own SQLAlchemy transaction (extra: ``hotcount[sqlalchemy]``).

The calls of this module write in your transaction, which commits or rolls them back with everything
else, and count together with what `counter` and `votes` write themselves, from any process. The
first argument is a Session or a Connection. An AsyncSession and an AsyncConnection are taken too,
and the call is then awaited: ``await cast_vote(session, votes, 7, user=1)``. `VotedMixin` and
`VoteMixin` are for your models of the items and the votes.

- **Locks.** The rows that a call touches stay locked until your transaction ends: let these calls
  be its last, and several of them go in one order everywhere (`increment_many` does so by itself).
  A vote of 'batched' on PostgreSQL, MariaDB or MySQL touches the user's own vote and appends a row
  to the journal, so other votes do not wait for it. With 'slotted' it locks a cell, with 'naive'
  and on SQLite the item. On MariaDB and MySQL the vote's foreign key shares the item's row: the
  item's `vote_count` waits for the end of your transaction; exact counts do not.
- **Counts.** A journal row is in every count of hotcount's at once and reaches `item.vote_count`
  with the next fold. This process folds soon after your connection is back in its pool (or at its
  next commit); so does every other process that votes for these tables, and `hotcount sync`. Where
  none of them runs any more, call `votes.flush()`.
- **Errors.** A transaction that the database gives up (a deadlock; under REPEATABLE READ and
  SERIALIZABLE on PostgreSQL a row that somebody else has changed since your snapshot, SQLSTATE
  40001) is yours to run again, from its beginning. After another error nothing of the call is
  applied and the transaction may continue: each call is a savepoint.
- **Settings.** Every isolation level will do but AUTOCOMMIT, which is a ConfigError wherever it was
  asked for. On MariaDB and MySQL a call is strict whatever the session's sql_mode. Objects of a
  Session that hold a count are not refreshed. A vote of 'write_behind' is a ConfigError: Redis
  orders such votes.

Example::

    from hotcount.integrations.sqlalchemy import cast_vote, increment

    counter = hotcount.SlottedCounter("postgresql:///app")
    votes = hotcount.Votes("postgresql:///app")
    with Session(engine) as session, session.begin():
        session.add(Comment(post_id=7, text="first"))
        increment(session, counter, "comments:7")
        cast_vote(session, votes, 7, user=1)
"""

from __future__ import annotations

import itertools
import os
import random
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

try:
    import sqlalchemy as sa
    from sqlalchemy import event, exc
except ImportError as error:
    raise ImportError(
        "hotcount.integrations.sqlalchemy needs SQLAlchemy 2: pip install 'hotcount[sqlalchemy]'"
    ) from error

from hotcount import Cast, ConfigError, HotcountError, IntegrityError, SlottedCounter, Votes
from hotcount.integrations._sqlalchemy_models import (
    VotedMixin,
    VoteMixin,
    drop_dependents,
    drop_tables,
    include_name,
)
from hotcount.integrations._sqlalchemy_text import CounterText, VoteText, counter_text, vote_text
from hotcount.integrations._sqlalchemy_transaction import (
    SqlMode,
    Where,
    all_or_nothing,
    connection_of,
    id_text,
    in_both,
    integer,
    key_text,
    translated,
    whole,
)

__all__ = [
    "VoteMixin",
    "VotedMixin",
    "Where",
    "cast_vote",
    "count",
    "drop_dependents",
    "drop_tables",
    "get_vote",
    "get_votes",
    "include_name",
    "increment",
    "increment_many",
    "retract_vote",
    "statement",
    "vote_count",
    "voters",
]

# Items of one statement: SQLite takes 32,766 parameters, and 999 before 3.32.
_PAGE = 900

# Where this process begins to count connections: two that began at 0 would meet on every slot.
_places = itertools.count(random.SystemRandom().randrange(1_000_000))


def _new_places() -> None:
    global _places
    _places = itertools.count(random.SystemRandom().randrange(1_000_000))


os.register_at_fork(after_in_child=_new_places)


# -- counters ---------------------------------------------------------------


@in_both
def increment(where: Where, counter: SlottedCounter, key: str | bytes, n: int = 1) -> None:
    """Adds n to the key's count, in the slot of this connection.

    CounterOverflowError: the slot would leave 64 bits; nothing changed.
    """
    _increment(where, counter, [(key_text(key), integer(n, "n"))])


@in_both
def increment_many(
    where: Where, counter: SlottedCounter, amounts: Mapping[str, int] | Mapping[bytes, int]
) -> None:
    """Adds {key: n, ...}, all or nothing, in the order in which every writer takes these rows."""
    _increment(where, counter, [(key_text(key), integer(n, "n")) for key, n in amounts.items()])


def _increment(where: Where, counter: SlottedCounter, amounts: list[tuple[str, int]]) -> None:
    connection = connection_of(where)
    text = counter_text(connection.dialect.name, counter)
    slot = _slot(connection, counter, text)
    with all_or_nothing(connection) as mode:
        for key, n in sorted(amounts):
            _add(connection, mode, text, key, slot, n)


def _add(
    connection: sa.Connection, mode: SqlMode, text: CounterText, key: str, slot: int, n: int
) -> None:
    values = {"key": key, "slot": slot, "n": n}
    _update_or_insert(connection, mode, text.find, text.update, text.add, values)


def _update_or_insert(
    connection: sa.Connection,
    mode: SqlMode,
    find: sa.TextClause | None,
    update: sa.TextClause | None,
    insert: sa.TextClause,
    values: dict[str, Any],
) -> None:
    # Under REPEATABLE READ, which MySQL's sessions have unless told otherwise, an update that finds
    # no row locks the gap, and two that then insert wait for each other.
    there = True
    if find is not None:
        found, sql_mode = connection.execute(find, values).one()
        there = found is not None
        mode.be_strict(sql_mode)
    if there and update is not None and connection.execute(update, values).rowcount > 0:
        return
    connection.execute(insert, values)


@in_both
def count(where: Where, counter: SlottedCounter, key: str | bytes) -> int:
    """The key's count as this transaction sees it, its own adds included."""
    connection = connection_of(where)
    text = counter_text(connection.dialect.name, counter)
    with translated():
        found = connection.execute(text.sum, {"key": key_text(key)}).scalar_one()
    return whole(found)


def statement(counter: SlottedCounter, key: str | bytes, n: int = 1) -> sa.TextClause:
    """One statement that adds n to the key's count, in a slot that is drawn anew for each.

    For `Connection.execute` and `Session.execute` on the database that `counter` was made for.
    `increment` picks the slot by the connection, raises hotcount's errors, and does not depend on
    the session's sql_mode.
    """
    text = counter_text(counter._dialect, counter)
    slot = 0 if text.one_writer else random.randrange(counter.slots)
    return text.add.bindparams(key=key_text(key), slot=slot, n=integer(n, "n"))


def _slot(connection: sa.Connection, counter: SlottedCounter, text: CounterText) -> int:
    if counter.slot_choice == "random":
        return random.randrange(counter.slots)
    if text.one_writer:
        return 0
    return _place(connection) % counter.slots


def _place(connection: sa.Connection) -> int:
    """A number of the connection's own, for as long as the pool keeps it."""
    place = connection.info.get("hotcount.place")
    if place is None:
        place = connection.info["hotcount.place"] = next(_places)
    return int(place)


# -- votes ------------------------------------------------------------------


@in_both
def cast_vote(
    where: Where,
    votes: Votes,
    item: int | str | uuid.UUID,
    user: int | str | uuid.UUID | None,
    value: int = 1,
    *,
    version: int | None = None,
    op_id: str | None = None,
) -> Cast:
    """Sets the user's vote for the item and moves the count, as `Votes.cast` does.

    user=None with an op_id: a vote without a user; the first one under that op_id stands. With
    strategy 'cached' the item is noted for a recount, which a worker does after your commit: the
    cache cannot be part of your transaction.

    Raises:
        IntegrityError: The item has no row: SQLAlchemy's, where a foreign key refuses.
        ConfigError: Another strategy counts these tables; value is 2**31 or more, or -2**31 or
            less.
        CounterOverflowError: The count would leave 64 bits ('batched' on a server finds that out
            when it folds; see `Votes.stats`).
    """
    values = votes._checked_ballot(item, user, value, version, op_id)
    connection = connection_of(where)
    text = vote_text(connection.dialect.name, votes, op_id is not None)
    with all_or_nothing(connection, of_votes=True) as mode:
        previous, now = _write_vote(connection, mode, votes, text, values)
        if now != previous:
            _move_count(connection, mode, votes, text, values["item"], now - previous)
            if text.folds:
                _note_row(connection, votes)
    return Cast(now != 0, now != previous, previous, now)


@in_both
def retract_vote(
    where: Where,
    votes: Votes,
    item: int | str | uuid.UUID,
    user: int | str | uuid.UUID,
    *,
    version: int | None = None,
) -> Cast:
    """Sets the user's vote to 0; also where there was none."""
    done: Cast = cast_vote(where, votes, item, user, 0, version=version)
    return done


@in_both
def vote_count(where: Where, votes: Votes, item: int | str | uuid.UUID) -> int:
    """The item's count as this transaction sees it; with 'cached', the sum of its votes."""
    wanted = votes._checked_item(item)
    connection = connection_of(where)
    text = vote_text(connection.dialect.name, votes)
    with translated():
        found = connection.execute(text.count, {"item": wanted}).scalar()
    return whole(found or 0)


@in_both
def get_vote(
    where: Where, votes: Votes, item: int | str | uuid.UUID, user: int | str | uuid.UUID
) -> int:
    """The user's vote for the item as this transaction sees it, 0 for none."""
    values = {"item": votes._checked_item(item), "user": votes._checked_user(user)}
    connection = connection_of(where)
    text = vote_text(connection.dialect.name, votes)
    return int(connection.execute(text.vote, values).scalar() or 0)


@in_both
def get_votes(
    where: Where, votes: Votes, items: Iterable[int | str | uuid.UUID], user: int | str | uuid.UUID
) -> list[int]:
    """The user's votes for many items as this transaction sees them, in the order of the items."""
    wanted = [votes._checked_item(item) for item in items]
    voter = votes._checked_user(user)
    connection = connection_of(where)
    text = vote_text(connection.dialect.name, votes)
    found: dict[int | str, int] = {}
    for first in range(0, len(wanted), _PAGE):
        values = {"user": voter, "items": wanted[first : first + _PAGE]}
        for item, value in connection.execute(text.votes, values):
            found[id_text(item)] = int(value)
    if not found.keys() <= set(wanted):
        # The column takes several spellings for one id: it finds each by itself.
        each = ({"item": item, "user": voter} for item in wanted)
        return [int(connection.execute(text.vote, values).scalar() or 0) for values in each]
    return [found.get(item, 0) for item in wanted]


@in_both
def voters(
    where: Where,
    votes: Votes,
    item: int | str | uuid.UUID,
    *,
    after: int | str | uuid.UUID | None = None,
    limit: int = 100,
) -> list[tuple[Any, int]]:
    """A page of those whose votes count, as `Votes.voters`, as this transaction sees them."""
    if not 1 <= integer(limit, "limit") <= 10_000:
        raise ConfigError(f"limit is {limit}; it takes 1 to 10000")
    values: dict[str, Any] = {"item": votes._checked_item(item), "limit": limit}
    if after is not None:
        values["after"] = votes._checked_user(after)
    connection = connection_of(where)
    text = vote_text(connection.dialect.name, votes)
    rows = connection.execute(text.voters if after is None else text.voters_after, values)
    of_type: Any = votes.user_type
    return [(of_type(id_text(user)), int(value)) for user, value in rows]


# Lock order everywhere: the route, item, vote, cell.
def _write_vote(
    connection: sa.Connection, mode: SqlMode, votes: Votes, text: VoteText, values: dict[str, Any]
) -> tuple[int, int]:
    item = {"item": values["item"]}
    if not _hold_route(connection, mode, votes, text, item):
        if text.add_item is None:
            raise _missing(values["item"])
        _add_item(connection, text.add_item, item)
    if text.lock_item is not None and connection.execute(text.lock_item, item).first() is None:
        raise _missing(values["item"])
    written = connection.execute(text.write_vote, values)
    # The row has the previous value. If the upsert cannot return it, another statement reads it.
    if text.read_vote is not None:
        written = connection.execute(text.read_vote, values)
    row = written.first()
    if row is None:  # The counts were moved since _hold_route looked: it says so now.
        return _write_vote(connection, mode, votes, text, values)
    previous, now = row
    return int(previous), int(now)


def _hold_route(
    connection: sa.Connection, mode: SqlMode, votes: Votes, text: VoteText, item: dict[str, Any]
) -> bool:
    """Keeps the way of the votes as it is until the transaction ends, unless write_vote does.

    Whether the item exists, as far as no later statement finds that out.
    """
    if text.look is not None:
        route, exists, level = connection.execute(text.look, item).first() or (None, None, "")
        _check_route(votes, text, route)
        if level in ("read committed", "read uncommitted"):
            return exists is not None
    route, exists, sql_mode = connection.execute(text.hold_route, item).first() or (None,) * 3
    _check_route(votes, text, route)
    if sql_mode is not None:
        mode.be_strict(sql_mode)
    return exists is not None


def _missing(item: int | str) -> IntegrityError:
    error = IntegrityError(f"item {item!r} does not exist; nothing was applied")
    error.item, error.missing = item, "item"
    return error


def _add_item(connection: sa.Connection, add: sa.TextClause, item: dict[str, Any]) -> None:
    try:
        connection.execute(add, item)
    except exc.IntegrityError as error:
        # MySQL's, where it was added since this transaction's snapshot.
        if error.orig is None or error.orig.args[0] != 1062:
            raise


def _check_route(votes: Votes, text: VoteText, found: str | bytes | None) -> None:
    if votes.strategy == "write_behind":
        raise ConfigError(
            "votes of strategy 'write_behind' get their order in Redis, so a transaction of SQL "
            "cannot write them: cast with the Votes object; nothing was applied"
        )
    route = found.decode() if isinstance(found, bytes) else found
    if route is None:
        raise ConfigError(
            f"table {votes.vote_table} is there, and what its items count is not known yet; "
            "create_tables() finds out, also where schema() made the tables"
        )
    if route.startswith("streams"):
        raise ConfigError(
            f"votes for table {votes.vote_table} go through the streams of strategy "
            f"'write_behind', where some may wait; strategy {votes.strategy!r} cannot write beside "
            "them. create_tables() switches over once flush() has left none; nothing was applied"
        )
    if route != text.route:
        raise ConfigError(
            f"table {votes.vote_table} was last counted in its {route}, strategy "
            f"{votes.strategy} counts in its {text.route}; create_tables() reconciles and "
            "switches over"
        )


def _move_count(
    connection: sa.Connection,
    mode: SqlMode,
    votes: Votes,
    text: VoteText,
    item: int | str,
    difference: int,
) -> None:
    values = {"item": item, "difference": difference}
    if text.ask_recount is not None:
        connection.execute(text.ask_recount, {"item": item})
    if text.note is not None:
        connection.execute(text.note, values)
    if text.insert_cell is not None:
        cell = {**values, "slot": _place(connection) % votes.slots}
        _update_or_insert(connection, mode, text.find_cell, text.bump_cell, text.insert_cell, cell)
    if text.bump_item is not None and connection.execute(text.bump_item, values).rowcount == 0:
        raise _missing(item)


# -- folds after the commit -------------------------------------------------

# The key in a connection's info of: the Votes with rows in its transactions, and how many of these
# rows have not been passed to _note_appended().
_ROWS = "hotcount.rows"


def _note_row(connection: sa.Connection, votes: Votes) -> None:
    """Wakes the folding thread of `votes` once the transaction is committed."""
    engine = connection.engine
    if not event.contains(engine.pool, "checkin", _when_back):
        event.listen(engine.pool, "checkin", _when_back)
        event.listen(engine, "commit", _at_commit)
    rows = connection.info.setdefault(_ROWS, {})
    rows[id(votes)] = (votes, rows.get(id(votes), (votes, 0))[1] + 1)


def _at_commit(connection: sa.Connection) -> None:
    # For a connection that stays out of its pool. SQLAlchemy calls it before the commit: a fold
    # that is as quick as that leaves the rows to the next one.
    rows = connection.info.get(_ROWS, {})
    _notify_folders(rows)
    for key, (votes, _) in rows.items():
        rows[key] = (votes, 0)


def _when_back(_: object, record: Any) -> None:
    # Also after a rollback, which costs a look at the journal; once more after a commit.
    _notify_folders(record.info.pop(_ROWS, {}), at_least=1)


def _notify_folders(rows: dict[int, tuple[Votes, int]], at_least: int = 0) -> None:
    for votes, appended in rows.values():
        with suppress(HotcountError):  # The Votes were closed: other processes fold.
            votes._note_appended(max(appended, at_least))
