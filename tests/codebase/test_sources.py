"""Every C++ source is named in a CMakeLists.txt; a copy that a script writes is up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "folder", ["cpp", "python", "loadtest", "loadtest/micro", "loadtest/peers/cpp", "tests/cpp"]
)
def test_every_source_is_listed(folder: str) -> None:
    base = ROOT / folder
    names = {
        word.strip("()\"'")
        for line in (base / "CMakeLists.txt").read_text().splitlines()
        for word in line.split("#")[0].split()
    }
    sources = {path.relative_to(base).as_posix() for path in base.rglob("*.cpp")}
    if folder == "loadtest":  # these have lists of their own
        sources = {source for source in sources if not source.startswith(("micro/", "peers/"))}
    assert sources - names == set()


def test_the_calls_of_aio_are_those_that_scripts_aio_writes() -> None:
    command = [sys.executable, str(ROOT / "scripts/aio"), "--check"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""
