"""Steps before and after `migrate` and `flush`: triggers, and the mark of the counts' place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from django.apps import apps as all_apps
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections, router
from django.db.migrations import RenameModel
from django.db.migrations.recorder import MigrationRecorder
from django.db.transaction import atomic

import hotcount
from hotcount.integrations.django import _votes
from hotcount.integrations.django._schema import (
    DIALECTS,
    VIEWS,
    column_statements,
    drop_tables,
    drop_views_and_triggers,
    mark_statement,
    move_statements,
    names_of,
    rename_statements,
    schema_statements,
    settings,
    view_statements,
    vote_models,
)

# migrate: a `migrate` has begun. JSON: the vote model, its OneVote, the renamings of the plan.
# repair: triggers were dropped, so votes may be uncounted.
_MARKS = "('migrate', 'repair')"

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
    _found.pop(using, None)  # Of a `migrate` in this process that failed.
    connection = connections[using]
    if not plan or connection.vendor not in DIALECTS:
        return
    state = _tables(apps, using)
    _found[using] = found = state | _left(connection)
    here = set(connection.introspection.table_names())
    for label, each in found.items():
        if f"{each.table}_meta" in here:
            mark = json.dumps([*label, each.key, _path(label, plan)])
            with connection.cursor() as cursor:
                cursor.execute(mark_statement(each.table, connection, "migrate", "%s"), [mark])
    if connection.vendor != "mysql":
        # Also those of which no operation names a column: an id may be a parent's, or renamed.
        _clear(connection, {each.table for each in [*state.values(), *found.values()]})


def _renames(plan: Any) -> Iterator[tuple[Any, bool, str, str]]:
    """Each renaming of a model: its migration, whether that runs backwards, from and to."""
    for migration, backwards in plan:
        steps = [each for each in _flat(migration.operations) if isinstance(each, RenameModel)]
        for step in reversed(steps) if backwards else steps:
            names = [step.old_name_lower, step.new_name_lower]
            old, new = reversed(names) if backwards else names
            yield migration, backwards, old, new


def _flat(operations: Any) -> Iterator[Any]:
    """The operations; state_operations replace SeparateDatabaseAndState and RunSQL."""
    for each in operations:
        of_state = getattr(each, "state_operations", ())
        yield from _flat(of_state) if of_state else [each]


def _path(label: tuple[str, str], plan: Any) -> list[tuple[str, bool, str]]:
    """The renamings of one model: the migration's name, whether it runs backwards, the new name."""
    path = []
    app, model = label
    for migration, backwards, old, new in _renames(plan):
        if (migration.app_label, old) == (app, model):
            path.append((migration.name, backwards, model := new))
    return path


def _left(connection: Any) -> dict[tuple[str, str], _Tables]:
    """The tables that carry the mark of a `migrate` that failed, by the names that their models
    have after the migrations it applied. Their columns are unknown."""
    tables = set(connection.introspection.table_names())
    left = {}
    for each in sorted(tables):
        table = each.removesuffix("_meta")
        if table != each and {f"{table}_cell", f"{table}_anonymous"} <= tables:
            mark = _marks(connection, table).get("migrate")
            if mark is not None:
                app, model, key, path = json.loads(mark)
                done = MigrationRecorder(connection).applied_migrations()
                for migration, backwards, new in path:
                    if ((app, migration) in done) != backwards:
                        model = new
                left[app, model] = _Tables(table, key, {})
    return left


