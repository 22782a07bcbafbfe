"""The tables of votes as Django's migrations have them: settings, columns, OneVote."""

from __future__ import annotations

import functools
import inspect
import uuid
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.backends.ddl_references import Statement
from django.db.models import F

import hotcount
from hotcount._schema import NAMES
from hotcount.functions import votes_schema

# hotcount's dialects by Django's vendors.
DIALECTS = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}

_ID_TYPES: dict[str, type] = {
    "UUIDField": uuid.UUID,
    "CharField": str,
    "SlugField": str,
    "TextField": str,
}


class Settings:
    """HOTCOUNT_VOTES, which may be left out.

    STRATEGY ("batched"), CACHE (None): of hotcount.Votes.
    OUTSIDE_WRITES ("count"): which rows that the ORM and others write triggers count; "deletes"
    counts only deleted rows, and spares votes the triggers' price
    (docs/explanation/your-tables.md).
    EXISTING_COUNTS (None): "keep" or "recount", where counts were there before hotcount.
    OPTIONS ({}): other options of hotcount.Votes, such as max_batch.
    """

    def __init__(self) -> None:
        defaults: dict[str, Any] = {
            "STRATEGY": "batched",
            "CACHE": None,
            "OUTSIDE_WRITES": "count",
            "EXISTING_COUNTS": None,
            "OPTIONS": {},
        }
        given = getattr(django_settings, "HOTCOUNT_VOTES", {})
        if not isinstance(given, dict):
            raise ImproperlyConfigured(f"HOTCOUNT_VOTES is {given!r}; it takes a dict")
        unknown = set(given) - set(defaults)
        if unknown:
            raise ImproperlyConfigured(
                f"HOTCOUNT_VOTES has {sorted(unknown)[0]!r}; it takes {', '.join(defaults)}"
            )
        values = {**defaults, **given}
        self.strategy, self.cache = values["STRATEGY"], values["CACHE"]
        self.outside_writes = values["OUTSIDE_WRITES"]
        self.existing_counts = values["EXISTING_COUNTS"]
        self.options: dict[str, Any] = dict(values["OPTIONS"])
        self._check(values)

    def _check(self, values: dict[str, Any]) -> None:
        known = {
            "STRATEGY": ("naive", "slotted", "cached", "write_behind", "batched"),
            "OUTSIDE_WRITES": ("none", "deletes", "count"),
            "EXISTING_COUNTS": (None, "keep", "recount"),
        }
        for name, choices in known.items():
            if values[name] not in choices:
                raise ImproperlyConfigured(
                    f"HOTCOUNT_VOTES[{name!r}] is {values[name]!r}; it takes "
                    + ", ".join(map(repr, choices))
                )
        taken = {"db", "cache", "strategy", "foreign_key", *(name for name, _ in NAMES)}
        options = set(inspect.signature(hotcount.Votes).parameters) - taken
        for name in self.options:
            if name not in options:
                raise ImproperlyConfigured(
                    f"HOTCOUNT_VOTES['OPTIONS'] has {name!r}; it takes {', '.join(sorted(options))}"
                )


@functools.cache
def settings() -> Settings:
    return Settings()


_PUBLIC = "hotcount.integrations.django.models"


class VoteCountField(models.BigIntegerField):
    """The column of counts, which hotcount writes and the ORM does not."""

    def __init__(self, *args: Any, **options: Any) -> None:
        # serialize: a fixture's votes are counted when they are loaded; the count would be added.
        fixed = {"default": 0, "db_default": 0, "editable": False, "serialize": False}
        super().__init__(*args, **{**options, **fixed})

    def deconstruct(self) -> Any:
        """Migrations name the public module."""
        name, _, args, options = super().deconstruct()
        for fixed in ("default", "db_default", "editable", "serialize"):
            options.pop(fixed, None)
        return name, f"{_PUBLIC}.VoteCountField", args, options

    def pre_save(self, model_instance: Any, add: bool) -> Any:
        """0 for a new row; an UPDATE keeps the count in the database, however old the object is."""
        return 0 if add else F(self.attname)


