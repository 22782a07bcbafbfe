"""tests/codebase/surface lists the public surface; a change that it does not list fails here."""

from __future__ import annotations

from difflib import unified_diff

import pytest

from tests.codebase.surface import FOLDER, PARTS


@pytest.mark.parametrize("name", PARTS)
def test_the_public_surface_is_as_listed(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    differs = unified_diff(written, PARTS[name](), "written down", "now", lineterm="", n=0)
    lines = "\n".join(line for line in differs if not line.startswith("@@"))
    assert not lines, f"if the change is meant: run `make surface` and extend CHANGELOG.md\n{lines}"
