"""`hotcount reconcile`: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import hotcount
import pytest

from tests.support.commands import run
from tests.support.sqlite_files import write


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
