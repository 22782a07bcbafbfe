"""loadtest/peers: builds.py runs each load with both builds; differences.py counts its calls."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from loadtest.peers import builds, differences, native
from loadtest.peers.builds import BEFORE
from loadtest.peers.rounds import OURS, RATE

# The tree under test beside itself: only that it runs matters here, not what it measures.
SELF = str(native.ROOT)


@pytest.mark.server
def test_calls_and_loads_on_redis_run_with_both_builds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "builds.json"
    short = ["--rounds", "1", "--seconds", "0.05", "--json", str(file)]
    assert builds.main([SELF, "--only", "calls,batch,scripts,cpp", *short]) == 0
    assert "Slower by more than 5 %: " in capsys.readouterr().out
    cases = json.loads(file.read_text())
    assert {case["group"] for case in cases} == {"calls", "batch", "scripts", "cpp"}
    for case in cases:
        assert case["figures"][OURS][RATE]["median"] > 0
        assert case["figures"][BEFORE][RATE]["median"] > 0


@pytest.mark.long
@pytest.mark.server
def test_votes_run_with_both_builds(capsys: pytest.CaptureFixture[str]) -> None:
    # Long enough for a commit on a busy disk: a load that acknowledged nothing is no measurement.
    assert builds.main([SELF, "--only", "sqlite", "--rounds", "1", "--seconds", "0.4"]) == 0
    assert "batched, 1,000 in flight" in capsys.readouterr().out


@pytest.mark.server
def test_a_build_that_loses_adds_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    losing = programs / "python"
    losing.write_text('#!/bin/sh\necho \'{"added": 3, "rate": 1}\'\n')
    losing.chmod(0o755)
    shutil.copy(losing, programs / "hotcount-load")
    assert builds.main([str(tmp_path), "--only", "sync", "--rounds", "1"]) == 1
    assert "3 added, 0 there" in capsys.readouterr().err


@pytest.mark.long
def test_it_counts_the_comparisons_that_called_a_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = ["--comparisons", "3", "--rounds", "6", "--seconds", "0.02", "--slower", "0.9"]
    assert differences.main(short) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    for first, slower in ((0, "0"), (4, "90")):
        called = sum(line.endswith(", called") for line in lines[first : first + 3])
        assert lines[first + 3] == f"{slower} % slower: called in {called} of 3"
        assert re.match(
            rf"{slower} % slower, seed 1: [0-9.]+ \([0-9.]+ to [0-9.]+\), p", lines[first]
        )
