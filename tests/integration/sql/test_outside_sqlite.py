"""What others write to votes in a SQLite file: sqlite3, cascades, REPLACE, remade tables, kills."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount.integrations.sqlalchemy import cast_vote

from tests.support.sql_votes import make_votes, open_votes
from tests.support.sqlite_files import rows

MOST = 2**63 - 1
STRATEGIES: list[tuple[str, dict[str, Any]]] = [
    ("naive", {}),
    ("slotted", {}),
    ("batched", {}),
    ("batched", {"item_count": None}),
    ("cached", {}),
]
IDS = ["naive", "slotted", "batched", "cells", "cached"]
# Ours count our own votes only where the application has triggers, too.
BESIDE = "CREATE TRIGGER beside AFTER INSERT ON person BEGIN DELETE FROM person WHERE id = 0; END;"
# An application's own tables: a vote goes with its user, and follows its item's id.
TABLES = """
CREATE TABLE person (id INTEGER PRIMARY KEY);
CREATE TABLE item (id INTEGER PRIMARY KEY, vote_count INTEGER NOT NULL DEFAULT 0);
CREATE TABLE vote (
    id INTEGER PRIMARY KEY,
    item_id INTEGER NOT NULL REFERENCES item (id) ON UPDATE CASCADE ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES person (id) ON DELETE CASCADE,
    val INTEGER NOT NULL,
    prev INTEGER NOT NULL DEFAULT 0,
    version INTEGER,
    UNIQUE (item_id, user_id));
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99)
    INSERT INTO person SELECT i FROM n;
INSERT INTO item (id) VALUES (1), (2), (3);
"""


WAYS: dict[str, tuple[str, dict[str, Any], str]] = {
    f"{name}-beside" if beside else name: (*way, beside)
    for beside in ("", BESIDE)
    for name, way in zip(IDS, STRATEGIES, strict=True)
}


def ways(*but: str) -> pytest.MarkDecorator:
    """All of them but those of these strategies."""
    kept = {name: way for name, way in WAYS.items() if way[0] not in but}
    return pytest.mark.parametrize("votes", kept.values(), ids=kept, indirect=True)


@pytest.fixture
def path(database_path: Path) -> Path:
    return database_path


def write(path: Path, script: str, *, keys: bool = True) -> None:
    """As another program does, each statement by itself."""
    with closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as other:
        other.execute(f"PRAGMA foreign_keys = {'ON' if keys else 'OFF'}")
        other.executescript(script)


def drifts(votes: hotcount.Votes) -> list[hotcount.Drift]:
    """What the counts lack; those of cached are in its cache, once it has recounted."""
    votes.flush()
    return votes.reconcile(dry_run=True)


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def votes(request: pytest.FixtureRequest, path: Path) -> Iterator[hotcount.Votes]:
    """Over the application's tables, with 5 votes for item 1 and 2 for item 2."""
    strategy, options, beside = request.param
    write(path, TABLES + beside)
    with open_votes(path, strategy, **options) as made:
        made.create_tables(outside_writes="count")
        made.cast_many([1] * 5 + [2] * 2, range(1, 8))
        yield made


WRITES = {
    "upsert": "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 4), (1, 8, 1)"
    " ON CONFLICT (item_id, user_id) DO UPDATE SET val = excluded.val",
    "upsert-nothing": "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 4), (1, 8, 1)"
    " ON CONFLICT DO NOTHING",
    "or-ignore": "INSERT OR IGNORE INTO vote (item_id, user_id, val) VALUES (1, 1, 4), (1, 8, 1)",
    "update-or-ignore": "UPDATE OR IGNORE vote SET user_id = 1 WHERE item_id = 1",
    "delete-all": "DELETE FROM vote",
    "replace-new": "REPLACE INTO vote (item_id, user_id, val) VALUES (2, 50, 3)",
    "replace-recursive": "PRAGMA recursive_triggers = ON;"
    "REPLACE INTO vote (item_id, user_id, val) VALUES (1, 1, 4), (2, 6, 2)",
    "update-or-replace-recursive": "PRAGMA recursive_triggers = ON;"
    "UPDATE OR REPLACE vote SET user_id = 1 WHERE item_id = 1 AND user_id = 2",
    "cascade-of-users": "DELETE FROM person WHERE id IN (1, 2, 6)",
    "cascade-of-items": "DELETE FROM item WHERE id = 1",
    "item-made-again": "DELETE FROM item WHERE id = 1; INSERT INTO item (id) VALUES (1);"
    "INSERT INTO vote (item_id, user_id, val) VALUES (1, 60, 1)",
    "renamed-item": "UPDATE item SET id = 7 WHERE id = 1;"
    "INSERT INTO vote (item_id, user_id, val) VALUES (7, 60, 1)",
    "moved-and-changed": "UPDATE vote SET item_id = 3, val = val + 4 WHERE user_id < 4",
    "real": "UPDATE vote SET val = 2.0 WHERE user_id = 1",
    "rolled-back": "BEGIN; DELETE FROM vote; ROLLBACK; BEGIN; SAVEPOINT a; DELETE FROM vote;"
    "ROLLBACK TO a; DELETE FROM vote WHERE user_id = 1; COMMIT",
    "attached": "ATTACH ':memory:' AS other; CREATE TABLE other.vote (item_id, user_id, val);"
    "CREATE TEMP TABLE item (id, vote_count); CREATE TEMP TABLE vote_cell (item, slot, n, ver);"
    "INSERT INTO other.vote VALUES (1, 9, 1);"
    "INSERT INTO main.vote (item_id, user_id, val) SELECT item_id, user_id, val FROM other.vote",
    "anonymous": "INSERT INTO vote_anonymous (item_id, op_id, val) VALUES (1, 'a', 1), (2, 'b', 2);"
    "DELETE FROM vote_anonymous WHERE op_id = 'a'",
    "renamed-table": "ALTER TABLE item RENAME COLUMN vote_count TO n; ALTER TABLE item RENAME"
    " COLUMN n TO vote_count; DELETE FROM vote WHERE user_id = 1",
}


