"""SQLite files: what cannot be opened, locks of other processes, repairs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.eventually import BUSY
from tests.support.sqlite_files import make_votes, rows, write
from tests.support.together import THREADS, in_child, together


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("", hotcount.ConfigError, "{} is a directory"),
        ("/absent/a.db", hotcount.ConfigError, "absent/a.db"),
        ("/notes.txt", hotcount.DatabaseError, "notes.txt"),
        ("/a.db?mode=rw", hotcount.HotcountError, "a.db"),
    ],
    ids=["directory", "no-folder", "no-database", "mode-rw"],
)
def test_what_is_no_database_is_refused_by_name_and_left_as_it_is(
    tmp_path: Path, name: str, error: type[hotcount.HotcountError], said: str
) -> None:
    text = "these are my notes, and they are longer than a header\n" * 100
    (tmp_path / "notes.txt").write_text(text)
    with pytest.raises(error, match=said.format(tmp_path.name)) as caught:
        hotcount.Database(f"sqlite:///{tmp_path}{name}")
    assert ("notes" in name) == (caught.value.code == "SQLITE_NOTADB")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("notes.txt", text)]


def test_a_read_only_database_counts_and_refuses_votes(file: Path) -> None:
    with make_votes(file) as votes:
        votes.cast(1, 7)
    database = hotcount.Database(f"sqlite:///{file}?mode=ro")
    readers = hotcount.Votes(database)
    assert int(readers.count(1)) == 1
    with pytest.raises(hotcount.PermissionDeniedError, match=r"a.db") as caught:
        readers.cast(1, 8)
    assert isinstance(caught.value, PermissionError)
    assert caught.value.code is not None
    assert caught.value.code.startswith("SQLITE_READONLY")


@contextmanager
def world_readable_folder() -> Iterator[Path]:
    """tmp_path belongs to one user, and root may write anywhere: a stranger needs a way in."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def as_a_stranger() -> None:
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)


@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_file_that_permissions_protect_is_refused_by_name(mode: int) -> None:
    with world_readable_folder() as folder:
        file = folder / "a.db"
        with make_votes(file):
            pass
        file.chmod(mode)
        folder.chmod(0o555)

        def vote() -> str:
            as_a_stranger()
            try:
                hotcount.Votes(f"sqlite:///{file}").cast(1, 7)
            except hotcount.PermissionDeniedError as error:
                return str(error)
            return "it voted"

        try:
            assert "a.db" in in_child(vote)
        finally:
            folder.chmod(0o755)
        assert stat.S_IMODE(file.stat().st_mode) == mode


def test_paths_are_taken_as_in_sqlalchemy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, name in (
        ("sqlite:///relative.db", "relative.db"),
        (f"sqlite:///{tmp_path}/absolute.db", "absolute.db"),
        ("sqlite:///with%20space%3F%23.db", "with space?#.db"),
        ("sqlite:///größe.db", "größe.db"),
        ("sqlite:///file:looks-like-a-uri.db", "file:looks-like-a-uri.db"),
    ):
        with hotcount.SlottedCounter(url) as counter:
            counter.create_table()
            counter.add("k")
        assert rows(tmp_path / name, "SELECT SUM(count) FROM hotcount_slot") == [(1,)]


@pytest.mark.parametrize(
    ("strategy", "broken"),
    [
        ("slotted", "DROP TABLE vote_cell"),
        ("batched", "DROP TABLE vote"),
        ("batched", "ALTER TABLE item RENAME COLUMN vote_count TO likes"),
        ("batched", "ALTER TABLE vote RENAME COLUMN val TO value"),
    ],
)
def test_a_missing_table_or_column_is_a_database_error_that_names_it(
    file: Path, strategy: Any, broken: str
) -> None:
    with make_votes(file, strategy=strategy) as votes:
        votes.cast(1, 7)
    write(file, "DROP VIEW vote_live", "DROP VIEW vote_count", broken)
    votes = hotcount.Votes(f"sqlite:///{file}", strategy=strategy)
    with pytest.raises(hotcount.DatabaseError, match=r"no such (table|column)|has no column"):
        votes.cast(1, 8)


