"""Functions of the package that belong to no class."""

from __future__ import annotations

from uuid import UUID

from hotcount._native import native
from hotcount.stores import Database


@native
def build_info() -> dict[str, str]:
    """The versions of this build and its libraries, for bug reports.

    version, compiler, build_type, hiredis, the loaded SQLite, and the versions of OpenSSL and of
    the database client libraries, or 'not found'.

    >>> import hotcount
    >>> hotcount.build_info()["version"] == hotcount.__version__
    True
    """


@native
def new_op_id() -> str:
    """A new op_id for Counter.add: a UUIDv7, 36 characters that contain the time of creation.

    Make one op_id for each add that may be retried, and retry with the same op_id. A store refuses
    an op_id older than op_keep instead of counting the add again.

    Example:
        >>> import hotcount
        >>> likes, op_id = hotcount.Counter("memory://"), hotcount.new_op_id()
        >>> likes.add("photo:42", op_id=op_id), likes.add("photo:42", op_id=op_id)
        (1, 1)
    """


@native
def dialect_names() -> list[str]:
    """The SQL dialects that votes_schema() takes.

    >>> "sqlite" in dialect_names()
    True
    """


@native
def database_settings(database: Database | str) -> dict[str, str]:
    """For `hotcount doctor`: the version and settings of the database, by the database's own names.

    'pooled' is 'on' if there is a pooler in between. Settings that the login may not read are
    missing.

    >>> database_settings("sqlite:///:memory:")["version"] == build_info()["sqlite"]
    True
    """


@native
def driver_calls_our_sqlite(method: object) -> bool:
    """Whether the driver that a method belongs to uses the SQLite library that hotcount uses.

    method: of a type written in C, as `sqlite3.Connection.cursor`.
    """


@native
def votes_schema(
    dialect: str,
    strategy: str,
    item_type: type[int | str | UUID],
    user_type: type[int | str | UUID],
    item_table: str = "item",
    item_id: str = "id",
    item_count: str | None = "vote_count",
    vote_table: str = "vote",
    vote_item: str = "item_id",
    vote_user: str = "user_id",
    vote_value: str = "val",
    vote_previous: str = "prev",
    vote_version: str = "version",
    foreign_key: bool = True,
) -> str:
    """For `hotcount schema`: the SQL that Votes.create_tables() runs in an empty database.

    dialect: one of dialect_names(); another is a ConfigError.
    """


@native
def slotted_counter_schema(dialect: str) -> str:
    """The same of SlottedCounter.create_table().

    >>> "CREATE TABLE" in slotted_counter_schema("sqlite")
    True
    """


@native
def limiter_schema(dialect: str) -> str:
    """The same of Limiter.create_table().

    >>> "CREATE TABLE" in limiter_schema("sqlite")
    True
    """


@native
def write_behind_schema(dialect: str) -> str:
    """The same of WriteBehindCounter.create_tables().

    >>> "CREATE TABLE" in write_behind_schema("sqlite")
    True
    """
