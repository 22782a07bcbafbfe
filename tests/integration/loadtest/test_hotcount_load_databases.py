"""One comparison over several databases: what each paid, the page, and faults of a database."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from hotcount.cli import main
from hotcount.report import read

from tests.support import mysql_server
from tests.support.browser import chromium
from tests.support.load_generator import SMALL, run, run_json, study_json

pytestmark = pytest.mark.server

# Passed; or this machine was too busy, and what is there was measured all the same.
MEASURED = (0, 3)
BOTH = ("--managed", "postgres,mariadb")


@pytest.fixture(scope="module")
def compared() -> Iterator[Path]:
    # PostgreSQL's own user must get in.
    with tempfile.TemporaryDirectory(prefix="hotcount-load-") as name:
        folder = Path(name) / "compared"
        options = ("--rounds", "2", "-d", "200ms", "--no-best", "--wide", "--out", str(folder))
        done = run("compare", "-s", "naive,batched", *BOTH, *SMALL, *options, timeout=110)
        assert done.returncode in MEASURED, done.stderr
        assert "Fastest on postgres: " in done.stdout
        assert "Fastest on mariadb: " in done.stdout
        assert "the item's vote_count is brought up to date" in done.stdout
        assert "hotcount_load_" not in done.stdout, "the names of the run's tables say nothing"
        yield folder


def document_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "compare.json").read_text())
    return document


def test_each_database_has_a_part_with_its_own_baseline_and_control(compared: Path) -> None:
    parts = document_of(compared)["parts"]
    assert [(part["name"], part["database"]) for part in parts] == [
        ("postgres-closed", "postgres"),
        ("mariadb-closed", "mariadb"),
    ]
    for part, place in zip(parts, ("PostgreSQL", "MariaDB"), strict=True):
        assert [each["strategy"] for each in part["strategies"]] == ["naive", "batched"]
        assert [each["strategy"] for each in part["references"]] == ["naive/again"]
        for each in part["strategies"]:
            assert place in each["place"]
            assert each["audit"]["passed"], each
            assert each["ratio_to_baseline"]["median"] > 0
    assert main(["report", str(compared), "-o", str(compared / "page.html")]) == 0
    _, found = study_json("diff", str(compared), str(compared))
    assert [row["part"] for row in found["rows"]] == 3 * [parts[0]["name"]] + 3 * [parts[1]["name"]]


def test_what_each_database_paid_is_measured(compared: Path) -> None:
    for part in read(compared).parts:
        naive, batched, _ = part.rows
        for row in (naive, batched):
            assert row.not_known == ()
            assert row.promise == "exact"
            # A row and its place in two indexes; pages are written in full after a checkpoint.
            assert 100 < (row.log_bytes or 0) < 1e5
            assert 0 < (row.server_ms or 0) < 1e3
        # The warm-up and the audit have none of their own; a vote in vain writes nothing.
        assert 0.8 < (naive.commits or 0) < 1.5
        assert 0 < (batched.commits or 0) < (naive.commits or 0)


@pytest.mark.mysql_only
def test_a_private_mysql_is_driven_and_asked_what_it_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTCOUNT_MYSQL", str(mysql_server.mysql_folder()))
    code, document = run_json("run", "-s", "batched", "--managed", "mysql", "-d", "300ms", *SMALL)
    assert code in MEASURED, document
    assert document["place"].startswith("MySQL ")
    assert document["audit"]["passed"], document["audit"]
    assert document["audit"]["acknowledged"] > 0
    paid = document["result"]["server"]
    assert "unknown" not in paid
    assert paid["log_bytes_per_write"] > 100
    assert 0 < paid["commits_per_write"] < 1


def test_a_mysqld_of_another_kind_is_no_mysql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadbd = which("mariadbd", path="/usr/sbin") or which("mariadbd")
    assert mariadbd is not None
    (tmp_path / "mysqld").symlink_to(mariadbd)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("HOTCOUNT_MYSQL", raising=False)
    done = run("run", "--managed", "mysql", *SMALL)
    assert done.returncode == 2
    assert "MySQL is not installed" in done.stderr


def test_the_page_has_a_section_for_each_database_and_one_picture_of_both(compared: Path) -> None:
    page = compared / "page.html"
    assert main(["report", str(compared), "-o", str(page)]) == 0
    body = page.read_text(encoding="utf-8").partition("<body>")[2]
    for heading in ("Votes on PostgreSQL, closed loop", "Votes on MariaDB, closed loop"):
        assert body.count(f"{heading}</h2>") == 1
    assert body.count("<h3>Writes per second on each database</h3>") == 1
    assert body.count("<h3>What the servers paid for each write</h3>") == 2
    assert body.count("<th>reads promised</th>") == 2
    rows = read(compared).rows()
    assert {row["database"] for row in rows} == {"postgres", "mariadb"}
    assert all(row["reads_promised"] == "exact" for row in rows)


def test_an_audit_says_that_private_databases_are_gone(compared: Path) -> None:
    done = run("audit", str(compared))
    assert done.returncode == 3
    assert "private database" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(("width", "height"), [(1200, 900), (390, 844)])
def test_the_page_of_two_databases_is_drawn_without_a_request(
    compared: Path, width: int, height: int
) -> None:
    page = compared / "page.html"
    assert main(["report", str(compared), "-o", str(page)]) == 0
    with chromium(width, height) as window:
        window.driver.get(page.as_uri())
        charts = window.driver.find_elements("css selector", "[role=img]")
        # One of both; of each rates, latencies and what it paid.
        assert len(charts) == 1 + 2 * 3
        for chart in charts:
            assert chart.find_elements("css selector", ".main-svg")
            assert chart.get_attribute("aria-label")
            assert chart.size["width"] <= width
        window.check(page.as_uri())


def faulted(server: str, fault: str, *options: str) -> dict[str, Any]:
    code, document = run_json(
        *["run", "-s", "batched", "--managed", server, "--fault", f"700ms:db.{fault}+300ms"],
        *["--timeout", "2s", *SMALL, *options],
        timeout=110,
    )
    assert code in MEASURED, document
    assert document["audit"]["passed"], document["audit"]
    assert document["audit"]["acknowledged"] > 0
    return document


def check_recovery(document: dict[str, Any], fault: str) -> None:
    (recovery,) = document["result"]["recoveries"]
    assert recovery["fault"] == f"db.{fault}"
    assert recovery["at_s"] == pytest.approx(0.7)
    assert recovery["away_s"] > 0.28  # Of 0.3 s, on another clock.
    assert recovery["before_per_s"] > 0
    assert recovery["first_ok_s"] is not None, recovery


def test_a_database_that_is_paused_answers_again(tmp_path: Path) -> None:
    document = faulted("postgres", "pause", "-r", "300", "-d", "2s", "--out", str(tmp_path / "run"))
    check_recovery(document, "pause")
    # Nobody was refused: who had to wait was answered.
    assert document["result"]["operations"]["failed"] == 0
    (row,) = read(tmp_path / "run").parts[0].rows
    assert [each.fault for each in row.recoveries] == ["db.pause"]
    titles = [chart.title for chart in read(tmp_path / "run").charts()]
    assert "Recovery after a fault" in titles


@pytest.mark.long
@pytest.mark.parametrize("fault", ["kill9", "pause"])
@pytest.mark.parametrize(
    "server", ["postgres", "mariadb", pytest.param("mysql", marks=pytest.mark.mysql_only)]
)
def test_a_database_that_goes_away_loses_nothing_that_was_acknowledged(
    server: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lasts = "4s"
    if server == "mysql":
        monkeypatch.setenv("HOTCOUNT_MYSQL", str(mysql_server.mysql_folder()))
        lasts = "8s"  # On a busy machine its recovery takes 5 s.
    check_recovery(faulted(server, fault, "-r", "300", "-d", lasts), fault)
    # As many calls as callers can make, those that fail at once included.
    check_recovery(faulted(server, fault, "-d", lasts), fault)


@pytest.mark.long
def test_a_comparison_has_a_recovery_for_each_strategy_and_database() -> None:
    code, document = run_json(
        *["compare", "-s", "naive,batched", *BOTH, "--fault", "500ms:db.kill9+200ms"],
        *["-d", "2s", "--rounds", "1", "--timeout", "2s", *SMALL],
        timeout=110,
    )
    assert code in MEASURED, document
    for part in document["parts"]:
        for each in part["strategies"]:
            check = each["trials"][0]["result"]["recoveries"]
            assert [one["fault"] for one in check] == ["db.kill9"], part["name"]
            assert each["audit"]["passed"]
            assert any("anew" in why for why in each["server"]["unknown"])