class OneVote(models.UniqueConstraint):
    """One vote of a user for an item, and the tables with which hotcount counts the votes.

    makemigrations writes it like any constraint. A migration that adds it makes the unique key and
    the tables and views that `hotcount schema` prints, named after the vote table; one that removes
    it drops them. Triggers, which count what the ORM writes, and the mark that says where the
    counts are follow at the end of `migrate`, because they are made from what the database has by
    then; on PostgreSQL and SQLite the views do.

    Args:
        fields: The foreign key to what is voted for, then the one to the user.
        name, violation_error_code, violation_error_message: As of each constraint. A key with a
            condition, or a deferrable one, is none for votes.
    """

    def __init__(
        self,
        *,
        fields: Any,
        name: str,
        violation_error_code: str | None = None,
        violation_error_message: Any = None,
    ) -> None:
        if len(fields) != 2:
            raise ValueError(
                f"OneVote {name!r} takes two fields, the foreign key to what is voted for and the "
                f"one to the user; it has {len(fields)}"
            )
        super().__init__(
            fields=fields,
            name=name,
            violation_error_code=violation_error_code,
            violation_error_message=violation_error_message,
        )

    @property
    def item(self) -> str:
        """The name of the foreign key to the item."""
        return str(self.fields[0])

    @property
    def user(self) -> str:
        """The name of the foreign key to the user."""
        return str(self.fields[1])

    def __eq__(self, other: object) -> bool:
        """Not a UniqueConstraint of the same fields, which makes no tables."""
        return isinstance(other, OneVote) and super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def deconstruct(self) -> Any:
        """Migrations name the public module."""
        _, args, options = super().deconstruct()
        return f"{_PUBLIC}.OneVote", args, options

    def constraint_sql(self, model: Any, schema_editor: Any) -> Any:
        """The unique key within CREATE TABLE; our tables after it."""
        self._defer(model, schema_editor)
        return super().constraint_sql(model, schema_editor)

    def create_sql(self, model: Any, schema_editor: Any) -> Any:
        """The unique key of a table that is there; our tables after it."""
        self._defer(model, schema_editor)
        return super().create_sql(model, schema_editor)

    def remove_sql(self, model: Any, schema_editor: Any) -> Any:
        """Drops our views and triggers, and then the unique key.

        A constraint that changes is removed and added. So our tables stay until the end of
        `migrate`, and go if no other OneVote has come.
        """
        table, connection = model._meta.db_table, schema_editor.connection
        # MySQL's editor calls create_sql() to find out whether there is anything to remove.
        schema_editor.deferred_sql[:] = [
            each for each in schema_editor.deferred_sql if getattr(each, "vote_table", "") != table
        ]
        for statement in drop_views_and_triggers(table, connection):
            schema_editor.execute(statement, params=None)
        return super().remove_sql(model, schema_editor)

    def _defer(self, model: Any, schema_editor: Any) -> None:
        connection = schema_editor.connection
        if connection.vendor not in DIALECTS:
            return  # Votes are not supported there; the constraint alone does no harm.
        table = model._meta.db_table
        with connection.cursor() as cursor:
            if f"{table.removeprefix('new__')}_meta" in connection.introspection.table_names(
                cursor
            ):
                return  # The tables exist; the end of `migrate` brings them up to date.
        for each in ddl_statements(model, self, connection):
            schema_editor.deferred_sql.append(_Deferred(each, table))


class _Deferred(Statement):
    """A deferred statement for the tables beside a vote table; it follows renames of that table."""

    def __init__(self, text: str, vote_table: str) -> None:
        super().__init__(text)
        self.text = text
        self.vote_table = vote_table

    def __str__(self) -> str:
        return self.text

    def references_table(self, table: str) -> bool:
        """Whether the statement is dropped with the table."""
        return table == self.vote_table

    def rename_table_references(self, old_table: str, new_table: str) -> None:
        """Renames the vote table or the item table in the statement."""
        ends = [f"_{each}" for each in (*VIEWS, *_BESIDE, "by_item")]
        for end in ["", *(ends if old_table == self.vote_table else [])]:
            self.text = self.text.replace(f'"{old_table}{end}"', f'"{new_table}{end}"')
        if old_table == self.vote_table:
            self.vote_table = new_table


def vote_constraint(model: Any) -> OneVote | None:
    """The OneVote of a vote model; None for other models."""
    found = (each for each in model._meta.constraints if isinstance(each, OneVote))
    return next(found, None)


