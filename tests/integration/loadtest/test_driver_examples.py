"""Programs of loadtest/examples that users start from: Django's ORM, and C++ alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.load_generator import run_json
from tests.support.sqlalchemy_side import BothSides

EXAMPLES = Path(__file__).parents[3] / "loadtest" / "examples"
# All votes for one item; no resends, so that each operation is a vote of its own.
ONE_ITEM = ["--items", "1", "--mix", "vote=1", "--dup", "0", "--max-ops", "40", "-d", "60s"]
QUIET = ["--warmup", "0", "--progress", "none"]

# Two voters at once are made certain: each waits, between its read and its write, for another.
BOTH_HAVE_READ = f"""
import sys, threading
sys.path.insert(0, {str(EXAMPLES)!r})
import django_driver
django_driver.drive("racy", between=threading.Barrier(2).wait)
"""


def votes_by(way: str, folder: Path, url: str) -> tuple[int, dict[str, int], list[str]]:
    """Exit code, audit and reasons."""
    program = f"{EXAMPLES / 'django_driver.py'} {way}"
    callers = "8"
    if way == "racy":
        path = folder / "both_have_read.py"
        path.write_text(BOTH_HAVE_READ)
        program, callers = str(path), "2"
    code, document = run_json(
        *["run", "-s", f"exec:{sys.executable} {program}", "--db", url],
        *[*ONE_ITEM, *QUIET, "-w", callers, "--timeout", "20s"],
    )
    return code, document["audit"], document["reasons"]


@pytest.mark.parametrize(
    "sides",
    [
        "postgresql",
        pytest.param("mariadb", marks=pytest.mark.long),
        pytest.param("sqlite", marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_django_loses_votes_by_read_modify_save_and_none_by_an_f_expression(
    tmp_path: Path, sides: BothSides
) -> None:
    code, audit, reasons = votes_by("racy", tmp_path, sides.url)
    assert code == 1, reasons
    # Of two that read the same count one is missing from it; the votes themselves are all there.
    assert (audit["acknowledged"], audit["lost"], audit["lost_rows"]) == (40, 20, 0)
    code, audit, reasons = votes_by("expression", tmp_path, sides.url)
    assert code == 0, reasons
    assert (audit["acknowledged"], audit["lost"]) == (40, 0)


def test_the_driver_in_cpp_needs_a_compiler_alone_and_passes(tmp_path: Path) -> None:
    program = tmp_path / "memory_driver"
    words = ["c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-o", str(program)]
    subprocess.run([*words, str(EXAMPLES / "memory_driver.cpp")], check=True, timeout=100)
    code, document = run_json(
        *["run", "-s", f"exec:{program}", "--items", "50", "--max-ops", "5000", "-d", "60s"],
        *[*QUIET, "-w", "8", "--timeout", "20s"],
    )
    assert code == 0, document["reasons"]
    assert document["place"] == "a hash map"
    assert document["audit"]["acknowledged"] > 3000
    assert document["audit"]["reads"]["checked"] > 0