HOLD_THE_LOCK = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute(sys.argv[2])
print("locked", flush=True)
sys.stdin.read()
other.execute("ROLLBACK")
other.close()
print("released", flush=True)
"""


@contextmanager
def lock_held_by_another_process(path: Path, how: str = "BEGIN IMMEDIATE") -> Iterator[Any]:
    """Yields a function that makes the other process let go."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        assert stdout.readline() == "locked\n"

        def release() -> None:
            if not stdin.closed:
                stdin.close()
                assert stdout.readline() == "released\n"

        try:
            yield release
        finally:
            release()


def test_a_lock_of_another_process_is_waited_for_until_the_deadline_and_nothing_is_applied(
    file: Path, strategy: str
) -> None:
    votes = make_votes(file, strategy)
    with lock_held_by_another_process(file) as release:
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError, match=r"a.db") as caught:
            votes.cast(1, 7, timeout=0.2)
        waited = time.monotonic() - started
        assert isinstance(caught.value, TimeoutError)
        # C: back by its deadline + 100 ms; the rest is for two busy cores.
        assert 0.19 <= waited < 0.2 + BUSY
        # A reader waits for no writer.
        assert int(votes.count(1, timeout=0.2)) == 0
        release()
        assert votes.cast(1, 8).changed
    assert rows(file, "SELECT user_id FROM vote") == [(8,)]


def test_the_lock_of_another_process_is_named_with_sqlites_code(file: Path) -> None:
    counter = hotcount.SlottedCounter(f"sqlite:///{file}")
    counter.create_table()
    with lock_held_by_another_process(file):
        with pytest.raises(hotcount.DeadlineError) as caught:
            counter.add("k", timeout=0.05)
        assert caught.value.code == "SQLITE_BUSY"
        result = counter.add_many({"a": 1, "b": 2}, timeout=0.05, errors="return")
        assert [type(error) for error in result.errors.values()] == [hotcount.DeadlineError] * 2
    assert counter.get_many(["k", "a", "b"]) == [0, 0, 0]


