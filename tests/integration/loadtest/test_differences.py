"""loadtest/peers/differences.py runs, and counts what was called. How often that is, on a machine
with nothing else to do, is for people to read.
"""

from __future__ import annotations

import re

import pytest

from loadtest.peers import differences


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


@pytest.mark.parametrize("words", [["--rounds", "5"], ["--comparisons", "0"], ["--seconds", "0"]])
def test_bad_usage_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        differences.main(words)
    assert refused.value.code == 2
    assert "--rounds 6 or more" in capsys.readouterr().err
