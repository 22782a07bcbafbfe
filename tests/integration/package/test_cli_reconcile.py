"""`hotcount reconcile`: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import hotcount
import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hotcount", "reconcile", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def url(database_path: Path) -> str:
    """Tables in which items 3 and 5 count wrong."""
    with hotcount.Votes(f"sqlite:///{database_path}") as votes:
        votes.create_tables()
        votes.add_items(range(1, 8))
        votes.cast_many([1, 3, 5], [1, 1, 1])
    with closing(sqlite3.connect(database_path)) as other:
        other.execute("UPDATE item SET vote_count = 9 WHERE id IN (3, 5)")
        other.commit()
    return f"sqlite:///{database_path}"


def test_a_dry_run_names_what_is_wrong_and_fails(url: str) -> None:
    for _ in range(2):
        done = run(url, "--dry-run")
        assert done.stdout.splitlines() == [
            "3: counted 9, votes 1",
            "5: counted 9, votes 1",
            "7 items, 2 counts wrong",
        ]
        assert done.returncode == 1


def test_a_run_sets_counts_right_from_where_it_is_told(url: str) -> None:
    done = run(url, "--after", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "dry_run": False,
        "items": 4,
        "wrong": 1,
        "drifts": [{"item": 5, "counted": 9, "actual": 1, "orphan": False}],
    }
    assert run(url).stdout.splitlines()[-1] == "7 items, 1 counts wrong, set right"
    done = run(url, "--dry-run")
    assert (done.returncode, done.stdout) == (0, "7 items, 0 counts wrong\n")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--after", "x"], "--after is not of --item-type int"),
        (["--strategy", "cached"], "--cache"),
        (["--cache", "memory://"], "--cache"),
        (["--item-table", "nothing"], "nothing"),
    ],
)
def test_bad_usage_says_what_is_wrong(url: str, more: list[str], says: str) -> None:
    done = run(url, *more)
    assert done.returncode in (2, 3)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
