"""Each entry of tests/support/long_tests.py names tests, and CONTRIBUTING.md has each group."""

from __future__ import annotations

import re

from tests.codebase.tracked import ROOT
from tests.support.long_tests import GROUPS


def test_every_entry_names_one_test_or_a_file() -> None:
    wrong = []
    for group in GROUPS:
        for file, tests in group.tests.items():
            names = re.findall(r"def (test_\w+)\(", (ROOT / "tests" / file).read_text())
            for beginning in tests:
                found = [name for name in names if name.startswith(beginning)]
                if not found or (beginning and len(found) > 1):
                    wrong.append(f"{file}::{beginning}: {found}")
    assert not wrong


def test_each_group_is_listed_with_its_minutes() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    missing = [row for g in GROUPS if (row := f"| {g.title} | {g.minutes} |") not in text]
    assert not missing
