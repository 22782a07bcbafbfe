"""A file of more than 500 lines is two files, or it is listed here with a reason."""

from __future__ import annotations

from tests.codebase.tracked import ROOT, tracked

MOST = 500
SUFFIXES = {".py", ".pyi", ".cpp", ".hpp", ".lua", ".go"}

# The reason why these are one file all the same.
LONG = {
    "notebooks/sorted_sets.py": "one text, read from top to bottom",
    "python/src/aio/loop_adapter.cpp": "one object that two threads share under one lock",
    "python/src/native/native_calls.hpp": "templates that instantiate one another",
}


def lines_of_long_files() -> dict[str, int]:
    found = {}
    for path in tracked():
        if path.suffix in SUFFIXES:
            lines = path.read_text(encoding="utf-8").count("\n")
            if lines > MOST:
                found[path.relative_to(ROOT).as_posix()] = lines
    return found


def test_no_new_file_has_more_than_500_lines() -> None:
    new = {name: lines for name, lines in lines_of_long_files().items() if name not in LONG}
    assert not new, f"split these along a seam, or give a reason in LONG: {new}"


def test_every_file_that_is_listed_is_long() -> None:
    assert LONG.keys() <= lines_of_long_files().keys(), "the list has files that are short by now"