def names_of(model: Any, constraint: Any, connection: Any) -> dict[str, Any]:
    """Tables, columns and types of a vote model, as parameters of hotcount.Votes."""
    options = model._meta
    item, user = options.get_field(constraint.item), options.get_field(constraint.user)
    of_item = item.target_field.model._meta
    counts = [each for each in of_item.local_fields if isinstance(each, VoteCountField)]
    # SQLite's schema editor makes a new table, which then gets the name of the old one.
    table = options.db_table.removeprefix("new__" if connection.vendor == "sqlite" else "\0")
    return {
        "item_table": _one_name(of_item.db_table),
        "item_id": item.target_field.column,
        "item_count": counts[0].column if counts else None,
        "vote_table": _one_name(table),
        "vote_item": item.column,
        "vote_user": user.column,
        "vote_value": options.get_field("val").column,
        "vote_previous": options.get_field("prev").column,
        "vote_version": options.get_field("version").column,
        "item_type": id_type(item, connection),
        "user_type": id_type(user, connection),
        # Django's foreign key guards the votes. A foreign key of hotcount's on the votes without a
        # user would make `flush` fail to empty the items.
        "foreign_key": False,
    }


def _one_name(table: str) -> str:
    return f'"{table}"' if "." in table else table


def id_type(field: Any, connection: Any) -> type:
    """int, str or UUID: the type of the ids in a foreign key's column."""
    target = field.target_field
    while target.remote_field is not None:
        target = target.target_field
    found = _ID_TYPES.get(target.get_internal_type(), int)
    if found is uuid.UUID and not connection.features.has_native_uuid_field:
        raise ImproperlyConfigured(
            f"{field.model._meta.label}.{field.name} is a UUID, which Django keeps without dashes "
            f"on {connection.display_name}, and hotcount does not; PostgreSQL and MariaDB 10.7 "
            "have a type for it"
        )
    return found


def vote_models(registry: Any = apps) -> list[tuple[Any, Any]]:
    """Each vote model of the project, or of a migration's state, with its OneVote."""
    found = ((model, vote_constraint(model)) for model in registry.get_models())
    return [(model, constraint) for model, constraint in found if constraint is not None]


@functools.cache
def vote_model_of(model: Any) -> tuple[Any, Any]:
    """The vote model of a model that is voted for, or of a vote model itself."""
    found = [
        (votes, constraint)
        for votes, constraint in vote_models()
        if model._meta.concrete_model
        in (votes, votes._meta.get_field(constraint.item).related_model)
        or votes._meta.get_field(constraint.item).related_model in model._meta.get_parent_list()
    ]
    if len(found) != 1:
        names = ", ".join(votes._meta.label for votes, _ in found) or "no model"
        raise ImproperlyConfigured(
            f"{model._meta.label} is voted for in {names}; it takes one model with a foreign key "
            "to it and a OneVote in Meta.constraints"
        )
    return found[0]


def schema_statements(model: Any, constraint: OneVote, connection: Any) -> list[str]:
    """The statements that `hotcount schema` prints for the model's table, one a line."""
    names = names_of(model, constraint, connection)
    strategy = settings().strategy
    return votes_schema(DIALECTS[connection.vendor], strategy, **names).strip().splitlines()


def ddl_statements(model: Any, constraint: OneVote, connection: Any) -> list[str]:
    """schema_statements() for a session of Django's within a migration."""
    statements = schema_statements(model, constraint, connection)
    if connection.vendor == "mysql":
        return [
            "SET @hotcount_mode = @@SESSION.sql_mode",
            "SET SESSION sql_mode = CONCAT_WS(',', @@SESSION.sql_mode, 'ANSI_QUOTES')",
            *statements,
            "SET SESSION sql_mode = @hotcount_mode",
        ]
    # A view would make the next ALTER TABLE fail, which may follow in this `migrate`.
    return [each for each in statements if not _is_view(each)]


def view_statements(model: Any, constraint: OneVote, connection: Any) -> list[str]:
    """The views, which ddl_statements() leaves to the end of `migrate`."""
    if connection.vendor == "mysql":
        return ddl_statements(model, constraint, connection)
    return [each for each in schema_statements(model, constraint, connection) if _is_view(each)]


def _is_view(statement: str) -> bool:
    return statement.startswith(("CREATE VIEW", "CREATE OR REPLACE VIEW"))


VIEWS = ("live", "count")
_BESIDE = ("anonymous", "cell", "journal", "sync", "recount", "meta")


