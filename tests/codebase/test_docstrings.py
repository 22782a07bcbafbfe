"""Docstrings have the sections that editors and Sphinx render: Google style."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.codebase.tracked import ROOT, tracked

# One of more lines has a section: a summary, and then Args, Returns, Raises, Example.
MOST_LINES = 8
SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Note):$|^Example::?$", re.MULTILINE)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the docstring of each module, class and function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def without_sections(path: Path) -> list[int]:
    """The lines at which long docstrings without a section begin."""
    return [
        line
        for line, text in docstrings(path)
        if len(text.splitlines()) > MOST_LINES and not SECTION.search(text)
    ]


def test_every_long_docstring_has_sections() -> None:
    package = ROOT / "python" / "hotcount"
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in tracked()
        if path.suffix == ".py" and path.is_relative_to(package)
        for line in without_sections(path)
    ]
    assert not found, f"more than {MOST_LINES} lines without Args, Returns, Raises or Example"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Says it.\n" + "\nmore" * MOST_LINES, [2]),
        ("Says it.\n" + "\nmore" * MOST_LINES + "\n\nRaises:\n    X: y.", []),
        ("Says it.\n\n>>> 1 + 1\n2", []),
    ],
)
def test_a_long_docstring_without_a_section_is_found(
    text: str, lines: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "module.py"
    path.write_text(f'def f():\n    """{text}"""\n', encoding="utf-8")
    assert without_sections(path) == lines
