"""tests/mutants finds the line of a fault that has moved, and the tests of each room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import run

FAULT = {"path": "a.cpp", "before": '" WHERE a = b FOR UPDATE");', "after": '" WHERE a = b");'}


def test_the_tests_of_each_room_exist() -> None:
    for _, patterns in run.TESTS.values():
        for pattern in patterns:
            assert run.files_of(pattern)


@pytest.mark.parametrize(
    ("files", "faulty"),
    [
        ({"a.cpp": f"  x(\n    {FAULT['before']}\n"}, 'a.cpp:  x(\n    " WHERE a = b");\n'),
        ({"a.cpp": "x\n", "sql/b.sql": "  WHERE a = b FOR UPDATE\n"}, "sql/b.sql:  WHERE a = b\n"),
        ({"b.cpp": f"{FAULT['before']}\n", "c.cpp": f"{FAULT['before']}\n"}, None),
        ({"a.cpp": "x\n"}, None),
    ],
    ids=["at-home", "moved", "at-two-places", "gone"],
)
def test_a_fault_is_put_in_where_its_line_is_and_taken_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], faulty: str | None
) -> None:
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "SOURCES", [tmp_path])
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    place = run.place_of(FAULT)
    assert (place is None) == (faulty is None)
    if place and faulty:
        take_out = run.put_in(*place, FAULT)
        name, text = faulty.split(":", 1)
        assert (tmp_path / name).read_text() == text
        take_out()
        assert (tmp_path / name).read_text() == files[name]


@pytest.mark.parametrize(("dialect", "runs"), [("mysql", 1), ("postgres", 0)])
def test_a_fault_of_the_dialect_of_mysql_is_tested_on_mysql_as_well(
    monkeypatch: pytest.MonkeyPatch, dialect: str, runs: int
) -> None:
    commands: list[list[str]] = []

    def note(command: list[str], _: Path) -> bool:
        commands.append(command)
        return True

    monkeypatch.setattr(run, "passes", note)
    assert run.tests_pass(f"cpp/src/dialects/{dialect}/sql/votes.sql", Path("log"))
    assert sum("--mysql" in command for command in commands) == runs
