"""The caller's transaction, for hotcount.integrations.sqlalchemy.

It finds the connection, checks arguments before anything is sent, puts a savepoint around each call
and translates errors.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from types import MethodDescriptorType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    cast,
    overload,
)

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import Session, scoped_session

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

from hotcount import ConfigError, CounterOverflowError
from hotcount.functions import driver_calls_our_sqlite

Where = Union[sa.Connection, Session, "scoped_session[Session]"]
AsyncWhere = Union["AsyncConnection", "AsyncSession", "async_scoped_session[AsyncSession]"]

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


class InBoth(Protocol[P, T_co]):
    """A function on a session or connection; with an async one it returns an awaitable."""

    @overload
    def __call__(self, where: Where, *args: P.args, **kwargs: P.kwargs) -> T_co: ...
    @overload
    def __call__(
        self, where: AsyncWhere, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T_co]: ...


def in_both(function: Callable[Concatenate[Where, P], T_co]) -> InBoth[P, T_co]:
    """Has the function take an AsyncSession or AsyncConnection too, and return a coroutine then."""

    @wraps(function)
    def call(where: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        if hasattr(where, "run_sync"):
            return where.run_sync(function, *args, **kwargs)
        # An async_scoped_session calls its registry for the session of this task.
        registry = getattr(where, "registry", None)
        if registry is not None and hasattr(session := registry(), "run_sync"):
            return session.run_sync(function, *args, **kwargs)
        return function(where, *args, **kwargs)

    return cast("InBoth[P, T_co]", call)


MOST = 2**63 - 1
LEAST = -(2**63)
_MOST_BYTES = 1000  # The maximum length of a key or an id.


def key_text(key: object) -> str:
    if isinstance(key, bytes):
        try:
            text = key.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"key is not UTF-8: {key!r}") from None
    elif isinstance(key, str):
        text = key
    else:
        raise TypeError(f"key must be str or bytes, not {type(key).__name__}")
    size = size_of(text, "key")
    if not 1 <= size <= _MOST_BYTES or "\0" in text:
        raise ConfigError(f"key takes 1 to 1000 bytes without NUL; this one has {size}: {key!r}")
    return text


def size_of(text: str, name: str) -> int:
    """In bytes of UTF-8."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{name} has a lone surrogate, which UTF-8 cannot hold") from None


def integer(value: object, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    number = int(value.__index__())
    if not LEAST <= number <= MOST:
        raise CounterOverflowError(f"{name} is {number}, outside of signed 64 bits")
    return number


def connection_of(where: Where) -> sa.Connection:
    if isinstance(where, (Session, scoped_session)):
        # The session's unwritten objects may include the item.
        where.flush()
        connection = where.connection()
    elif isinstance(where, sa.Connection):
        connection = where
    else:
        raise TypeError(
            "where must be a Session, an AsyncSession or a connection of either, not "
            f"{type(where).__name__}"
        )
    if _is_in_autocommit(connection):
        raise ConfigError("the connection is in AUTOCOMMIT; this needs a transaction")
    if connection.dialect.name == "sqlite":
        _refuse_another_sqlite(connection)
    return connection


def _refuse_another_sqlite(connection: sa.Connection) -> None:
    """ConfigError if the driver has its own SQLite: two SQLite libraries in one process do not see
    each other's locks on a file."""
    if "hotcount.sqlite" in connection.info:
        return
    driver: Any = connection.connection.driver_connection
    # aiosqlite keeps the connection of Python's sqlite3 here.
    of_driver = type(getattr(driver, "_conn", driver))
    methods = (vars(each).get("cursor") for each in of_driver.__mro__)
    method = next((each for each in methods if isinstance(each, MethodDescriptorType)), None)
    if method is not None and not driver_calls_our_sqlite(method):
        path = connection.exec_driver_sql("PRAGMA database_list").all()[0][2]
        if path:
            raise ConfigError(
                f"the engine's driver, {of_driver.__module__}, brings its own SQLite library: with "
                f"hotcount's in one process it may damage {path}, or end the process "
                "(SIGBUS); use Python's sqlite3 here"
            )
    connection.info["hotcount.sqlite"] = True


def _is_in_autocommit(connection: sa.Connection) -> bool:
    """Whether each statement would be its own transaction, by SQLAlchemy's or the driver's mode."""
    level = connection.get_execution_options().get("isolation_level", "")
    if str(level).upper() == "AUTOCOMMIT":
        return True
    # An engine made with isolation_level="AUTOCOMMIT", or a driver set to it, shows only here.
    pooled = connection.connection
    driver: Any = pooled.driver_connection
    if connection.dialect.name == "sqlite":
        if getattr(driver, "autocommit", None) is True:
            return True
        if getattr(driver, "isolation_level", "") is not None:
            return False  # The driver begins.
        # The driver does not begin; a listener of the engine may, when the transaction begins.
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


class SqlMode:
    """The sql_mode of a MySQL session, strict until restore().

    Without a strict mode MySQL truncates a text and clamps a number to the column's range, so that
    a vote would be stored for another user or item.
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
def all_or_nothing(connection: sa.Connection, *, of_votes: bool = False) -> Iterator[SqlMode]:
    """A savepoint: a caller that catches an error may still commit the rest."""
    if connection.dialect.name == "sqlite":
        # Python's sqlite3 begins only with a statement that writes: without this the savepoint
        # would be the transaction, and its end a commit. IMMEDIATE: a transaction that begins with
        # a read cannot wait for the write lock.
        driver = connection.connection.driver_connection
        if not getattr(driver, "in_transaction", True):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
    with translated(of_votes=of_votes):
        savepoint = connection.begin_nested()
        mode = SqlMode(connection)
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
def translated(*, of_votes: bool = False) -> Iterator[None]:
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
    """Whether the number is an id that its column cannot hold: hotcount's columns have 64 bits.

    PostgreSQL names the type in every language, MySQL the column; SQLite's columns are all wide.
    """
    word = next(iter(error.args), None) if error is not None else None
    if word in (1264, 1690, "integer overflow"):
        return word == 1264 and "'n'" not in str(error)
    return "bigint" not in str(error)


def id_text(found: Any) -> int | str:
    """An id as a driver gives it back, in the form in which parameters have it."""
    if isinstance(found, bytes):
        return found.decode()
    return found if isinstance(found, int) else str(found)


def whole(found: Any) -> int:
    number = int(found)
    if number != found or not LEAST <= number <= MOST:
        raise CounterOverflowError(f"the sum over the slots leaves signed 64 bits: {found}")
    return number
