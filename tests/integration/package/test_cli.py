"""The hotcount command, its demo, schema and reconcile: output, streams and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.commands import run
from tests.support.journal_side import JournalSide
from tests.support.programs import run_python
from tests.support.sql_votes import open_votes
from tests.support.sqlite_files import write


def test_demo_counts_exactly_and_keeps_progress_off_stdout() -> None:
    done = run("demo", "--seconds", "0.2", "--threads", "4")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["what", "acknowledged", "counted", "per", "second", "check"]
    assert len(lines) == 6
    assert all(line.endswith("exact") for line in lines[1:])
    assert "5/5" in done.stderr


def test_demo_as_json_says_what_was_counted() -> None:
    done = run("demo", "--seconds", "0.1", "--threads", "2", "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["ok"], result["version"]) == (0, True, hotcount.__version__)
    for outcome in result["outcomes"]:
        assert outcome["counted"] == outcome["acknowledged"] > 0
        assert outcome["check"] == "exact"


def test_the_module_of_the_command_runs_it_too() -> None:
    assert "reconcile" in run_python("-m", "hotcount.cli", "--help").stdout


def test_a_wrong_count_is_reported_and_fails() -> None:
    from hotcount import _demo

    wrong = _demo.outcome("what", 5, 1.0, count=5, rows=4)
    assert (wrong.ok, wrong.check) == (False, "rows says 4")
    assert _demo.outcome("what", 5, 1.0, count=5, rows=5).ok


@pytest.mark.parametrize("strategy", ["naive", "slotted", "batched"])
def test_the_printed_schema_makes_tables_that_votes_and_counters_use(
    tmp_path: Path, strategy: str
) -> None:
    done = run("schema", "--dialect", "sqlite", "--strategy", strategy)
    assert (done.returncode, done.stderr) == (0, "")
    file = tmp_path / "a.db"
    write(file, done.stdout)
    with hotcount.SlottedCounter(f"sqlite:///{file}") as counter:
        counter.add("k", op_id="x")
        assert counter.get("k") == 1
    with hotcount.Votes(f"sqlite:///{file}", strategy=strategy) as votes:  # type: ignore[arg-type]
        votes.create_tables()
        votes.add_items([1])
        votes.cast(1, 7)
        assert int(votes.count(1)) == 1


@pytest.mark.server
@pytest.mark.parametrize("strategy", ["batched", "cached"])
@pytest.mark.parametrize("kind", ["int", "str", "uuid"])
def test_the_printed_schema_makes_tables_on_servers(
    side: JournalSide, strategy: Any, kind: str
) -> None:
    words = ["--strategy", strategy, "--item-type", kind, "--user-type", kind]
    done = run("schema", "--dialect", side.dialect, *words)
    assert (done.returncode, done.stderr) == (0, "")
    side.run(*filter(str.strip, done.stdout.split(";\n")))
    url = side.url
    id = uuid.UUID(int=7)
    ids: dict[str, Any] = {"int": (int, 7), "str": (str, "seven"), "uuid": (uuid.UUID, id)}
    of, each = ids[kind]
    with hotcount.SlottedCounter(url) as counter:
        counter.add("k", op_id="x")
        assert counter.get("k") == 1
    with open_votes(url, strategy, item_type=of, user_type=of) as votes:
        votes.create_tables()
        votes.add_items([each])
        assert votes.cast(each, each).counted
        assert int(votes.count(each, consistency="exact")) == 1


def test_the_schema_as_json_is_the_same_sql() -> None:
    printed = run("schema", "--dialect", "sqlite").stdout
    parts = json.loads(run("schema", "--dialect", "sqlite", "--json").stdout)
    assert parts.pop("dialect") == "sqlite"
    assert sorted(parts) == ["limiter", "slotted_counter", "votes", "write_behind_counter"]
    assert all(sql in printed for sql in parts.values())


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["schema"],
        ["schema", "--dialect", "oracle"],
        ["demo", "--seconds", "0"],
        ["demo", "--seconds", "nan"],
        ["demo", "--threads", "0"],
        ["demo", "extra"],
    ],
)
def test_bad_usage_is_exit_code_2_with_a_word_on_stderr(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: hotcount" in done.stderr


@pytest.mark.parametrize("command", ["reconcile", "schema", "sync --once --db"])
def test_a_file_that_is_not_there_is_not_made(command: str, tmp_path: Path) -> None:
    done = run(*command.split(), f"sqlite:///{tmp_path}/a%20typo.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no such file" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_version_and_help_say_what_there_is() -> None:
    assert run("--version").stdout == f"hotcount {hotcount.__version__}\n"
    for word in ("demo", "schema", "load", "Exit codes"):
        assert word in run("--help").stdout


def test_load_hands_its_arguments_to_hotcount_load(tmp_path: Path) -> None:
    # Beside the command is where `make build` puts it; any program will do to see what arrives.
    program = tmp_path / "hotcount-load"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    program.chmod(0o755)
    command = tmp_path / "hotcount"
    command.write_text("from hotcount.cli import main\nraise SystemExit(main())\n")
    done = run_python(command, "load", "run", "-r", "5000", "--help")
    assert done.returncode == 7
    assert done.stdout.splitlines() == ["run", "-r", "5000", "--help"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_no_failure(unbuffered: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "hotcount", "schema", "--dialect", "sqlite"],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.parametrize("command", ["schema", "doctor", "reconcile", "sync", "get", "ready"])
def test_commands_about_votes_take_the_same_names(command: str) -> None:
    told = run(command, "--help").stdout
    columns = ("item-id", "item-count", "vote-item", "vote-user", "vote-value", "vote-previous")
    for name in (*columns, "vote-version", "item-table", "vote-table"):
        assert f"--{name} NAME" in told
    for name in ("--item-type {int,str,uuid}", "--user-type {int,str,uuid}", "--no-item-count"):
        assert name in told


def reconcile(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("reconcile", *arguments)


@pytest.fixture
def url(database_path: Path) -> str:
    """Tables in which items 3 and 5 count wrong."""
    with hotcount.Votes(f"sqlite:///{database_path}") as votes:
        votes.create_tables()
        votes.add_items(range(1, 8))
        votes.cast_many([1, 3, 5], [1, 1, 1])
    write(database_path, "UPDATE item SET vote_count = 9 WHERE id IN (3, 5)")
    return f"sqlite:///{database_path}"


def test_a_dry_run_names_what_is_wrong_and_fails(url: str) -> None:
    for _ in range(2):
        done = reconcile(url, "--dry-run")
        assert done.stdout.splitlines() == [
            "3: counted 9, votes 1",
            "5: counted 9, votes 1",
            "7 items, 2 counts wrong",
        ]
        assert done.returncode == 1


def test_a_run_sets_counts_right_from_where_it_is_told(url: str) -> None:
    done = reconcile(url, "--after", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "dry_run": False,
        "items": 4,
        "wrong": 1,
        "drifts": [{"item": 5, "counted": 9, "actual": 1, "orphan": False}],
    }
    assert reconcile(url).stdout.splitlines()[-1] == "7 items, 1 counts wrong, set right"
    done = reconcile(url, "--dry-run")
    assert (done.returncode, done.stdout) == (0, "7 items, 0 counts wrong\n")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--after", "x"], "--after is not of --item-type int"),
        (["--strategy", "cached"], "--cache"),
        (["--cache", "memory://"], "--cache"),
        (["--item-table", "nothing"], "nothing"),
        (["--vote-table", "nothing"], "--vote-table"),
    ],
)
def test_bad_usage_says_what_is_wrong(url: str, more: list[str], says: str) -> None:
    done = reconcile(url, *more)
    assert done.returncode in (2, 3)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
