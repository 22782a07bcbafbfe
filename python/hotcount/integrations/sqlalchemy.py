"""Counts and votes inside your own SQLAlchemy transaction (extra: ``hotcount[sqlalchemy]``).

    from hotcount.integrations.sqlalchemy import cast_vote, increment

    counter = hotcount.SlottedCounter("postgresql:///app")
    votes = hotcount.Votes("postgresql:///app")
    with Session(engine) as session, session.begin():
        session.add(Comment(post_id=7, text="first"))
        increment(session, counter, "comments:7")
        cast_vote(session, votes, 7, user=1)

What they write is committed and rolled back with everything else in that transaction, and counts
together with what `counter` and `votes` write themselves, from any process. The first argument is a
Session or a Connection; from an AsyncSession: ``await session.run_sync(cast_vote, votes, 7, 1)``.

The rows that they touch stay locked until your transaction ends: let these calls be its last, and
several of them go in one order everywhere (`increment_many` does so by itself). A transaction that
the database gives up (a deadlock; under REPEATABLE READ and SERIALIZABLE on PostgreSQL a row that
somebody else has changed since your snapshot, SQLSTATE 40001) is yours to run again, from its
beginning. After another error nothing of the call is applied and the transaction may go on: each
call is a savepoint. Every isolation level will do but AUTOCOMMIT, which is a ConfigError wherever
it was asked for: of SQLAlchemy or of the driver. On MariaDB and MySQL a call is strict whatever
the session's sql_mode: a value that its column cannot hold is an error. Objects of a Session that
hold a count are not refreshed.
"""

from __future__ import annotations

import itertools
import os
import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Union

try:
    import sqlalchemy as sa
    from sqlalchemy import exc
    from sqlalchemy.orm import Session, scoped_session
except ImportError as error:
    raise ImportError(
        "hotcount.integrations.sqlalchemy needs SQLAlchemy 2: pip install 'hotcount[sqlalchemy]'"
    ) from error

from hotcount import (
    Cast,
    ConfigError,
    CounterOverflowError,
    IntegrityError,
    SlottedCounter,
    Votes,
)
from hotcount.integrations._sqlalchemy_text import (
    CounterText,
    VoteText,
    counter_text,
    vote_text,
)

__all__ = [
    "Where",
    "cast_vote",
    "count",
    "increment",
    "increment_many",
    "retract_vote",
    "statement",
    "vote_count",
]

Where = Union[sa.Connection, Session, "scoped_session[Session]"]

_MOST = 2**63 - 1
_LEAST = -(2**63)
_MOST_BYTES = 1000  # Of a key or an id.
# Where this process begins to count connections: two that began at 0 would meet on every slot.
_places = itertools.count(random.SystemRandom().randrange(1_000_000))


def _new_places() -> None:
    global _places
    _places = itertools.count(random.SystemRandom().randrange(1_000_000))


os.register_at_fork(after_in_child=_new_places)


# -- counters ---------------------------------------------------------------


def increment(where: Where, counter: SlottedCounter, key: str | bytes, n: int = 1) -> None:
    """Adds n to the key's count, in the slot of this connection.

    CounterOverflowError: the slot would leave 64 bits; nothing changed.
    """
    _increment(where, counter, [(_key(key), _integer(n, "n"))])


def increment_many(
    where: Where, counter: SlottedCounter, amounts: Mapping[str, int] | Mapping[bytes, int]
) -> None:
    """Adds {key: n, ...}, all or nothing, in the order in which every writer takes these rows."""
    _increment(where, counter, [(_key(key), _integer(n, "n")) for key, n in amounts.items()])


def _increment(where: Where, counter: SlottedCounter, amounts: list[tuple[str, int]]) -> None:
    connection = _connection(where)
    text = _counter_text(connection.dialect.name, counter)
    slot = _slot(connection, counter)
    with _all_or_nothing(connection) as mode:
        for key, n in sorted(amounts):
            _add(connection, mode, text, key, slot, n)


def _add(
    connection: sa.Connection, mode: _SqlMode, text: CounterText, key: str, slot: int, n: int
) -> None:
    values = {"key": key, "slot": slot, "n": n}
    _update_or_insert(connection, mode, text.find, text.update, text.add, values)


