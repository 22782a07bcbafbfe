"""The site is built without a warning, and its reference leaves no public name out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import hotcount
import hotcount.aio
import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def documented() -> set[str]:
    """Names as the pages give them, in full."""
    names = set()
    for page in REFERENCE.glob("*.rst"):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"\.\. (currentmodule|auto\w+):: (\S+)", line):
                if match[1] == "currentmodule":
                    module = match[2]
                else:
                    names.add(f"{module}.{match[2]}" if module else match[2])
    return names


def test_every_public_name_has_its_place_in_the_reference() -> None:
    known = documented()
    public = {f"hotcount.{name}" for name in hotcount.__all__ if not name.startswith("__")}
    # errors.rst takes them as a module.
    public -= {f"hotcount.{name}" for name in hotcount.errors.__all__}
    public |= {f"hotcount.aio.{name}" for name in hotcount.aio.__all__}
    assert sorted(public - known) == []
    assert "hotcount.errors" in known


@pytest.mark.long  # `make lint` builds it too, without these looks at the pages.
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [ROOT / "scripts" / "docs", tmp_path],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    concepts = (tmp_path / "html" / "reference" / "concepts.html").read_text(encoding="utf-8")
    # As a method with its parameters: Sphinx takes what it does not know for an attribute.
    assert re.search(r'class="py method">\s*<dt [^>]*id="hotcount.Counter.add"', concepts)
    assert "op_id" in concepts
    cpp = (tmp_path / "html" / "reference" / "cpp" / "concepts.html").read_text(encoding="utf-8")
    assert "Exact and linearizable over every store" in cpp  # counter.hpp's opening comment.
    assert "CounterOptions" in cpp
