"""hotcount-load as people and programs start it: output, JSON, exit codes, audit."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.load_generator import SMALL, program, run, run_json


def keys(document: dict[str, Any]) -> set[str]:
    return set(document)


def test_run_prints_the_audit_beside_the_figures() -> None:
    done = run("run", "-s", "batched", "-d", "60s", "--max-ops", "200", *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in (
        *("Votes with batched on SQLite file on ", "journal_mode=wal, synchronous=FULL"),
        *("closed loop, 8 callers", "seed 1", "passed", "--max-ops 200"),
        *("What an acknowledgement means", "may lose: nothing acknowledged"),
    ):
        assert words in done.stdout


def test_run_prints_json_with_all_that_is_needed_to_repeat_it() -> None:
    arguments = ["run", "-s", "naive", "-r", "100", "-d", "500ms", "--seed", "9", *SMALL]
    code, document = run_json(*arguments)
    assert document["schema"] == "hotcount-load/1"
    assert keys(document) >= {
        "kind", "state", "started", "command", "versions", "machine", "settings", "place",
        "contract", "result", "audit", "reasons", "conclusion", "exit_code",
    }  # fmt: skip
    assert document["command"] == ["hotcount-load", *arguments, "--json"]
    assert document["exit_code"] == code
    assert keys(document["machine"]) >= {"cpus", "cpu_model", "kernel", "memory_bytes"}
    assert keys(document["versions"]) >= {"version", "compiler", "build_type", "sqlite"}
    settings = document["settings"]
    assert settings["strategy"] == "naive"
    assert settings["arrival"] == "poisson"
    assert settings["rate_per_s"] == 100
    assert settings["duration_s"] == 0.5
    assert settings["seed"] == 9
    result = document["result"]
    percentiles = {"count", "min", "mean", "p50", "p90", "p99", "p999", "max"}
    for name in ("response_us", "service_us", "send_lag_us"):
        assert keys(result[name]) == percentiles
    assert result["response_us"]["p50"] >= result["service_us"]["min"]
    offered = result["offered"]
    assert offered["scheduled"] == result["operations"]["answered"] + offered["censored"]
    assert document["audit"]["passed"]


def test_the_same_seed_sends_the_same_traffic(tmp_path: Path) -> None:
    def first_operations(folder: str, *more: str) -> bytes:
        out = tmp_path / folder
        ops = ["--max-ops", "300", "-d", "30s"]
        done = run("run", *SMALL, *ops, "--out", str(out), *more)
        assert done.returncode == 0, done.stderr
        ledger = (out / "ledger.bin").read_bytes()[4096:]
        # item, user, value, kind, resent
        return b"".join(ledger[i + 8 : i + 30] for i in range(0, len(ledger), 64))

    batched = first_operations("a", "-s", "batched", "--seed", "5")
    assert first_operations("b", "-s", "slotted", "--seed", "5", "-w", "3") == batched
    assert first_operations("c", "-s", "batched", "--seed", "6") != batched


def test_compare_prints_a_row_for_each_strategy(tmp_path: Path) -> None:
    out = tmp_path / "compare"
    arguments = ["compare", "-s", "naive,slotted,batched", "--rounds", "2", "--no-best"]
    done = run(*arguments, "-d", "200ms", *SMALL, "--out", str(out))
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    for strategy in ("naive", "slotted", "batched"):
        assert "passed" in rows[strategy]
    assert "ratio: to naive" in done.stdout
    assert "2 rounds" in done.stdout
    assert "naive/again is naive once more" in done.stdout
    assert len(list(out.glob("closed-0[12]-*/run.json"))) == 8
    document = json.loads((out / "compare.json").read_text())
    strategies = [each["strategy"] for each in document["parts"][0]["strategies"]]
    assert strategies == ["naive", "slotted", "batched"]

    again = run("audit", str(out))
    assert again.returncode == 0, again.stdout
    assert "Audit of 8 runs" in again.stdout


def test_counters_in_memory_are_audited_too() -> None:
    code, document = run_json("run", "--workload", "counters", "-d", "200ms", *SMALL)
    assert code == 0
    assert document["settings"]["strategy"] == "memory"
    assert document["audit"]["passed"]
    assert document["audit"]["sum_of_counters"] > 0
    assert not document["contract"]["durable"]


@pytest.fixture
def finished_run(tmp_path: Path) -> Path:
    out = tmp_path / "run"
    votes = ["--mix", "vote=1", "--dup", "0"]
    done = run("run", "-s", "batched", "-d", "200ms", *votes, *SMALL, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


def change(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "votes.sqlite3") as database:
        assert database.execute(statement).rowcount > 0
    database.close()


VOTED_ITEM = "(SELECT item_id FROM vote WHERE val = 1 LIMIT 1)"


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        (f"UPDATE vote SET val = 0 WHERE item_id = {VOTED_ITEM}", "lost"),
        (f"UPDATE item SET vote_count = vote_count + 1 WHERE id = {VOTED_ITEM}", "double"),
        (f"UPDATE item SET vote_count = vote_count - 2 WHERE id = {VOTED_ITEM}", "lost"),
        ("INSERT INTO vote (item_id, user_id, val) VALUES (3, 987654321, 1)", "ghost"),
    ],
    ids=["vote-gone", "count-high", "count-low", "vote-from-nowhere"],
)
def test_audit_finds_what_somebody_changed(
    finished_run: Path, statement: str, finding: str
) -> None:
    change(finished_run, statement)
    code, document = run_json("audit", str(finished_run))
    assert code == 1
    assert document["conclusion"] == "broken"
    assert document["runs"][0]["audit"][finding] > 0
    assert document["runs"][0]["audit"]["examples"]


def test_a_ledger_that_lies_is_found_out(finished_run: Path) -> None:
    """An acknowledged vote that the database never saw."""
    ledger = finished_run / "ledger.bin"
    data = bytearray(ledger.read_bytes())
    record = next(
        at for at in range(4096, len(data), 64) if data[at + 28] == 0 and data[at + 56] == 3
    )
    data[record + 16 : record + 24] = (999_999_999).to_bytes(8, "little")
    ledger.write_bytes(data)
    code, document = run_json("audit", str(finished_run))
    assert code == 1
    audit = document["runs"][0]["audit"]
    # The vote that is there instead is one that, by this ledger, nobody cast.
    assert (audit["lost"], audit["ghost"], audit["double"]) == (1, 1, 0)


def test_a_database_that_holds_votes_is_refused(finished_run: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{finished_run / 'votes.sqlite3'}"
    done = run("run", *SMALL, "-d", "100ms", "--db", url, "--out", str(tmp_path / "second"))
    assert done.returncode == 2
    assert "holds" in done.stderr
    assert done.stdout == ""


def test_too_high_a_rate_is_inconclusive_and_says_so() -> None:
    done = run("run", "-s", "naive", "-r", "500k", "-d", "200ms", *SMALL)
    assert done.returncode == 3
    assert "inconclusive: overloaded" in done.stdout
    assert "nothing lost" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune"], ["'tune'", "run, compare, audit"]),
        (["run", "--sped", "3"], ["'--sped'", "--seed"]),
        (["run", "-s", "quick"], ["'quick'", "naive, slotted, batched"]),
        (["run", "-d", "soon"], ["--duration", "'soon'", "500ms"]),
        (["run", "--mix", "vote=1,write=2"], ["'write'", "vote, unvote, read"]),
        (["run", "--db", "oracle://h/d"], ["sqlite:///", "postgresql://", "mariadb://"]),
        (["audit", "."], ["no run folder"]),
        (["audit", "missing"], ["missing"]),
        (["audit"], ["audit DIR"]),
    ],
)
def test_bad_usage_names_what_is_wrong_and_what_is_right(
    arguments: list[str], words: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [program(), *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr


def test_an_interrupt_ends_the_load_and_still_audits(tmp_path: Path) -> None:
    command = [program(), "run", "-d", "60s", "-w", "8", "--items", "200", "--warmup", "0"]
    command += ["--progress", "ndjson", "--json", "--out", str(tmp_path / "run")]
    generator = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert generator.stderr is not None
    while json.loads(generator.stderr.readline())["event"] != "load":
        pass
    # One sample, so that something was done.
    assert json.loads(generator.stderr.readline())["event"] == "sample"
    generator.send_signal(signal.SIGINT)
    out, _ = generator.communicate(timeout=30)
    assert generator.returncode == 3
    document = json.loads(out)
    assert document["reasons"] == ["it was interrupted"]
    assert document["audit"]["passed"]
    assert document["audit"]["acknowledged"] > 0


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [program(), "compare", "-s", "batched", "--rounds", "1", "-d", "100ms", *SMALL],
        capture_output=True,
        env={"TMPDIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