def test_callers_that_gave_up_waiting_leave_nothing_behind(file: Path, strategy: str) -> None:
    votes = make_votes(file, strategy)

    def vote(index: int) -> bool:
        # Half are in a hurry, and the lock is held longer than they wait.
        try:
            return votes.cast(1, index, timeout=0.1 if index % 2 else 20).changed
        except hotcount.DeadlineError:
            return False

    with lock_held_by_another_process(file) as release:
        timer = threading.Timer(0.4, release)
        timer.start()
        counted = together(vote)
        timer.join()
    assert counted == [index % 2 == 0 for index in range(THREADS)]
    assert int(votes.count(1)) == THREADS // 2
    assert rows(file, "SELECT COUNT(*) FROM vote") == [(THREADS // 2,)]


def test_reconcile_reports_and_repairs_a_count_that_somebody_broke(
    file: Path, strategy: str
) -> None:
    votes = make_votes(file, strategy)
    votes.cast_many([1, 1, 2], [1, 2, 3], [1, 4, 1])
    votes.flush()
    write(
        file,
        "UPDATE vote_cell SET n = n + 10 WHERE item = 1",
        "UPDATE item SET vote_count = vote_count + 10 WHERE id = 1",
    )
    wrong = int(votes.count(1))
    assert wrong > 5
    drift = hotcount.Drift(item=1, counted=wrong, actual=5)
    assert votes.reconcile(dry_run=True) == [drift]
    assert int(votes.count(1)) == wrong, "a dry run changes nothing"
    assert votes.reconcile([2]) == []
    assert votes.reconcile([1, 2]) == [drift]
    assert [int(count) for count in votes.count_many([1, 2])] == [5, 1]
    votes.flush()
    assert rows(file, "SELECT id, vote_count FROM item") == [(1, 5), (2, 1)]
    assert votes.reconcile() == []


def test_votes_beyond_64_bits_keep_no_other_item_from_being_reconciled(
    file: Path, strategy: str
) -> None:
    """SQLite's SUM fails where those of servers have wider types."""
    votes = make_votes(file, strategy)
    vote = "INSERT INTO vote (item_id, user_id, val, prev) VALUES"
    write(file, f"{vote} (1, 8, 1, 0), (2, 8, {6 * 10**18}, 0), (2, 9, {6 * 10**18}, 0)")
    refused = r"item 2 would leave signed 64 bits; all other items were"
    for items in (None, [1, 2]):
        with pytest.raises(hotcount.CounterOverflowError, match=f"{refused} looked"):
            votes.reconcile(items, dry_run=True)
    with pytest.raises(hotcount.CounterOverflowError, match=f"{refused} reconciled"):
        votes.reconcile()
    assert votes.count(1, consistency="exact") == 1
    write(file, "DELETE FROM vote WHERE item_id = 2")
    assert votes.reconcile() == []


def test_the_counts_in_the_item_table_are_current_for_other_readers(
    file: Path, strategy: str
) -> None:
    votes = make_votes(file, strategy)
    for user in range(3):
        votes.cast(1, user)
        if strategy == "slotted":  # As its contract says.
            assert votes.flush().acked == 1
        assert rows(file, "SELECT vote_count FROM item WHERE id = 1") == [(user + 1,)]


def test_schema_is_what_create_tables_makes(tmp_path: Path, strategy: str) -> None:
    query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
    with make_votes(tmp_path / "made.db", strategy) as votes:
        text = votes.schema()
    write(tmp_path / "printed.db", text, text)
    assert rows(tmp_path / "printed.db", query) == rows(tmp_path / "made.db", query)


def test_ids_stand_in_the_tables_as_other_programs_expect_them(file: Path) -> None:
    item = uuid.UUID("C56A4180-65AA-42EC-A945-5FD21DEC0538")
    votes = hotcount.Votes(f"sqlite:///{file}", item_type=uuid.UUID, user_type=str)
    votes.create_tables()
    votes.add_items([item])
    votes.cast(item, "ann")
    assert rows(file, "SELECT item_id, user_id, val FROM vote_live") == [(str(item), "ann", 1)]
    write(file, "UPDATE item SET vote_count = 5")
    assert votes.reconcile() == [hotcount.Drift(item=item, counted=5, actual=1)]


def test_sticky_slots_stay_within_the_number_of_slots(file: Path) -> None:
    counter = hotcount.SlottedCounter(f"sqlite:///{file}", slots=4)
    counter.create_table()
    together(lambda _: counter.add("k"))
    slots = {slot for (slot,) in rows(file, "SELECT slot FROM hotcount_slot")}
    assert slots <= {0, 1, 2, 3}
    assert counter.compact("k") == THREADS
    assert rows(file, "SELECT slot, count FROM hotcount_slot") == [(0, THREADS)]


def test_concurrent_votes_share_transactions_when_batched(file: Path) -> None:
    database = hotcount.Database(f"sqlite:///{file}", timeout=20)
    votes = hotcount.Votes(database)
    votes.create_tables()
    votes.add_items([1])
    before = database.stats()["transactions"]
    votes.cast_many([1] * 500, range(500))
    assert database.stats()["transactions"] == before + 1
    with lock_held_by_another_process(file) as release:
        timer = threading.Timer(0.2, release)
        timer.start()
        together(lambda index: votes.cast(1, 1000 + index))
        timer.join()
    # Those that waited for the lock were written together.
    assert database.stats()["transactions"] <= before + 1 + THREADS // 2
    assert int(votes.count(1)) == 500 + THREADS
