"""Functions whose answer is not the same everywhere, or the same where it must not be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("cpp", "python/src", "loadtest/src")

# They write and read numbers as the process's locale does: "1,5" under a German one.
BY_LOCALE = re.compile(
    r"\b(v?s?n?f?printf|v?f?s?scanf|strto(d|f|ld)|atof|sto(d|f|ld)|[io]?stringstream|[io]stream)\b"
)
# The standard hash of text is the same in every process: who chooses keys can choose collisions.
UNSEEDED = re.compile(r"std::hash<std::string")


def lines() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]pp")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                code = line.split("//")[0]
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}", code


@pytest.mark.parametrize("forbidden", [BY_LOCALE, UNSEEDED])
def test_no_source_asks_the_locale_or_hashes_without_a_key(forbidden: re.Pattern[str]) -> None:
    assert [where for where, code in lines() if forbidden.search(code)] == []


def test_every_hash_table_of_text_has_a_keyed_hash() -> None:
    table = re.compile(r"unordered_(map|set)<\s*std::string(_view)?\b([^;]*)")
    found = [
        where
        for where, code in lines()
        if (match := table.search(code)) and "Hash" not in match.group(3)
    ]
    assert found == []
