"""Every C++ source is named in a CMakeLists.txt: what is not named is not tested."""

from __future__ import annotations

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