def _clear(connection: Any, tables: set[str]) -> None:
    """Drops the views and triggers of these vote tables, on SQLite the triggers of all; the rest of
    `migrate`, or the next one, counts what is written without them."""
    if connection.vendor != "sqlite":
        for table in tables:
            _run(connection, drop_views_and_triggers(table, connection))
        return
    quote = connection.ops.quote_name
    views = {f"{each}_{end}" for each in tables for end in VIEWS}
    with connection.cursor() as cursor:
        cursor.execute("SELECT type, name, tbl_name FROM sqlite_master")
        made = cursor.fetchall()
        drops = []
        cleared = set(tables)
        for kind, name, of in made:
            if kind == "trigger" and "_hotcount_" in name:
                drops.append(f"DROP TRIGGER {quote(name)}")
                cleared.add(of.removesuffix("_anonymous"))
            elif kind == "view" and name in views:
                drops.append(f"DROP VIEW {quote(name)}")
        marked = {name.removesuffix("_meta") for _, name, _ in made if name.endswith("_meta")}
        marks = [mark_statement(each, connection, "repair") for each in sorted(cleared & marked)]
        for statement in marks + drops:
            cursor.execute(statement)


def _marks(connection: Any, table: str) -> dict[str, str]:
    """The marks of a vote table: the steps that an earlier `migrate` has not completed."""
    marks = connection.ops.quote_name(f"{table}_meta")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT name, value FROM {marks} WHERE name IN {_MARKS}")
        return {_text(name): _text(value) for name, value in cursor.fetchall()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _unmark(connection: Any, table: str) -> None:
    if _marks(connection, table):  # Otherwise no write, which would wait for others on SQLite.
        marks = connection.ops.quote_name(f"{table}_meta")
        _run(connection, [f"DELETE FROM {marks} WHERE name IN {_MARKS}"])


def after(*, using: str, apps: Any = all_apps, plan: Any = None, **_: Any) -> None:
    """After `migrate`: completes the tables. After `flush`: empties ours, and ends our sessions."""
    connection = connections[using]
    if connection.vendor not in DIALECTS or _votes.is_in_test_case(using):
        return
    cleared = set() if plan is None else _follow(using, connection, apps, plan)
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
                # Another `migrate` may end now, and delete the mark while triggers are away again.
                repair = table in cleared or "repair" in _marks(connection, table)
                _complete(votes, model, repair=repair)
        if plan is not None:
            _unmark(connection, table)
    if mode == "delete":
        # A copy of the file, such as `test --parallel` makes, lacks the content of the WAL.
        with suppress(OperationalError):  # Another session reads the database.
            _journal_mode(connection, "delete")


def _follow(using: str, connection: Any, apps: Any, plan: Any) -> set[str]:
    """Renames and drops our tables as the migrations did with the vote tables.

    Returns:
        The vote tables whose triggers this `migrate` has dropped.
    """
    found, state = _found.pop(using, None), _tables(apps, using)
    has_dropped = found is not None and connection.vendor != "mysql"  # before() has.
    if found is None:
        found = _left(connection)
    for migration, _, old, new in _renames(plan):
        if (migration.app_label, old) in found:
            found[migration.app_label, new] = found.pop((migration.app_label, old))
    cleared = {state[each].table for each in found.keys() & state.keys() if has_dropped}
    tables = set(connection.introspection.table_names())
    kept = {each.table for each in state.values()}
    for label, was in found.items():
        now = state.get(label)
        if now is None and was.table not in kept and not _is_there(was, tables, connection):
            _clear(connection, {was.table})
            _run(connection, drop_tables(was.table, connection))
        elif now is not None and now != was and now.table in tables:
            _clear(connection, {was.table, now.table})
            cleared.add(now.table)
            if was.table not in tables and f"{was.table}_meta" in tables:
                # A OneVote that was added after the renaming has made others; between a `migrate`
                # that failed and this one they may have got votes without a user.
                with atomic(using):
                    _run(connection, move_statements(now.table, was.table, tables, connection))
                    _run(connection, rename_statements(was.table, now.table, tables, connection))
            if {f"{was.table}_anonymous", f"{now.table}_anonymous"} & tables:
                _run(connection, column_statements(now.table, now.names, connection))
    return cleared


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
        cursor.execute(f"DELETE FROM {table} WHERE name IN {_MARKS}")
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
