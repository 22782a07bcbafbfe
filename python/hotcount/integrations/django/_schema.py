"""The tables of votes as Django's migrations have them: settings, columns, OneVote."""

from __future__ import annotations

import functools
import uuid
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models import F

from hotcount.functions import votes_schema

# What hotcount calls Django's vendors.
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
    counts only what is deleted, and spares votes the triggers' price (docs/votes.md).
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
        """0 for a new row; an UPDATE keeps what the database has, however old the object is."""
        return 0 if add else F(self.attname)


class OneVote(models.UniqueConstraint):
    """One vote of a user for an item, and the tables with which hotcount counts the votes.

    makemigrations writes it like any constraint. A migration that adds it makes the unique key and
    the tables and views that `hotcount schema` prints, named after the vote table; one that removes
    it drops them. Triggers, which count what the ORM writes, and the mark that says where the
    counts are follow at the end of `migrate`, because they are made from what the database has by
    then.

    Args:
        fields: The foreign key to what is voted for, then the one to the user.
        name: As of each constraint.
    """

    def __init__(self, *, fields: Any, name: str, **options: Any) -> None:
        if len(fields) != 2:
            raise ValueError(
                f"OneVote {name!r} takes two fields, the foreign key to what is voted for and the "
                f"one to the user; it has {len(fields)}"
            )
        super().__init__(fields=fields, name=name, **options)

    @property
    def item(self) -> str:
        """The name of the foreign key to what is voted for."""
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
        schema_editor.deferred_sql.extend(self._statements(model, schema_editor.connection))
        return super().constraint_sql(model, schema_editor)

    def create_sql(self, model: Any, schema_editor: Any) -> Any:
        """The unique key of a table that is there; our tables after it."""
        schema_editor.deferred_sql.extend(self._statements(model, schema_editor.connection))
        return super().create_sql(model, schema_editor)

    def remove_sql(self, model: Any, schema_editor: Any) -> Any:
        """Drops our tables, views and triggers, and then the unique key."""
        table, connection = model._meta.db_table, schema_editor.connection
        for statement in drop_statements(table, connection, has_votes=True):
            schema_editor.execute(statement, params=None)
        return super().remove_sql(model, schema_editor)

    def _statements(self, model: Any, connection: Any) -> list[str]:
        if connection.vendor not in DIALECTS:
            return []  # As long as nobody votes there, the constraint alone does no harm.
        statements = schema_statements(model, self, connection)
        if connection.vendor == "sqlite":
            # A view stands in the way of the next ALTER TABLE, which may follow in this `migrate`.
            return [each for each in statements if not each.startswith("CREATE VIEW")]
        if connection.vendor == "mysql":
            return [
                "SET @hotcount_mode = @@SESSION.sql_mode",
                "SET SESSION sql_mode = CONCAT_WS(',', @@SESSION.sql_mode, 'ANSI_QUOTES')",
                *statements,
                "SET SESSION sql_mode = @hotcount_mode",
            ]
        return statements


def vote_constraint(model: Any) -> OneVote | None:
    """The OneVote of a model, if it is one of votes."""
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
        # The key of Django's that stands there guards the votes. One of ours on the votes without
        # a user would keep `flush` from emptying the items.
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


def vote_models() -> list[tuple[Any, Any]]:
    """Each vote model of the project with its OneVote."""
    found = ((model, vote_constraint(model)) for model in apps.get_models())
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
    """What `hotcount schema` prints for the model's table, a statement a line there."""
    names = names_of(model, constraint, connection)
    strategy = settings().strategy
    return votes_schema(DIALECTS[connection.vendor], strategy, **names).strip().splitlines()


def drop_statements(table: str, connection: Any, *, has_votes: bool = False) -> list[str]:
    """Drops the tables and views beside a vote table, and its triggers if it is there."""
    quote = connection.ops.quote_name
    vote = quote(table)
    statements: list[str] = []
    if connection.vendor == "postgresql" and has_votes:
        for event in ("deleted", "emptied", "inserted", "updated"):
            statements.append(f"DROP TRIGGER IF EXISTS hotcount_{event} ON {vote}")
    elif connection.vendor == "mysql" and has_votes:
        for event in ("deleted", "inserted", "updated", "inserting"):
            statements.append(f"DROP TRIGGER IF EXISTS {quote(f'{table}_hotcount_{event}')}")
    for view in ("live", "count"):
        statements.append(f"DROP VIEW IF EXISTS {quote(f'{table}_{view}')}")
    for each in ("anonymous", "cell", "journal", "sync", "recount", "meta"):
        statements.append(f"DROP TABLE IF EXISTS {quote(f'{table}_{each}')}")
    if connection.vendor == "postgresql":
        statements.append(f"DROP FUNCTION IF EXISTS {quote(f'{table}_hotcount')}()")
    return statements