def drop_views(table: str, connection: Any) -> list[str]:
    """Drops the views beside a vote table."""
    quote = connection.ops.quote_name
    return [f"DROP VIEW IF EXISTS {quote(f'{table}_{view}')}" for view in VIEWS]


def drop_triggers(table: str, connection: Any) -> list[str]:
    """Drops the triggers of a vote table and of the one beside it; on SQLite `migrate` has."""
    quote = connection.ops.quote_name
    if connection.vendor == "postgresql":
        return [f"DROP FUNCTION IF EXISTS {quote(f'{table}_hotcount')}() CASCADE"]
    if connection.vendor == "mysql":
        return [
            f"DROP TRIGGER IF EXISTS {quote(f'{of}_hotcount_{event}')}"
            for of in (table, f"{table}_anonymous")
            for event in ("deleted", "inserted", "updated", "inserting")
        ]
    return []


def drop_views_and_triggers(table: str, connection: Any) -> list[str]:
    """Drops them. The mark `repair` makes `migrate` reconcile what was written meanwhile."""
    made = f"{table}_meta" in connection.introspection.table_names()
    return [
        *([mark_statement(table, connection, "repair")] if made else []),
        *drop_views(table, connection),
        *drop_triggers(table, connection),
    ]


def mark_statement(table: str, connection: Any, name: str, value: str = "''") -> str:
    """Writes a row of the table of marks; `value` is SQL."""
    marks = connection.ops.quote_name(f"{table}_meta")
    if connection.vendor == "mysql":
        return f"REPLACE INTO {marks} (name, value) VALUES ('{name}', {value})"
    return (
        f"INSERT INTO {marks} (name, value) VALUES ('{name}', {value}) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )


def drop_tables(table: str, connection: Any) -> list[str]:
    """Drops the tables beside a vote table."""
    quote = connection.ops.quote_name
    return [f"DROP TABLE IF EXISTS {quote(f'{table}_{each}')}" for each in _BESIDE]


def move_statements(old: str, new: str, tables: set[str], connection: Any) -> list[str]:
    """Moves votes without a user from the table beside one vote table to that beside another."""
    if not {f"{old}_anonymous", f"{new}_anonymous"} <= tables:
        return []
    source, target = (connection.ops.quote_name(f"{each}_anonymous") for each in (old, new))
    if connection.vendor == "mysql":
        return [f"INSERT IGNORE INTO {target} SELECT * FROM {source}"]
    lock = f"LOCK TABLE {source} IN ACCESS EXCLUSIVE MODE"
    return [
        *([lock] if connection.vendor == "postgresql" else []),
        # WHERE: SQLite would take ON for that of a join.
        f"INSERT INTO {target} SELECT * FROM {source} WHERE true ON CONFLICT DO NOTHING",
    ]


def rename_statements(old: str, new: str, tables: set[str], connection: Any) -> list[str]:
    """Renames the tables beside a vote table that has been renamed, in place of others.

    The marks come last: MySQL, killed in between, goes on with the tables that are left.
    """
    quote = connection.ops.quote_name
    statements = []
    for each in _BESIDE:
        if f"{old}_{each}" in tables:
            source, target = quote(f"{old}_{each}"), quote(f"{new}_{each}")
            statements.append(f"DROP TABLE IF EXISTS {target}")
            statements.append(f"ALTER TABLE {source} RENAME TO {target}")
    if connection.vendor == "postgresql":
        index = quote(f"{old}_by_item")
        statements.append(f"ALTER INDEX IF EXISTS {index} RENAME TO {quote(f'{new}_by_item')}")
    return statements


def column_statements(table: str, names: dict[str, Any], connection: Any) -> list[str]:
    """Renames columns of the votes without a user, which have the names of the vote table's."""
    with connection.cursor() as cursor:
        beside = f"{table}_anonymous"
        found = connection.introspection.get_table_description(cursor, beside)
    wanted = [names[each] for each in ("vote_item", "vote_value", "vote_previous", "vote_version")]
    quote = connection.ops.quote_name
    columns = [each.name for each in found if each.name != "op_id"]
    return [
        f"ALTER TABLE {quote(beside)} RENAME COLUMN {quote(old)} TO {quote(new)}"
        for old, new in zip(columns, wanted, strict=True)
        if old != new
    ]
