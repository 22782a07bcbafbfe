"""One version, wherever it is written."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def written(path: str, pattern: str) -> str:
    match = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None, f"{path} names no version"
    return match[1]


def test_versions_agree() -> None:
    expected = written("pyproject.toml", r'^version = "([^"]+)"')
    assert written("CMakeLists.txt", r"^  VERSION (\S+)") == expected
    assert written("cpp/include/hotcount/build_info.hpp", r'kVersion = "([^"]+)"') == expected
    # The newest entry: work that is not released yet stands under the next version.
    assert written("CHANGELOG.md", r"^## \[?v?(\d+\.\d+\.\d+)") == expected
    assert version("hotcount") == expected
