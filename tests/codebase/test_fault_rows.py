"""The table of tests/faults/rows.py: every row has tests that are there, and names its proof."""

from __future__ import annotations

import re

import pytest

from tests.codebase.tracked import ROOT
from tests.faults.rows import ROWS, Row, backend_of, rows_of
from tests.faults.run import numbers_in, score, scorecard
from tests.support.fired import ON_MYSQL

# All of the table of faults that the project is held to.
NUMBERS = range(1, 43)


def test_every_row_is_there_once() -> None:
    assert [row.number for row in ROWS] == list(NUMBERS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_a_row_names_its_proof_and_tests_that_exist(row: Row) -> None:
    assert row.proofs
    assert row.backends.split()
    assert len(row.what) <= 58
    for backend, names in row.tests.items():
        assert backend in ("each", *row.backends.split())
        for name in names.split():
            file, _, beginning = name.partition("::")
            text = (ROOT / "tests" / file).read_text()
            found = re.findall(rf"def ({re.escape(beginning.partition('[')[0])}\w*)\(", text)
            assert [each for each in found if each.startswith("test_")], name


def result(test: str, outcome: str) -> dict[str, object]:
    said = "" if outcome == "passed" else "here:\nE   why not\n\nfile.py:7: Error"
    return {"test": test, "outcome": outcome, "seconds": 1.0, "said": said}


@pytest.mark.parametrize(
    ("outcomes", "passed"),
    [
        (("passed", "passed"), True),
        (("passed", "failed"), False),
        (("passed", "void"), False),
        (("passed",), False),
    ],
)
def test_a_row_passes_if_each_backend_has_tests_and_all_of_them_passed(
    outcomes: tuple[str, ...], passed: bool
) -> None:
    row = ROWS[30]
    test = "tests/integration/sql/test_journal_batches.py::test_a_held_item_keeps"
    names = (f"{test}[postgresql]", f"{test}[mariadb]")
    assert all(row in rows_of(name) for name in names)
    assert [backend_of(name, row) for name in names] == row.backends.split()
    results = [result(name, outcome) for name, outcome in zip(names, outcomes, strict=False)]
    scored = score(row, results)
    assert scored["passed"] is passed
    card = scorecard([scored])
    assert all(len(line) <= 100 for line in card.splitlines()[:2])
    assert card.count("why not") == sum(outcome != "passed" for outcome in outcomes)


def test_what_ran_on_mysql_is_counted_apart() -> None:
    test = "tests/integration/sql/test_journal_batches.py::test_a_held_item_keeps"
    row = ROWS[30]
    names = (f"{test}[postgresql]", f"{test}[mariadb]", f"{test}[mariadb]{ON_MYSQL}")
    scored = score(row, [result(name, "passed") for name in names])
    assert scored["backends"] == {"postgresql": [1, 1], "mariadb": [1, 1], "mysql": [1, 1]}
    assert scored["passed"]


def test_rows_are_chosen_by_numbers_and_ranges() -> None:
    assert numbers_in("") == set()
    assert numbers_in("6,11-14") == {6, 11, 12, 13, 14}
