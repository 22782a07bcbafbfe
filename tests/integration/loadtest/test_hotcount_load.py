"""hotcount-load as people and programs start it: output, JSON, exit codes, audit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.load_generator import SMALL, program, run


def test_run_prints_the_audit_beside_the_figures() -> None:
    done = run("run", "-s", "batched", "-d", "60s", "--max-ops", "200", *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in (
        *("Votes with batched on SQLite file on ", "journal_mode=wal, synchronous=FULL"),
        *("closed loop, 8 callers", "seed 1", "passed", "--max-ops 200"),
        *("What an acknowledgement means", "may lose: nothing acknowledged"),
    ):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune"], ["'tune'", "run, compare, audit"]),
        (["run", "-s", "quick"], ["'quick'", "naive, slotted, batched"]),
        (["audit", "missing"], ["missing"]),
    ],
)
def test_bad_usage_names_what_is_wrong_and_what_is_right(
    arguments: list[str], words: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [program(), *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
