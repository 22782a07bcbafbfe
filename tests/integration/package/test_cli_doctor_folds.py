"""hotcount doctor on the tables of Votes: folds that fail, and journals that nobody folds."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import hotcount
import pytest
from hotcount import _doctor_votes
from hotcount.cli import main

from tests.support.broken_folds import BROKEN, MANY, Broken
from tests.support.journal_side import TABLES, JournalSide
from tests.support.together import beside

pytestmark = pytest.mark.server

LONG_AGO = "UPDATE vote_meta SET value = '1' WHERE name = 'folded_at'"
SECONDS_AGO = "UPDATE vote_meta SET value = '{}' WHERE name = 'folded_at'"

# The exit code and what is found of folds.
Doctor = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = main(["doctor", "--json", *arguments])
        (target,) = json.loads(capsys.readouterr().out)["targets"]
        return code, [each for each in target["findings"] if each["check"] == "folds"]

    return run


@pytest.mark.parametrize(
    ("broken", "rows"),
    [
        pytest.param(broken, rows, id=f"{broken.name}-{rows}")
        for broken in BROKEN
        for rows in (0, 2)
        if rows or not broken.by_counts
    ],
)
def test_a_fold_that_fails_is_unsafe_until_it_works(
    side: JournalSide, doctor: Doctor, broken: Broken, rows: int
) -> None:
    """Also before the first vote."""
    side.made()
    for item in range(1, rows + 1):
        side.vote(item, 1, val=MANY)
    url, voter = side.voter()
    broken.begin(side, voter)
    code, (finding,) = doctor(url)
    assert (code, finding["state"]) == (1, "unsafe")
    assert finding["unsafe_for"] == ["votes", "write_behind"]
    assert broken.says in finding["found"].lower()
    waits = f"{rows} journal rows" if rows else "nothing waits"
    assert waits in finding["found"]
    assert "count() is exact" in finding["advice"]
    broken.end(side, voter)
    code, (finding,) = doctor(url)
    assert (code, finding["state"]) == (0, "ok")
    assert waits in finding["found"]
    # What was tried was rolled back.
    assert (side.pending(), side.shown(1)) == (rows, 0)


def test_a_journal_that_nobody_folds_is_named_with_its_rows_and_age(
    side: JournalSide, doctor: Doctor
) -> None:
    side.made()
    side.vote(1, 1, 2)
    side.vote(2, 1)
    assert doctor(side.url)[1][0]["state"] == "ok"
    side.run(SECONDS_AGO.format(int((time.time() - 31) * 1_000_000)))
    code, (finding,) = doctor(side.url)
    assert (code, finding["state"]) == (0, "warning")
    assert finding["found"].startswith("nobody folds: 2 journal rows of 2 items wait")
    assert "hotcount sync" in finding["advice"]
    assert side.pending() == 2
    assert main(["sync", "--db", side.url, "--once"]) == 0
    code, (finding,) = doctor(side.url)
    assert (code, finding["found"]) == (0, "a trial fold works; nothing waits")


@pytest.mark.parametrize("pause", [0.0, 0.5])
def test_a_journal_that_somebody_folds_is_fine(
    side: JournalSide, doctor: Doctor, pause: float
) -> None:
    """Also where the first vote after a long silence has come just now."""
    votes = side.made(fold_interval=0.05)
    side.vote(1, 1)
    side.run(LONG_AGO)

    def vote(ended: threading.Event) -> None:
        time.sleep(pause)
        for user in range(10, 1_000_000):
            votes.cast(1 + user % 3, user)
            if ended.is_set():
                return

    with beside(vote):
        code, (finding,) = doctor(side.url)
    assert (code, finding["state"]) == (0, "ok")
    assert votes.flush(20).pending == 0
    assert votes.stats()["failed_folds"] == 0
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize(
    ("rights", "tables", "lacks", "knows"),
    [
        ("SELECT", ("item",), "vote_meta", "cannot be read"),
        ("SELECT", TABLES, "vote_journal", "1 journal rows"),
    ],
)
def test_a_login_that_may_not_vote_is_told_which_right_it_lacks(
    side: JournalSide, doctor: Doctor, rights: str, tables: tuple[str, ...], lacks: str, knows: str
) -> None:
    side.made()
    side.vote(1, 1)
    url, _ = side.login(rights, *tables)
    code, (finding,) = doctor(url)
    assert (code, finding["state"]) == (3, "unknown")
    assert lacks in finding["found"]
    assert knows in finding["found"]
    assert "SELECT, INSERT, UPDATE and DELETE" in finding["advice"]
    # Whoever may read sees that nobody folds.
    side.run(LONG_AGO)
    code, (finding,) = doctor(url)
    late = (0, "warning") if "1 journal" in knows else (3, "unknown")
    assert (code, finding["state"]) == late
    assert lacks in finding["found"]


def test_a_lock_that_somebody_keeps_is_named(
    side: JournalSide, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_doctor_votes, "TIMEOUT", 0.5)
    side.made()
    with side.session() as other:
        other.execute(
            "SELECT value FROM vote_meta WHERE name IN ('counted_in', 'folded_at') FOR UPDATE"
        )
        code, (finding,) = doctor(side.url)
    assert (code, finding["state"]) == (0, "warning")
    assert "another session, has the lock of folds" in finding["found"]


def test_where_there_is_no_journal_nothing_is_said_of_folds(
    side: JournalSide, doctor: Doctor
) -> None:
    assert doctor(side.url) == (0, [])
    side.made("naive")
    assert doctor(side.url) == (0, [])
    code, (finding,) = doctor(side.url, "--vote-table", "nosuch")
    assert (code, finding["state"]) == (0, "ok")
    assert "nothing to fold: there is no table nosuch" in finding["found"]


def test_a_journal_table_that_is_gone_is_named(side: JournalSide, doctor: Doctor) -> None:
    side.made().cast(1, 1)
    side.run("ALTER TABLE vote_journal RENAME TO moved")
    code, (finding,) = doctor(side.url)
    assert (code, finding["state"]) == (3, "unknown")
    assert "vote_journal" in finding["found"]


def test_tables_with_names_of_their_own_are_looked_at_by_these(
    side: JournalSide, doctor: Doctor
) -> None:
    side.made(item_table="post", item_count="likes", vote_table="likes")
    assert doctor(side.url) == (0, [])
    names = ["--vote-table", "likes", "--item-table", "post", "--item-count", "likes"]
    code, (finding,) = doctor(side.url, *names)
    assert (code, finding["state"]) == (0, "ok")
    for wrong in (["--vote-table", "likes"], names[:4]):
        code, (finding,) = doctor(side.url, *wrong)
        assert (code, finding["state"]) == (3, "unknown")
        assert "--item-table" in finding["advice"]
    with hotcount.Votes(side.url, item_table="post", item_count=None, vote_table="others") as bare:
        bare.create_tables()
    code, (finding,) = doctor(
        side.url, "--vote-table", "others", "--item-table", "post", "--no-item-count"
    )
    assert (code, finding["state"]) == (0, "ok")
