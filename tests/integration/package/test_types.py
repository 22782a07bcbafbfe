"""A user's program, as type checkers read it and as it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import run_python

PROGRAM = Path(__file__).parents[2] / "support/user_program.py"

# Each line is an error, and both checkers say so.
MISTAKES = """\
import hotcount
from hotcount import aio

votes = hotcount.Votes("sqlite:///:memory:")
votes.cast(1, 2, value="three")
votes.cast(1, 2, 3, 4)
votes.count(1).valeu
hotcount.Votes("sqlite:///:memory:", strategy="quick")
hotcount.Cast(counted=True)
aio.Votes("sqlite:///:memory:").cast(1, 2).value
hotcount.Limiter("memory://", "5/s").hit(7)
hotcount.connect_store("memory://").max_kyes
hotcount.Limiter("memory://", "5/s").rate = hotcount.Rate(1, 1.0, 1)
hotcount.Limiter("memory://", "5/s").hit_many(["a"]).allowed = []
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Away from the repository, so that what is installed is read."""
    copied = tmp_path / "program.py"
    copied.write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    return copied


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # Asks no registry.
    return run_python("-m", *command, cwd=folder, timeout=110, env=environment)


# In the folder above the tests' own, so that what both import is read once.
CHECKERS = [
    pytest.param(["mypy", "--strict", "--cache-dir", "../mypy_cache"], id="mypy"),
    pytest.param(["pyright", "--pythonpath", sys.executable], id="pyright"),
]


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_program_has_no_type_errors(checker: list[str], program: Path) -> None:
    if checker[0] == "pyright":
        program.write_text("# pyright: strict\n" + program.read_text(encoding="utf-8"))
    checked = run(program.parent, *checker, program.name)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_of_a_users_program_are_type_errors(checker: list[str], tmp_path: Path) -> None:
    (tmp_path / "mistakes.py").write_text(MISTAKES, encoding="utf-8")
    checked = run(tmp_path, *checker, "mistakes.py")
    found = {
        int(line.split(":")[1])
        for line in checked.stdout.splitlines()
        if "error" in line and "mistakes.py:" in line
    }
    lines = MISTAKES.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if number > lines.index("") + 2}
    assert found == wrong, checked.stdout


def test_a_users_program_runs(program: Path) -> None:
    url = f"sqlite:///{program.parent}/a.db"
    code = f"import program; program.main({url!r})"
    ran = run_python("-W", "error", "-c", code, cwd=program.parent, timeout=110)
    assert (ran.stdout, ran.stderr) == ("done\n", "")