@pytest.mark.parametrize("text", WRITES.values(), ids=WRITES)
def test_writes_of_other_programs_are_counted(votes: hotcount.Votes, path: Path, text: str) -> None:
    votes.cast(2, 9)
    write(path, text)
    assert drifts(votes) == []
    votes.cast(2, 9, -1)
    votes.cast(2, 10)
    votes.cast(2, None, op_id="ours")
    votes.toggle(2, 11)
    votes.retract(2, 10)
    assert drifts(votes) == []


def test_a_file_that_is_attached_counts_in_itself(votes: hotcount.Votes, path: Path) -> None:
    with closing(sqlite3.connect(":memory:", timeout=20, isolation_level=None)) as other:
        other.execute("ATTACH ? AS likes", [str(path)])
        other.execute("CREATE TABLE item (id, vote_count)")
        other.execute("INSERT INTO likes.vote (item_id, user_id, val) VALUES (1, 9, 1)")
        other.execute("DELETE FROM likes.vote WHERE user_id = 1")
    assert drifts(votes) == []


UNSEEN = {
    "replace": "REPLACE INTO vote (item_id, user_id, val) VALUES (1, 1, 4)",
    "update-or-replace": "UPDATE OR REPLACE vote SET user_id = 1 WHERE item_id = 1 AND user_id = 2",
}


@pytest.mark.parametrize("text", UNSEEN.values(), ids=UNSEEN)
def test_rows_that_replace_deletes_are_named_as_unseen(path: Path, text: str) -> None:
    write(path, TABLES)
    with open_votes(path, "batched") as votes:
        assert "REPLACE" in votes.migration(outside_writes="count")
        votes.create_tables(outside_writes="count")
        votes.cast_many([1] * 5, range(1, 6))
        write(path, text)
        assert [drift.item for drift in votes.reconcile()] == [1]
        assert votes.reconcile(dry_run=True) == []


def test_keys_that_are_off_cascade_nothing(votes: hotcount.Votes, path: Path) -> None:
    write(path, "DELETE FROM person WHERE id < 4", keys=False)
    assert drifts(votes) == []


@pytest.fixture
def full(votes: hotcount.Votes, path: Path) -> hotcount.Votes:
    """Item 1 counts as much as 64 bits hold. Counts of cached are in its cache."""
    write(path, f"INSERT INTO vote (item_id, user_id, val) VALUES (1, 8, {MOST - 5})")
    assert votes.count(1).value == MOST
    return votes


@ways("cached")
@pytest.mark.parametrize(
    "text",
    [
        "INSERT OR IGNORE INTO vote (item_id, user_id, val) VALUES (1, 9, 1)",
        "UPDATE OR REPLACE vote SET val = 2 WHERE user_id = 1",
        "UPDATE vote SET item_id = 1 WHERE user_id = 6",
    ],
)
def test_an_overflow_fails_the_statement_of_another(
    full: hotcount.Votes, path: Path, text: str
) -> None:
    with pytest.raises(sqlite3.OperationalError, match="integer overflow"):
        write(path, text)
    assert full.count(1).value == MOST
    assert full.reconcile(dry_run=True) == []


