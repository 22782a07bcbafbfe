"""A change of the public surface shows in tests/codebase/surface, or it fails here."""

from __future__ import annotations

from difflib import unified_diff

import pytest

from tests.codebase.surface import FOLDER, PARTS


@pytest.mark.parametrize("name", PARTS)
def test_the_public_surface_is_as_it_is_written_down(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    differs = unified_diff(written, PARTS[name](), "written down", "now", lineterm="", n=0)
    lines = "\n".join(line for line in differs if not line.startswith("@@"))
    assert not lines, f"if it should: `make surface`, and CHANGELOG.md says so\n{lines}"
