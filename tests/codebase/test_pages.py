"""Documents stay short, and their pictures are those that scripts/pictures draws."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.codebase.tracked import ROOT, tracked

MOST_WORDS = 1200  # A page.
MOST_LINES = 120  # README.md.
DOCS = ROOT / "docs"
PICTURES = DOCS / "_pictures"


def pages() -> list[Path]:
    found = [path for path in tracked() if path.suffix == ".md" and path.is_relative_to(DOCS)]
    assert len(found) > 30
    return found


def test_no_page_is_longer_than_a_reader_stays() -> None:
    words = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").split())
        for path in pages()
    }
    assert {name: count for name, count in words.items() if count > MOST_WORDS} == {}


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES


def test_every_picture_is_drawn_by_the_script_and_shown_on_a_page(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts/pictures", tmp_path], check=True, timeout=110)
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in PICTURES.glob("*.svg")}
    assert sorted(drawn) == sorted(kept)
    assert [name for name in drawn if drawn[name] != kept[name]] == []
    texts = [path.read_text(encoding="utf-8") for path in (*pages(), ROOT / "README.md")]
    shown = {
        name for text in texts for name in re.findall(r"!\[[^]]+\]\([./\w-]*/([\w-]+\.svg)\)", text)
    }
    assert shown == set(kept)