@ways("cached", "slotted")  # Each slot has 64 bits of its own.
def test_an_overflow_fails_a_vote_of_ours_alone(full: hotcount.Votes, path: Path) -> None:
    with pytest.raises(hotcount.CounterOverflowError, match="item 1 would leave"):
        full.cast(1, 9)
    casts = full.cast_many([1, 1, 2], [1, 10, 11], [0, 1, 1], errors="return")
    assert casts.errors == {}
    casts = full.cast_many([1, 1, 2], [12, 13, 12], [1, 1, 1], errors="return")
    assert 1 in casts.errors
    assert 2 not in casts.errors
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as session, pytest.raises(hotcount.CounterOverflowError):
        cast_vote(session, full, 1, 14, 2)
    engine.dispose()
    assert full.get(2, 12) == 1
    assert full.reconcile(dry_run=True) == []


@pytest.mark.parametrize("beside", ["", BESIDE])
def test_a_check_of_the_count_fails_the_statement(path: Path, beside: str) -> None:
    checked = TABLES.replace("DEFAULT 0);", "DEFAULT 0 CHECK (vote_count >= 0));", 1)
    write(path, checked + beside)
    with open_votes(path, "batched") as votes:
        votes.create_tables(outside_writes="count")
        with pytest.raises(sqlite3.IntegrityError):
            write(path, "INSERT OR IGNORE INTO vote (item_id, user_id, val) VALUES (1, 9, -1)")
        with pytest.raises(hotcount.IntegrityError):
            votes.cast(1, 9, -1)
        assert rows(path, "SELECT COUNT(*) FROM vote") == [(0,)]


def test_a_vote_for_an_item_that_is_not_there_is_refused(path: Path) -> None:
    write(path, "CREATE TABLE item (id INTEGER PRIMARY KEY, vote_count INTEGER);")
    write(path, "CREATE TABLE person (id INTEGER PRIMARY KEY);" + BESIDE)
    for strategy, options in STRATEGIES[:4]:
        with open_votes(path, strategy, foreign_key=False, **options) as votes:
            votes.create_tables(outside_writes="count")
            with pytest.raises(hotcount.IntegrityError, match="item 5 does not exist"):
                votes.cast(5, 1)
            with pytest.raises(hotcount.IntegrityError, match="item 5 does not exist"):
                votes.toggle(5, 1)
    assert rows(path, "SELECT COUNT(*) FROM vote") == [(0,)]


# What an application's own triggers write is counted, also inside a vote of ours.
APPLICATION = """
CREATE TABLE log (n INTEGER);
CREATE TRIGGER also_2 AFTER INSERT ON vote WHEN NEW.item_id = 1 AND NEW.user_id < 90 BEGIN
    INSERT INTO log VALUES (1);
    INSERT INTO vote (item_id, user_id, val) VALUES (2, NEW.user_id + 40, 5);
END;
CREATE TRIGGER counted AFTER UPDATE OF vote_count ON item BEGIN
    INSERT INTO log VALUES (NEW.id); END;
"""


@pytest.mark.parametrize("recursive", ["", "PRAGMA recursive_triggers = ON;"])
def test_what_a_trigger_of_the_application_writes_is_counted(
    votes: hotcount.Votes, path: Path, recursive: str
) -> None:
    write(path, APPLICATION)
    votes.cast(1, 21)
    votes.cast_many([1, 1], [22, 23])
    write(path, recursive + "INSERT INTO vote (item_id, user_id, val) VALUES (1, 24, 1)")
    votes.flush()
    expected = votes.count(2, consistency="exact")
    assert (expected.value, votes.count(1, consistency="exact").value) == (2 + 4 * 5, 5 + 4)
    assert drifts(votes) == []


def test_triggers_of_ours_do_not_hide_that_one_of_the_application_counts(path: Path) -> None:
    write(path, TABLES)
    with open_votes(path, "batched") as votes:
        votes.create_tables(outside_writes="count")
        votes.cast(1, 1)
    write(path, APPLICATION)
    with open_votes(path, "slotted") as votes:
        votes.create_tables()  # Its trial casts a vote, which our triggers count as well.
        votes.cast(1, 2)
        assert votes.reconcile(dry_run=True) == []
    write(
        path,
        "CREATE TRIGGER too AFTER INSERT ON vote BEGIN"
        " UPDATE item SET vote_count = vote_count + 1 WHERE id = NEW.item_id; END",
    )
    with (
        open_votes(path, "batched") as votes,
        pytest.raises(hotcount.ConfigError, match="counted twice"),
    ):
        votes.create_tables()


