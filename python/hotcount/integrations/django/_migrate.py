"""What follows `migrate` and `flush`: triggers, and the mark that says where counts are."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

from django.apps import apps as all_apps
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections, router

import hotcount
from hotcount.integrations.django import _votes
from hotcount.integrations.django._schema import (
    DIALECTS,
    drop_statements,
    schema_statements,
    settings,
    vote_constraint,
    vote_models,
)


def before(*, using: str, plan: Any, **_: Any) -> None:
    """On SQLite: takes out our views and triggers, which would stop an ALTER TABLE."""
    connection = connections[using]
    if connection.vendor != "sqlite" or not plan:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT type, name FROM sqlite_master")
        found = {(kind, name) for kind, name in cursor.fetchall()}
        votes = [name[:-5] for kind, name in found if kind == "table" and name.endswith("_meta")]
        ours = {("view", table + end) for table in votes for end in ("_live", "_count")}
        ours |= {each for each in found if each[0] == "trigger" and "_hotcount_" in each[1]}
        for kind, name in sorted(ours & found):
            cursor.execute(f"DROP {kind} {connection.ops.quote_name(name)}")


def after(*, using: str, apps: Any = all_apps, plan: Any = None, **more: Any) -> None:
    """After `migrate`: completes the tables. After `flush`: empties ours, and ends our sessions."""
    connection = connections[using]
    if connection.vendor not in DIALECTS or _votes.is_in_test_case(using):
        return
    tables = set(connection.introspection.table_names())
    if plan:
        _drop_leftovers(connection, tables)
    found = [
        (model, constraint)
        for model, constraint in vote_models()
        if router.allow_migrate_model(using, model)
        and f"{model._meta.db_table}_meta" in tables
        and _is_in(apps, model)
    ]
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        for model, constraint in found:
            _complete_in_memory(model, constraint, connection)
        return
    if plan is None:
        _votes.close_votes(using)
    mode = _journal_mode(connection)
    for model, constraint in found:
        with closing(_votes.make_votes(model, constraint, using)) as votes:
            if plan is None:
                _empty(votes)
            else:
                _complete(votes, model, repair=bool(plan) and connection.vendor == "sqlite")
    if mode == "delete":
        # A copy of the file, as `test --parallel` makes, has what is in the file alone.
        with suppress(OperationalError):  # Somebody else reads it.
            _journal_mode(connection, "delete")


def _is_in(state: Any, model: Any) -> bool:
    """Whether the migrations that were applied have the vote tables."""
    try:
        return vote_constraint(state.get_model(model._meta.label)) is not None
    except LookupError:
        return False


def _drop_leftovers(connection: Any, tables: set[str]) -> None:
    """What is beside a vote table that a migration has dropped, forwards or back."""
    beside = ("_anonymous", "_cell", "_meta")
    gone = {name.removesuffix("_meta") for name in tables if name.endswith("_meta")} - tables
    for table in sorted(gone):
        if {table + end for end in beside} <= tables:
            with connection.cursor() as cursor:
                for statement in drop_statements(table, connection):
                    cursor.execute(statement)
            tables -= {table + end for end in (*beside, "_journal")}


def _complete(votes: hotcount.Votes, model: Any, *, repair: bool) -> None:
    chosen = settings()
    try:
        votes.create_tables(
            existing_counts=chosen.existing_counts,
            outside_writes=chosen.outside_writes,
            timeout=60,
        )
    except hotcount.ConfigError as error:
        raise ImproperlyConfigured(
            f"{model._meta.label}: {error} (existing_counts and outside_writes are "
            "HOTCOUNT_VOTES['EXISTING_COUNTS'] and ['OUTSIDE_WRITES'])"
        ) from error
    if repair:  # What a migration wrote while the triggers were away.
        votes.reconcile()


def _empty(votes: hotcount.Votes) -> None:
    """What is left of items whose rows `flush` has deleted: an id that comes again begins at 0."""
    for drift in votes.reconcile():
        if drift.orphan:
            votes.remove_item(drift.item)


def _complete_in_memory(model: Any, constraint: Any, connection: Any) -> None:
    """Counts are the sums of the votes there, because no connection of ours comes near."""
    statements = schema_statements(model, constraint, connection)
    table = connection.ops.quote_name(f"{model._meta.db_table}_meta")
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        cursor.execute(f"INSERT OR REPLACE INTO {table} VALUES ('counted_in', 'cache')")


def _journal_mode(connection: Any, mode: str = "") -> str | None:
    """SQLite's, or None elsewhere."""
    if connection.vendor != "sqlite":
        return None
    with connection.cursor() as cursor:
        # Before it reads, the session does not know that another one has changed the mode.
        cursor.execute("SELECT count(*) FROM sqlite_master")
        cursor.fetchall()
        cursor.execute(f"PRAGMA journal_mode{'=' if mode else ''}{mode}")
        return str(cursor.fetchone()[0])
