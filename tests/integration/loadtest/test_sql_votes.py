"""`make votes`: what it measures is audited, and what it is told is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.peers import native
from loadtest.peers.rounds import HELD_WORST, OURS, P99, RATE, READS_P99, Failed
from loadtest.peers.sql_votes import main
from loadtest.peers.vote_processes import empty_place
from tests.support import mysql_server
from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresServer

VOTES_PROGRAM = native.ROOT / "build/release" / native.VOTES_PROGRAM


@pytest.mark.server
def test_every_contender_on_postgres_runs_and_is_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "votes.json"
    words = ["--only", "postgres", "--cases", "16 callers", "--rounds", "1", "--seconds", "1"]
    assert main([*words, "--json", str(figures)]) == 0
    cases = json.loads(figures.read_text())["cases"]
    assert [case["case"] for case in cases] == ["16 callers"]
    assert set(cases[0]["figures"]) == {OURS, "naive", "slotted"}
    assert "no vote was lost or counted twice" in capsys.readouterr().out


def run_cases(folder: Path, *words: str) -> dict[str, dict[str, Any]]:
    """The figures by case and contender, after one short round."""
    figures = folder / "votes.json"
    short = ["--rounds", "1", "--seconds", "0.3", "--held", "0.5", "--json", str(figures)]
    assert main([*words, *short]) == 0
    return {case["case"]: case["figures"] for case in json.loads(figures.read_text())["cases"]}


@pytest.mark.long
@pytest.mark.server
def test_processes_of_voters_on_postgres_are_measured(tmp_path: Path) -> None:
    words = ["--only", "postgres", "--cases", "C++ 4 x 1 hot,C++ 4 x 16 hot with,of 100"]
    words += ["--contenders", "alone,nothing held"]
    found = run_cases(tmp_path, *words)
    assert set(found["C++ 4 x 1 hot"]) == {OURS, "votes alone"}
    assert found["C++ 4 x 16 hot with 15% reads"][OURS][READS_P99]["median"] > 0
    held = found["C++ 4 x 16 with 1 of 100 items held for 0.5 s"]
    # The last of the held votes did not land before the row was free.
    assert held[OURS][HELD_WORST]["median"] > 250_000
    assert HELD_WORST not in held["nothing held"]


@pytest.mark.long
@pytest.mark.server
def test_web_workers_on_mariadb_are_measured(tmp_path: Path) -> None:
    words = [
        "--only",
        mysql_server.behind_urls.scheme,
        "--cases",
        "C++ 1 x 64,C++ 4 x 16 Zipf with,gunicorn 4",
    ]
    found = run_cases(tmp_path, *words, "--contenders", "alone,Django")
    assert set(found["C++ 1 x 64 Zipf"]) == {OURS, "votes alone"}
    assert found["C++ 4 x 16 Zipf with 15% reads"][OURS][READS_P99]["median"] > 0
    workers = found["gunicorn 4 sync workers hot"]
    assert set(workers) == {OURS, "Django-style"}
    assert workers["Django-style"][RATE]["median"] > 0
    assert workers["Django-style"][P99]["median"] > 0


def test_votes_that_the_voters_know_nothing_of_fail_the_load(
    postgres_server: PostgresServer, mariadb_server: MariaDbServer
) -> None:
    for server in (postgres_server, mariadb_server):
        with empty_place(server) as url:
            command = [str(VOTES_PROGRAM), "--db", url, "--seconds", "0.1", "--warm-up", "0"]
            assert "acknowledged" in native.run(command)
            with pytest.raises(Failed, match="item 1: acknowledged votes found"):
                native.run([*command, "--seed", "2"])


def test_a_run_goes_on_without_a_mysql_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOTCOUNT_MYSQL", str(tmp_path))
    assert main(["--only", "mysql,sqlite", "--list"]) == 0
    listed = capsys.readouterr()
    assert "mysql is left out" in listed.err
    assert "sqlite: 16 callers" in listed.out
    assert main(["--only", "mysql", "--list"]) == 2
    assert "scripts/setup mysql" in capsys.readouterr().err