def test_tables_whose_triggers_went_with_a_remade_table_count_and_get_them_back(
    votes: hotcount.Votes, path: Path
) -> None:
    # As migrations of Django and Alembic alter a table.
    table = rows(path, "SELECT sql FROM sqlite_master WHERE name = 'vote'")[0][0]
    write(
        path,
        "PRAGMA legacy_alter_table = ON;"
        + table.replace("TABLE vote", "TABLE made", 1)
        + ";INSERT INTO made SELECT * FROM vote;"
        "DROP TABLE vote; ALTER TABLE made RENAME TO vote",
        keys=False,
    )
    votes.cast(1, 31)
    votes.cast(1, None, op_id="a")
    votes.cast_many([1, 2], [32, 33])
    votes.cast_many([1, 2], None, op_ids=["b", "c"])
    votes.erase_user(32)
    assert drifts(votes) == []
    votes.create_tables()
    write(path, "DELETE FROM vote WHERE user_id IN (1, 31)")
    votes.cast(1, 34)
    assert drifts(votes) == []


def test_a_trigger_that_is_gone_stops_the_votes_that_it_counts(
    votes: hotcount.Votes, path: Path
) -> None:
    write(path, "DROP TRIGGER IF EXISTS beside; DROP TRIGGER vote_hotcount_updated")
    votes.cast(1, 9, 0)
    write(path, BESIDE)
    with pytest.raises(hotcount.ConfigError, match=r"incomplete.*create_tables\(\)"):
        votes.cast(1, 9)
    assert votes.get(1, 9) == 0
    votes.create_tables()
    votes.cast(1, 9)
    write(path, "UPDATE vote SET val = 3")
    assert drifts(votes) == []


def test_a_name_that_is_taken_is_refused(path: Path) -> None:
    write(path, TABLES)
    taken = (
        "CREATE TRIGGER Vote_Hotcount_Inserted AFTER INSERT ON person BEGIN"
        " DELETE FROM person WHERE id = 0; END"
    )
    write(path, taken)
    with open_votes(path, "batched") as votes:
        for call in (votes.create_tables, votes.migration):
            with pytest.raises(
                hotcount.ConfigError, match=r"trigger Vote_Hotcount_Inserted is not"
            ):
                call(outside_writes="count")
        assert rows(path, "SELECT name FROM sqlite_master WHERE name = 'vote_meta'") == []


def test_forms_replace_each_other(path: Path) -> None:
    write(path, TABLES)
    ours = "SELECT COUNT(*) FROM sqlite_master WHERE instr(sql, '/* hotcount: ') > 0"
    with open_votes(path, "batched") as votes:
        forms: list[tuple[Any, int]] = [("deletes", 2), ("count", 9), ("none", 0), ("count", 9)]
        for form, triggers in forms:
            votes.create_tables(outside_writes=form)
            assert votes.migration(outside_writes=form) == ""
            assert rows(path, ours) == [(triggers,)]
            votes.cast(1, 1, 3)
            votes.cast(1, 2)
            votes.erase_user(1)
            votes.remove_item(1)
            assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("beside", ["", BESIDE])
def test_own_votes_of_cached_ask_for_no_recount(path: Path, beside: str) -> None:
    write(path, "CREATE TABLE person (id INTEGER PRIMARY KEY);" + beside)
    with make_votes(path, "cached", outside_writes="count") as votes:
        votes.cast_many([1] * 3 + [2], [1, 2, 3, 1])
        votes.toggle(1, 4)
        votes.cast(1, 1, 0)
        votes.cast(1, None, op_id="a")
        asked = "SELECT item, asked FROM vote_recount"
        assert rows(path, asked) == []
        write(path, "UPDATE vote SET val = 5 WHERE item_id = 2")
        votes.cast(2, 7)
        assert rows(path, asked) == [(2, 1)]
        votes.sync_worker().run_once()
        assert (votes.count(1).value, votes.count(2).value) == (4, 6)


def test_an_item_that_we_delete_takes_the_votes_of_another_table_along(path: Path) -> None:
    write(path, "CREATE TABLE item (id INTEGER PRIMARY KEY, vote_count INTEGER DEFAULT 0)")
    with make_votes(path, "batched", outside_writes="count") as likes:
        likes.cast(1, 1)
    write(
        path,
        TABLES[TABLES.index("CREATE TABLE vote") :].replace("vote (", "stars (", 1).split(";")[0],
    )
    write(path, "CREATE TABLE person (id INTEGER PRIMARY KEY); INSERT INTO person VALUES (1), (2)")
    with (
        open_votes(path, "batched") as likes,
        open_votes(path, "batched", vote_table="stars", item_count=None) as others,
    ):
        others.create_tables(outside_writes="count")
        others.cast(1, 1, 5)
        likes.remove_item(1, delete_row=True)
        likes.add_items([1])
        assert (likes.count(1).value, others.count(1).value) == (0, 0)
        assert likes.reconcile(dry_run=True) == others.reconcile(dry_run=True) == []
