"""loadtest/micro/call_cost.py: what it measures is checked."""

from __future__ import annotations

import json
from pathlib import Path

import hotcount
import pytest

from loadtest.micro import call_cost
from loadtest.micro.call_cost import Case, LostAdds, cases, main, measure


def test_every_case_is_measured_and_its_adds_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calls.json"
    assert main(["--rounds", "2", "--seconds", "0.001", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert [one["case"] for one in found["cases"]] == [case.name for case in cases()]
    assert all(0 < one["ns"]["min"] <= one["ns"]["max"] for one in found["cases"])
    said = capsys.readouterr().out
    assert all(case.name in said for case in cases())
    assert hotcount.__version__ in said


def test_adds_that_are_not_there_fail_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [Case("add(key)", "add(key)", adds=2)]
    with pytest.raises(LostAdds, match=r"add\(key\): \d+ added, \d+ there"):
        measure(wrong, rounds=1, seconds=0.0001)
    monkeypatch.setattr(call_cost, "cases", lambda: wrong)
    assert main(["--rounds", "1", "--seconds", "0.0001"]) == 1
    assert "FAILED" in capsys.readouterr().err
