"""Mixins for the user's own models of items and votes; the tables that hotcount adds to theirs."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import (
    Mapped,
    MappedColumn,
    Mapper,
    column_property,
    declared_attr,
    mapped_column,
)

from hotcount import ConfigError
from hotcount.integrations._sqlalchemy_transaction import Where, connection_of, in_both

# Suffixes of the views and tables that Votes.create_tables() adds: {vote_table}_live ...
_VIEWS = ("live", "count")
_TABLES = ("anonymous", "cell", "journal", "meta", "sync", "recount")
# Of SQLite's triggers, for the table of votes and that of votes without a user.
_EVENTS = ("deleted", "inserted", "updated", "moved", "renamed")
# The prefix of the tables of hotcount's other classes, unless their options name others.
_PREFIX = "hotcount_"


if TYPE_CHECKING:
    _column = declared_attr
else:

    class _column(declared_attr):
        def __init__(self, function: Any, *more: Any, **options: Any) -> None:
            # Without the annotation: a dataclass model would have it as a field, which SQLAlchemy
            # 2.1 refuses in a mixin that is not a dataclass.
            function.__annotations__ = {}
            super().__init__(function, *more, **options)

        def __get__(self, instance: Any, owner: Any) -> Any:
            # help() reads the attribute of the mixins themselves, where SQLAlchemy would warn.
            return self if owner in (VotedMixin, VoteMixin) else super().__get__(instance, owner)


def _integer() -> sa.types.TypeEngine[int]:
    # The name of SQLite's integers, which have 64 bits: autogenerate compares names.
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _count() -> MappedColumn[int]:
    zero = sa.text("0")
    return mapped_column(_integer(), insert_default=0, server_default=zero, nullable=False)


class VotedMixin:
    """For the model of the items: the column of their counts, and questions about their votes.

    The model has a primary key of one column, of an int, a str or a UUID. Its questions are there
    once a model with VoteMixin names it: `voted_by(user)`, and `votes_exact`, the exact count from
    the view {vote_table}_count. It is deferred: `undefer(Post.votes_exact)` loads it in the
    statement that loads the items.
    """

    @_column
    def vote_count(cls) -> Mapped[int]:
        """The stored count, which lags by the fold interval with strategy 'batched' on servers.

        Only hotcount writes it.
        """
        return _count()

    if TYPE_CHECKING:
        votes_exact: Mapped[int]

    _hotcount_votes: ClassVar[Any] = None

    @classmethod
    def voted_by(cls, user: int | str | uuid.UUID) -> sa.ColumnElement[bool]:
        """An expression: the user has a vote on the item that is not 0.

        Example:
            `select(Post, Post.voted_by(7))`, `select(Post).where(Post.voted_by(7))`
        """
        votes = cls._hotcount_votes
        if votes is None:
            raise ConfigError(
                "voted_by: no model with VoteMixin names these items; write __voted__ = the model "
                "of the items in the one of the votes, and import it"
            )
        key = getattr(cls, votes._hotcount_item_key)
        return sa.exists().where(votes.item_id == key, votes.user_id == user, votes.val != 0)


class VoteMixin:
    """For the model of the votes: their columns, of which a model may declare its own.

    `__voted__` is the model of the items. The key is (item_id, user_id); a model with another
    primary key has a unique constraint over the two. `Votes` and `cast_vote` write votes;
    rows that a session adds or deletes by itself count with
    `votes.create_tables(outside_writes="count")`, deleted ones also with "deletes".
    """

    __voted__: ClassVar[type[VotedMixin]]
    _hotcount_item_key: ClassVar[str]

    @_column
    def item_id(cls) -> Mapped[Any]:
        """The item."""
        model: Any = cls  # A declared_attr gets the class.
        key = sa.ForeignKey(_key_of(_voted(model)).columns[0])
        # First in the key, which finds the votes of an item.
        return mapped_column(key, primary_key=True, autoincrement=False, sort_order=-1)

    @_column
    def user_id(cls) -> Mapped[Any]:
        """The user, an int unless the model declares another column."""
        return mapped_column(_integer(), primary_key=True, autoincrement=False)

    @_column
    def val(cls) -> Mapped[int]:
        """The vote; 0: it was retracted."""
        return mapped_column(_integer(), insert_default=1, nullable=False)

    @_column
    def prev(cls) -> Mapped[int]:
        """The vote before."""
        return _count()

    @_column
    def version(cls) -> Mapped[int | None]:
        """The version of the last write of the vote."""
        return mapped_column(_integer(), nullable=True)

    @classmethod
    def vote_options(cls) -> dict[str, Any]:
        """The names and types of the tables, as hotcount.Votes and hotcount.aio.Votes take them.

        Example:
            `votes = hotcount.Votes("postgresql:///app", **Vote.vote_options())`

        Raises:
            ConfigError: An id has another type than int, str or UUID.
        """
        item = _voted(cls)
        items, columns = _table_of(item), sa.inspect(cls).columns
        return {
            "item_table": _full_name(items),
            "item_id": _key_of(item).columns[0].name,
            "item_count": sa.inspect(item).columns.vote_count.name,
            "vote_table": _full_name(_table_of(cls)),
            "vote_item": columns.item_id.name,
            "vote_user": columns.user_id.name,
            "vote_value": columns.val.name,
            "vote_previous": columns.prev.name,
            "vote_version": columns.version.name,
            "item_type": _type_of(columns.item_id),
            "user_type": _type_of(columns.user_id),
            "foreign_key": bool(columns.item_id.foreign_keys),
        }


def _voted(cls: type[Any]) -> type[VotedMixin]:
    item = getattr(cls, "__voted__", None)
    if not (isinstance(item, type) and issubclass(item, VotedMixin)):
        raise ConfigError(
            f"{cls.__name__}.__voted__ is {item!r}; write the model of the items there, a class "
            "with VotedMixin"
        )
    return item


def _table_of(cls: type[Any]) -> sa.Table:
    table: sa.Table = sa.inspect(cls).local_table
    return table


def _key_of(item: type[VotedMixin]) -> sa.PrimaryKeyConstraint:
    key = _table_of(item).primary_key
    if len(key.columns) != 1:
        raise ConfigError(
            f"{item.__name__} has a primary key of {len(key.columns)} columns; items that are "
            "voted on have one of one column"
        )
    return key


def _type_of(column: sa.Column[Any]) -> type[Any]:
    found = column.type.python_type
    if found not in (int, str, uuid.UUID):
        raise ConfigError(
            f"{column} is a {column.type!r}; ids of items and users are int, str or uuid.UUID"
        )
    return found


def _full_name(table: sa.Table) -> str:
    parts = [part for part in (table.schema, table.name) if part is not None]
    return ".".join(_quoted(part) if "." in part or '"' in part else part for part in parts)


def _quoted(part: str) -> str:
    doubled = part.replace('"', '""')
    return f'"{doubled}"'


@event.listens_for(VoteMixin, "after_mapper_constructed", propagate=True)
def _join(mapper: Mapper[Any], cls: type[Any]) -> None:
    """Gives the items their exact counts, and the metadata the order of the tables."""
    item, votes = _voted(cls), _table_of(cls)
    known = item._hotcount_votes
    if known is not None:
        if issubclass(cls, known):
            return  # It inherits the table, too.
        raise ConfigError(
            f"{cls.__name__}.__voted__ is {item.__name__}, whose votes are {known.__name__}; items "
            "have one model of votes"
        )
    items, key = _table_of(item), _key_of(item).columns[0]
    number: sa.ColumnClause[int] = sa.column("n", sa.BigInteger())
    counts = sa.table(f"{votes.name}_count", sa.column("item"), number, schema=votes.schema)
    exact = sa.select(number).where(counts.c.item == key).scalar_subquery()
    cls._hotcount_item_key = sa.inspect(item).get_property_by_column(key).key
    # By the mapper: a class without DeclarativeBase's metaclass would keep it as it is.
    sa.inspect(item).add_property("votes_exact", column_property(exact, deferred=True))
    item._hotcount_votes = cls
    votes.info["hotcount"] = True
    # Also without a foreign key, because the view of the counts reads both tables.
    votes.add_is_dependent_on(items)
    event.listen(votes, "before_drop", _before_drop)


def _before_drop(table: sa.Table, connection: sa.Connection, **_: object) -> None:
    _drop(connection, table.name, table.schema)


@in_both
def drop_tables(where: Where, vote_table: str, schema: str | None = None) -> None:
    """Drops the tables and views that Votes.create_tables() added to those of items and votes.

    Call it before a migration drops items and votes: `drop_tables(op.get_bind(), "vote")`.
    `metadata.drop_all` of models with VoteMixin calls it. It deletes votes without a user.

    Args:
        where: The connection or session to run in.
        vote_table: The name of the vote table.
        schema: Its schema; None is the default one.
    """
    _drop(connection_of(where), vote_table, schema)


@in_both
def drop_dependents(where: Where, vote_table: str, schema: str | None = None) -> None:
    """Drops the views of the tables of items and votes, on SQLite also hotcount's triggers.

    Before a migration that makes one of the two anew, as Alembic's batch operations do on SQLite,
    or gives a column that a view reads another type on PostgreSQL:
    `drop_dependents(op.get_bind(), "vote")`. It drops no counts. `Votes.create_tables()` makes all
    of it again; on SQLite rows that others delete meanwhile are not counted.

    Args:
        where: The connection or session to run in.
        vote_table: The name of the vote table.
        schema: Its schema; None is the default one.
    """
    connection = connection_of(where)
    for view in _VIEWS:
        _drop_one(connection, "VIEW", schema, f"{vote_table}_{view}")
    if connection.dialect.name == "sqlite":
        for table, event in itertools.product((vote_table, f"{vote_table}_anonymous"), _EVENTS):
            _drop_one(connection, "TRIGGER", schema, f"{table}_hotcount_{event}")


def _drop(connection: sa.Connection, vote_table: str, schema: str | None) -> None:
    for view in _VIEWS:
        _drop_one(connection, "VIEW", schema, f"{vote_table}_{view}")
    if connection.dialect.name == "postgresql":
        # The triggers of outside_writes call it.
        _drop_one(connection, "FUNCTION", schema, f"{vote_table}_hotcount", "() CASCADE")
    for table in _TABLES:
        _drop_one(connection, "TABLE", schema, f"{vote_table}_{table}")


def _drop_one(
    connection: sa.Connection, what: str, schema: str | None, name: str, more: str = ""
) -> None:
    # quote() doubles each % where the driver halves it.
    quote = connection.dialect.identifier_preparer.quote
    prefix = "" if schema is None else f"{quote(schema)}."
    connection.exec_driver_sql(f"DROP {what} IF EXISTS {prefix}{quote(name)}{more}")


def include_name(
    metadata: sa.MetaData | Sequence[sa.MetaData],
) -> Callable[[str | None, str, Mapping[str, str | None]], bool]:
    """For Alembic's env.py: makes autogenerate ignore the tables of hotcount.

    These are the tables that hotcount adds to vote tables of models with VoteMixin, the index
    `{vote_table}_of_item` that Votes.migration() prints, and tables whose names begin with
    `hotcount_`.

    Args:
        metadata: The models' metadata, one or several: `target_metadata`.

    Example:
        `context.configure(..., include_name=include_name(target_metadata))`
    """
    every = [metadata] if isinstance(metadata, sa.MetaData) else metadata

    def is_included(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
        if kind == "index":
            full_name = parents.get("schema_qualified_table_name") or ""
            votes = next((one.tables[full_name] for one in every if full_name in one.tables), None)
            if votes is None or "hotcount" not in votes.info:
                return True
            # An index that the model declares is compared.
            return name != f"{votes.name}_of_item" or name in {each.name for each in votes.indexes}
        if kind != "table" or name is None:
            return True
        schema = parents.get("schema_name")
        beside = {
            f"{table.name}_{suffix}"
            for one in every
            for table in one.tables.values()
            if "hotcount" in table.info and table.schema == schema
            for suffix in _TABLES
        }
        return name not in beside and not name.startswith(_PREFIX)

    return is_included