def _update_or_insert(
    connection: sa.Connection,
    mode: _SqlMode,
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


def count(where: Where, counter: SlottedCounter, key: str | bytes) -> int:
    """The key's count as this transaction sees it, what it has added itself included."""
    connection = _connection(where)
    text = _counter_text(connection.dialect.name, counter)
    with _translated():
        found = connection.execute(text.sum, {"key": _key(key)}).scalar_one()
    return _whole(found)


def statement(counter: SlottedCounter, key: str | bytes, n: int = 1) -> sa.TextClause:
    """One statement that adds n to the key's count, in a slot that is drawn anew for each.

    For `Connection.execute` and `Session.execute` on the database that `counter` was made for.
    `increment` picks the slot by the connection, raises hotcount's errors, and does not depend on
    the session's sql_mode.
    """
    text = _counter_text(counter.dialect, counter)
    slot = 0 if counter.dialect == "sqlite" else random.randrange(counter.slots)
    return text.add.bindparams(key=_key(key), slot=slot, n=_integer(n, "n"))


def _slot(connection: sa.Connection, counter: SlottedCounter) -> int:
    if counter.slot_choice == "random":
        return random.randrange(counter.slots)
    if connection.dialect.name == "sqlite":
        return 0
    return _place(connection) % counter.slots


def _place(connection: sa.Connection) -> int:
    """A number of the connection's own, for as long as the pool keeps it."""
    place = connection.info.get("hotcount.place")
    if place is None:
        place = connection.info["hotcount.place"] = next(_places)
    return int(place)


# -- votes ------------------------------------------------------------------


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

    user=None with an op_id: a vote without a user; the first one under that op_id stands.

    With strategy 'cached' the item is noted for a recount, which a worker does after your commit:
    the cache cannot be part of your transaction. IntegrityError (SQLAlchemy's, where a foreign key
    of the vote table refuses): the item has no row. ConfigError: another strategy counts these
    tables. CounterOverflowError: the count would leave 64 bits.
    """
    value = _integer(value, "value")
    voted = _id(item, votes.item_type, "item")
    anonymous = op_id is not None
    values: dict[str, Any] = {"item": voted, "value": value}
    if anonymous:
        # The version that the row then has, which a repeat does not exceed.
        values |= {"user": _op_id(user, value, version, op_id), "version": 1}
    else:
        values["user"] = _id(user, votes.user_type, "user")
        values["version"] = None if version is None else _integer(version, "version")
    connection = _connection(where)
    text = _vote_text(connection.dialect.name, votes, anonymous)
    with _all_or_nothing(connection, of_votes=True) as mode:
        previous, now = _write_vote(connection, mode, votes, text, values)
        if now != previous:
            _move_count(connection, mode, votes, text, voted, now - previous)
    return Cast(now != 0, now != previous, previous, now)


def _op_id(user: object, value: int, version: int | None, op_id: object) -> str:
    if user is not None:
        raise ConfigError("op_id is for votes without a user (user=None)")
    if version is not None:
        raise ConfigError("version is for votes of a user, and user is None")
    if not isinstance(op_id, str):
        raise TypeError(f"op_id must be str, not {type(op_id).__name__}")
    if not 1 <= len(op_id) <= 255 or "\0" in op_id:
        raise ConfigError(f"op_id takes 1 to 255 characters without NUL: {op_id!r}")
    _size(op_id, "op_id")
    if value == 0:
        raise ConfigError("value is 0: a vote without a user cannot be retracted")
    return op_id


def retract_vote(
    where: Where,
    votes: Votes,
    item: int | str | uuid.UUID,
    user: int | str | uuid.UUID,
    *,
    version: int | None = None,
) -> Cast:
    """Sets the user's vote to 0; also where there was none."""
    return cast_vote(where, votes, item, user, 0, version=version)


def vote_count(where: Where, votes: Votes, item: int | str | uuid.UUID) -> int:
    """The item's count as this transaction sees it; with 'cached', the sum of its votes."""
    wanted = _id(item, votes.item_type, "item")
    connection = _connection(where)
    text = _vote_text(connection.dialect.name, votes)
    with _translated():
        found = connection.execute(text.count, {"item": wanted}).scalar()
    return _whole(found or 0)


# Lock order everywhere: the place, item, vote, cell.
def _write_vote(
    connection: sa.Connection, mode: _SqlMode, votes: Votes, text: VoteText, values: dict[str, Any]
) -> tuple[int, int]:
    place, *sql_mode = connection.execute(text.hold_place).first() or (None,)
    for each in sql_mode:
        mode.be_strict(each)
    if isinstance(place, bytes):
        place = place.decode()
    if place is None:
        raise ConfigError(
            f"table {votes.vote_table} is there, and what its items count is not known yet; "
            "create_tables() finds out, also where schema() made the tables"
        )
    if place != text.place:
        raise ConfigError(
            f"table {votes.vote_table} was last counted in its {place}, strategy "
            f"{votes.strategy} counts in its {text.place}; create_tables() reconciles and "
            "switches over"
        )
    item = {"item": values["item"]}
    if votes.missing_items == "create":
        connection.execute(text.add_item, item)
    if text.lock_item is not None and connection.execute(text.lock_item, item).first() is None:
        raise IntegrityError(f"item {values['item']!r} does not exist; nothing was applied")
    written = connection.execute(text.write_vote, values)
    # The row keeps what it was: read in a statement of its own where the upsert cannot return it.
    if text.read_vote is not None:
        written = connection.execute(text.read_vote, values)
    previous, now = written.one()
    return int(previous), int(now)


def _move_count(
    connection: sa.Connection,
    mode: _SqlMode,
    votes: Votes,
    text: VoteText,
    item: int | str,
    difference: int,
) -> None:
    if not _LEAST <= difference <= _MOST:
        raise CounterOverflowError(
            f"the count of item {item!r} would leave signed 64 bits; nothing was applied"
        )
    values = {"item": item, "difference": difference}
    if text.ask_recount is not None:
        connection.execute(text.ask_recount, {"item": item})
        return
    if text.insert_cell is not None:
        # batched has one writer of an item at a time, and so one cell.
        slot = _place(connection) % votes.slots if votes.strategy == "slotted" else 0
        cell = {**values, "slot": slot}
        _update_or_insert(connection, mode, text.find_cell, text.bump_cell, text.insert_cell, cell)
    if text.bump_item is not None and connection.execute(text.bump_item, values).rowcount == 0:
        raise IntegrityError(f"item {item!r} does not exist; nothing was applied")


# -- arguments, transactions, errors ----------------------------------------


def _counter_text(dialect: str, counter: SlottedCounter) -> CounterText:
    return counter_text(
        _family(dialect),
        counter.table,
        counter.key_column,
        counter.slot_column,
        counter.count_column,
    )


def _vote_text(dialect: str, votes: Votes, anonymous: bool = False) -> VoteText:
    return vote_text(
        _family(dialect),
        votes.strategy,
        votes.item_table,
        votes.item_id,
        votes.item_count,
        votes.vote_table,
        votes.vote_item,
        votes.vote_user,
        votes.item_type,
        votes.user_type,
        anonymous,
    )


def _family(name: str) -> str:
    if name in ("sqlite", "postgresql", "mysql"):
        return name
    if name == "mariadb":
        return "mysql"
    raise ConfigError(
        f"{name} is not a dialect that hotcount knows: sqlite, postgresql, mysql, mariadb"
    )


def _key(key: object) -> str:
    if isinstance(key, bytes):
        try:
            text = key.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"key is not UTF-8: {key!r}") from None
    elif isinstance(key, str):
        text = key
    else:
        raise TypeError(f"key must be str or bytes, not {type(key).__name__}")
    size = _size(text, "key")
    if not 1 <= size <= _MOST_BYTES or "\0" in text:
        raise ConfigError(f"key takes 1 to 1000 bytes without NUL; this one has {size}: {key!r}")
    return text


