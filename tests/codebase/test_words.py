"""One word names one thing: names that the code base has given up do not come back.

ARCHITECTURE.md and the headers explain the words that are used instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.codebase.tracked import ROOT, tracked

# No class, function or file may have such a name, as a whole.
NAMES = {
    "Adds": "IncrBatch",
    "Calls": "ScriptBatch",
    "CountKeeper": "CachedCounts",
    "CountMirror": "CountCopies",
    "Departures": "DeferredReleases",
    "Exclusive": "DedicatedConnections",
    "Face": "CallMode",
    "Look": "AdaptiveSpin",
    "LoopSide": "LoopBinding",
    "Patrol": "IncrementalSweep",
    "Pipeline": "Multiplexer",
    "Plan": "Planner in the load generator; a limiter has laws and options",
    "Settler": "Completer",
    "Term": "PeriodWindow",
    "Ticket": "QueuedWrite in SQL, CallState in Python",
    "close_doors": "seal",
    "wait_for_company": "linger",
}
# Nor may any part of a name be such a word: check_votes, not judge_votes.
PARTS = {
    "excused": "withdrawn",
    "housekeeper": "BackgroundThread",
    "judge": "checker",
}
SUFFIXES = {".py", ".pyi", ".cpp", ".hpp"}
DEFINITION = re.compile(
    r"^\s*(?:def|async def)\s+(\w+)"  # Python's functions,
    r"|\b(?:class|struct|union)\s+(\w+)"  # both languages' classes,
    r"|\b(\w+)\s*\("  # and what C++ calls or defines.
)
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def names_in(path: Path) -> Iterator[str]:
    yield path.stem
    for line in path.read_text(encoding="utf-8").splitlines():
        for match in DEFINITION.finditer(line):
            yield next(name for name in match.groups() if name)


def given_up(name: str) -> str | None:
    """The word in the name that was given up."""
    if name in NAMES:
        return name
    return next((part.lower() for part in PART.findall(name) if part.lower() in PARTS), None)


def test_no_class_function_or_file_has_a_name_that_was_given_up() -> None:
    found = []
    for path in tracked():
        if path.suffix not in SUFFIXES or path == Path(__file__).resolve():
            continue
        inside = path.relative_to(ROOT).as_posix()
        for name in sorted(set(names_in(path))):
            word = given_up(name)
            if word is not None:
                found.append(f"{inside}: {name}; say {NAMES.get(word) or PARTS[word]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("class Ticket final {", "Ticket"),
        ("    struct Plan {", "Plan"),
        ("void judge_votes(int item);", "judge_votes"),
        ("    def housekeeper(self) -> int:", "housekeeper"),
    ],
)
def test_a_name_that_was_given_up_is_found(tmp_path: Path, line: str, name: str) -> None:
    path = tmp_path / "a.cpp"
    path.write_text(line + "\n")
    assert [one for one in names_in(path) if given_up(one)] == [name]


def test_a_longer_word_is_not_taken_for_a_given_up_one() -> None:
    assert given_up("Planner") is None
    assert given_up("prejudged") is None
