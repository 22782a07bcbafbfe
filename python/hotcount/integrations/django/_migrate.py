"""Steps before and after `migrate` and `flush`: triggers, and the mark of the counts' place."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from django.apps import apps as all_apps
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections, router
from django.db.migrations import RenameModel

import hotcount
from hotcount.integrations.django import _votes
from hotcount.integrations.django._schema import (
    DIALECTS,
    VIEWS,
    column_statements,
    drop_tables,
    drop_triggers,
    drop_views,
    names_of,
    rename_statements,
    schema_statements,
    settings,
    view_statements,
    vote_models,
)

# By database alias: the tables that `migrate` found, by the labels of their vote models.
_found: dict[str, dict[tuple[str, str], _Tables]] = {}


@dataclass
class _Tables:
    """A vote table, with the names that hotcount has from it."""

    table: str
    key: str
    names: dict[str, Any]


def _models(apps: Any, using: str) -> list[tuple[Any, Any]]:
    return [each for each in vote_models(apps) if router.allow_migrate_model(using, each[0])]


def _tables(apps: Any, using: str) -> dict[tuple[str, str], _Tables]:
    return {
        (model._meta.app_label, model._meta.model_name): _Tables(
            model._meta.db_table, constraint.name, names_of(model, constraint, connections[using])
        )
        for model, constraint in _models(apps, using)
    }


def before(*, using: str, plan: Any, apps: Any = all_apps, **_: Any) -> None:
    """Records the tables, and drops the views and triggers that would make ALTER TABLE fail."""
    connection = connections[using]
    if not plan or connection.vendor not in DIALECTS:
        return
    _found[using] = _tables(apps, using)
    quote = connection.ops.quote_name
    if connection.vendor == "sqlite":
        views = {f"{each.table}_{end}" for each in _found[using].values() for end in VIEWS}
        with connection.cursor() as cursor:
            cursor.execute("SELECT type, name FROM sqlite_master")
            for kind, name in cursor.fetchall():
                if (kind == "trigger" and "_hotcount_" in name) or (
                    kind == "view" and name in views
                ):
                    cursor.execute(f"DROP {kind} {quote(name)}")
    elif connection.vendor == "postgresql":
        # Also those of which no operation names a column: an id may be a parent's, or renamed.
        for each in _found[using].values():
            _run(connection, drop_views(each.table, connection))
            _run(connection, drop_triggers(each.table, connection))


def after(*, using: str, apps: Any = all_apps, plan: Any = None, **_: Any) -> None:
    """After `migrate`: completes the tables. After `flush`: empties ours, and ends our sessions."""
    connection = connections[using]
    if connection.vendor not in DIALECTS or _votes.is_in_test_case(using):
        return
    changed = _follow(using, connection, apps, plan) if plan else set()
    tables = set(connection.introspection.table_names(include_views=True))
    found = [
        (model, constraint)
        for model, constraint in _models(apps, using)
        if f"{model._meta.db_table}_meta" in tables
    ]
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        for model, constraint in found:
            _complete_in_memory(model, constraint, connection)
        return
    if plan is None:
        _votes.close_votes(using)
    mode = _journal_mode(connection)
    for model, constraint in found:
        table = model._meta.db_table
        is_whole = {f"{table}_{view}" for view in VIEWS} <= tables
        is_lite = connection.vendor == "sqlite"
        if not is_whole and not is_lite:  # create_tables() makes SQLite's views.
            _run(connection, view_statements(model, constraint, connection))
        with closing(_votes.make_votes(model, constraint, using)) as votes:
            if plan is None:
                _empty(votes)
            else:
                # before() drops the triggers together with the views, on MySQL neither.
                lacked_triggers = not is_whole and connection.vendor != "mysql"
                _complete(votes, model, repair=table in changed or lacked_triggers)
    if mode == "delete":
        # A copy of the file, such as `test --parallel` makes, lacks the content of the WAL.
        with suppress(OperationalError):  # Another session reads the database.
            _journal_mode(connection, "delete")


def _follow(using: str, connection: Any, apps: Any, plan: Any) -> set[str]:
    """Renames and drops our tables as the migrations did with the vote tables.

    Returns:
        The vote tables that are called otherwise now, or of which a column or OneVote is.
    """
    found, state = _found.pop(using, {}), _tables(apps, using)
    for migration, backwards in plan:
        steps = [each for each in migration.operations if isinstance(each, RenameModel)]
        for step in reversed(steps) if backwards else steps:
            names = [step.old_name_lower, step.new_name_lower]
            old, new = reversed(names) if backwards else names
            if (migration.app_label, old) in found:
                found[migration.app_label, new] = found.pop((migration.app_label, old))
    tables = set(connection.introspection.table_names())
    kept = {each.table for each in state.values()}
    changed = set()
    for label, was in found.items():
        now = state.get(label)
        if now is None and was.table not in kept and not _is_there(was, tables, connection):
            _run(connection, drop_views(was.table, connection))
            _run(connection, drop_triggers(was.table, connection))
            _run(connection, drop_tables(was.table, connection))
        elif now is not None and now != was:
            _run(connection, drop_views(was.table, connection))
            _run(connection, drop_triggers(was.table, connection))
            if was.table not in tables and f"{was.table}_meta" in tables:
                # A OneVote that was added after the renaming has made empty ones.
                _run(connection, drop_views(now.table, connection))
                _run(connection, drop_tables(now.table, connection))
                _run(connection, rename_statements(was.table, now.table, tables, connection))
            _run(connection, column_statements(now.table, now.names, connection))
            changed.add(now.table)
    return changed


def _is_there(was: _Tables, tables: set[str], connection: Any) -> bool:
    """Whether its unique key is: `migrate --fake` changes nothing in the database."""
    if was.table not in tables:
        return False
    with connection.cursor() as cursor:
        return was.key in connection.introspection.get_constraints(cursor, was.table)


def _run(connection: Any, statements: list[str]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


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
    if repair:  # A migration may have written votes while the triggers were dropped.
        votes.reconcile()


def _empty(votes: hotcount.Votes) -> None:
    """Removes what votes keep of items that `flush` deleted: an id used again begins at 0."""
    for drift in votes.reconcile():
        if drift.orphan:
            votes.remove_item(drift.item)


def _complete_in_memory(model: Any, constraint: Any, connection: Any) -> None:
    """Completes an in-memory database, which hotcount's connections cannot open: its counts are the
    sums of the votes."""
    statements = schema_statements(model, constraint, connection)
    table = connection.ops.quote_name(f"{model._meta.db_table}_meta")
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        cursor.execute(f"INSERT OR REPLACE INTO {table} VALUES ('counted_in', 'cache')")


def _journal_mode(connection: Any, mode: str = "") -> str | None:
    """SQLite's journal mode, set to `mode` if given; None for other databases."""
    if connection.vendor != "sqlite":
        return None
    with connection.cursor() as cursor:
        # Before it reads, the session does not know that another one has changed the mode.
        cursor.execute("SELECT count(*) FROM sqlite_master")
        cursor.fetchall()
        cursor.execute(f"PRAGMA journal_mode{'=' if mode else ''}{mode}")
        return str(cursor.fetchone()[0])