def _size(text: str, name: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{name} has a lone surrogate, which UTF-8 cannot hold") from None


def _integer(value: object, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    number = int(value.__index__())
    if not _LEAST <= number <= _MOST:
        raise CounterOverflowError(f"{name} is {number}, outside of signed 64 bits")
    return number


def _id(value: object, wanted: type, name: str) -> int | str:
    if wanted is int:
        return _integer(value, name)
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be {wanted.__name__}, not {type(value).__name__}")
    text = str(value)
    if "\0" in text:
        raise ConfigError(f"{name} has a NUL byte: {text!r}")
    # Also where the column would take it: Votes itself could not name such a vote.
    if (size := _size(text, name)) > _MOST_BYTES:
        raise ConfigError(f"{name} has {size} bytes, and takes at most {_MOST_BYTES}: {text!r}")
    return text


def _connection(where: Where) -> sa.Connection:
    if isinstance(where, (Session, scoped_session)):
        # What the session has yet to write may be the very item.
        where.flush()
        connection = where.connection()
    elif isinstance(where, sa.Connection):
        connection = where
    else:
        raise TypeError(f"where must be a Session or a Connection, not {type(where).__name__}")
    if _is_in_autocommit(connection):
        raise ConfigError("the connection is in AUTOCOMMIT; this needs a transaction")
    return connection


def _is_in_autocommit(connection: sa.Connection) -> bool:
    """Whether each statement would be a transaction of its own, whoever has asked for that."""
    level = connection.get_execution_options().get("isolation_level", "")
    if str(level).upper() == "AUTOCOMMIT":
        return True
    # An engine made with isolation_level="AUTOCOMMIT" shows here only, as does what was told to
    # the driver.
    pooled = connection.connection
    driver: Any = pooled.driver_connection
    if connection.dialect.name == "sqlite":
        if getattr(driver, "autocommit", None) is True:
            return True
        if getattr(driver, "isolation_level", "") is not None:
            return False  # The driver begins.
        # Then a listener of the engine's may: it is called when the transaction begins.
        if not connection.in_transaction():
            connection.begin()
        return not driver.in_transaction
    for session in (pooled.dbapi_connection, driver):
        get = getattr(session, "get_autocommit", None)
        if callable(get):
            return bool(get())
        value = getattr(session, "autocommit", None)
        if isinstance(value, bool):
            return value
    return False


class _SqlMode:
    """The sql_mode of a MySQL session, strict until restore().

    Without a strict mode MySQL shortens a text and clamps a number to what the column takes: a
    vote of somebody else's, or for another item.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._found: str | None = None

    def be_strict(self, found: str | bytes) -> None:
        """`found` is the mode that the session has now."""
        mode = found.decode() if isinstance(found, bytes) else found
        if {"STRICT_ALL_TABLES", "STRICT_TRANS_TABLES"}.isdisjoint(mode.split(",")):
            self._set(f"{mode},STRICT_ALL_TABLES".lstrip(","))
            self._found = mode

    def restore(self) -> None:
        if self._found is not None:
            self._set(self._found)
            self._found = None

    def _set(self, mode: str) -> None:
        self._connection.execute(sa.text("SET SESSION sql_mode = :mode"), {"mode": mode})


@contextmanager
def _all_or_nothing(connection: sa.Connection, *, of_votes: bool = False) -> Iterator[_SqlMode]:
    """A savepoint: whoever catches an error may still commit the rest."""
    if connection.dialect.name == "sqlite":
        # Python's sqlite3 begins only with a statement that writes: without this the savepoint
        # would be the transaction, and its end a commit. IMMEDIATE: one that begins by reading
        # cannot wait for its turn to write.
        driver = connection.connection.driver_connection
        if not getattr(driver, "in_transaction", True):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
    with _translated(of_votes=of_votes):
        savepoint = connection.begin_nested()
        mode = _SqlMode(connection)
        try:
            yield mode
        except BaseException:
            # After a deadlock MySQL has rolled everything back, the savepoint with it: the error
            # to see is the first.
            with suppress(exc.DBAPIError):
                savepoint.rollback()
            with suppress(exc.DBAPIError):
                mode.restore()
            raise
        savepoint.commit()
        mode.restore()


@contextmanager
def _translated(*, of_votes: bool = False) -> Iterator[None]:
    try:
        yield
    except exc.DBAPIError as error:
        if not _is_overflow(error.orig) or (of_votes and _is_of_an_id(error.orig)):
            raise
        raise CounterOverflowError(
            f"a count would leave signed 64 bits; nothing was applied: {error.orig}"
        ) from error


def _is_overflow(error: BaseException | None) -> bool:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is not None:
        return bool(state == "22003")
    # MySQL's numbers, SQLite's words.
    return error is not None and next(iter(error.args), None) in (1690, 1264, "integer overflow")


def _is_of_an_id(error: BaseException | None) -> bool:
    """The number is none of ours, whose columns have 64 bits: an id that its column cannot hold.

    PostgreSQL names the type in every language, MySQL the column; SQLite's columns are all wide.
    """
    word = next(iter(error.args), None) if error is not None else None
    if word in (1264, 1690, "integer overflow"):
        return word == 1264 and "'n'" not in str(error)
    return "bigint" not in str(error)


def _whole(found: Any) -> int:
    number = int(found)
    if number != found or not _LEAST <= number <= _MOST:
        raise CounterOverflowError(f"the sum over the slots leaves signed 64 bits: {found}")
    return number
