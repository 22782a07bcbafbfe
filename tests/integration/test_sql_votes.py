"""`make votes`: what it measures is audited, and what it is told is checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.peers.sql_votes import main


@pytest.mark.server
def test_every_contender_on_postgres_runs_and_is_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "votes.json"
    table = tmp_path / "votes.md"
    words = ["--only", "postgres", "--cases", "16 callers,asyncio"]
    words += ["--rounds", "1", "--seconds", "1"]
    assert main([*words, "--json", str(figures), "--markdown", str(table)]) == 0
    cases = json.loads(figures.read_text())["cases"]
    assert [case["case"] for case in cases] == [
        "16 callers",
        "Python, 1,000 asyncio tasks",
    ]
    printed = capsys.readouterr().out
    assert "pgbench -c 1, 16 a batch" in printed
    assert "no vote was lost or counted twice" in printed
    assert "| PostgreSQL, 16 callers | naive |" in table.read_text()


@pytest.mark.parametrize("words", [["--only", "oracle"], ["--rounds", "0"], ["--seconds", "0"]])
def test_bad_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "--only" in capsys.readouterr().err
