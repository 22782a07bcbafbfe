"""hotcount-load run -s exec: a team's own program, also one that dies, hangs, lies or babbles."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.load_generator import OK, SENT, UNKNOWN, read_ledger, run, run_json

RAW = Path(__file__).parents[2] / "support" / "raw_driver.py"
CALLERS = ["--items", "20", "-w", "8", "--warmup", "0", "--progress", "none"]


def raw(how: str, calls: int = 0) -> str:
    return f"exec:{sys.executable} {RAW} {how} {calls}"


def long(how: str, says: str) -> Any:
    return pytest.param(how, says, marks=pytest.mark.long)


def reasons(document: dict[str, Any]) -> str:
    return "\n".join(document["reasons"])


@pytest.mark.parametrize(
    ("how", "place"), [("well", "a dict"), ("nameless", "a store that the driver does not name")]
)
def test_a_driver_that_does_well_passes_and_its_stdout_goes_to_its_log(
    how: str, place: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    code, document = run_json("run", "-s", raw(how), "-d", "200ms", *CALLERS, "--out", str(out))
    assert code == 0, document["reasons"]
    assert document["place"] == place
    assert document["contract"]["acknowledged"] == "told"
    assert document["audit"]["acknowledged"] > 0
    assert "this line is for the log" in (out / "driver.log").read_text()


def test_a_driver_whose_votes_end_with_it_cannot_be_audited_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run("run", "-s", raw("well"), "-d", "200ms", *CALLERS, "--out", str(out))
    assert done.returncode == 0, done.stdout
    assert "cannot be audited again: the program says that its votes end with it" in done.stderr
    again = run("audit", str(out))
    assert again.returncode == 3
    assert "the program says that its votes end with it" in again.stdout
    # Of one that says nothing of the kind it is a loss.
    document = json.loads((out / "run.json").read_text())
    document["contract"]["durable"] = True
    (out / "run.json").write_text(json.dumps(document))
    assert run("audit", str(out)).returncode == 1


def test_a_driver_that_drops_votes_is_found_out() -> None:
    code, document = run_json("run", "-s", raw("lie"), "--max-ops", "400", "-d", "30s", *CALLERS)
    assert code == 1
    assert document["audit"]["lost"] > 0


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("die", "it closed a connection in the middle of the run; it was killed by signal 9"),
        ("exit", "it ended with exit code 1; it wrote: this line is for the log no more of this"),
        ("unknown_id", "which it was not asked"),
        long("twice", "which it was not asked"),
        long("garbage", "it announced a frame of 1347703880 bytes"),
        long("long", "it announced a frame of 2097152 bytes; a frame has 1 to 1048576"),
        long("short", "it sent an answer that is none"),
    ],
)
def test_a_driver_that_breaks_down_leaves_its_measurement(
    how: str, says: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    # A new process has none of the votes of the one that broke down: so the audit says, with 1.
    arguments = ["-s", raw(how, 100), "-d", "30s", *CALLERS, "--out", str(out)]
    code, document = run_json("run", *arguments)
    assert code == 1
    assert "the load stopped: exec:" in reasons(document)
    assert says in reasons(document)
    assert document["audit"]["lost"] > 0
    kept = json.loads((out / "run.json").read_text())
    assert kept["result"]["operations"]["answered"] >= 50
    operations = read_ledger(out / "ledger.bin")
    assert sum(operation.status == OK for operation in operations) >= 50
    assert all(operation.status != SENT for operation in operations)


@pytest.mark.long
def test_a_driver_that_hangs_in_the_run_is_ended_and_its_measurement_kept(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["-s", raw("hang", 100), "-d", "400ms", "--timeout", "100ms", *CALLERS]
    code, document = run_json("run", *arguments, "--out", str(out))
    assert code == 1  # As above: a dict ends with its process.
    assert "calls in the window failed or had no answer" in reasons(document)
    assert any(operation.status == UNKNOWN for operation in read_ledger(out / "ledger.bin"))


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("version", 3, "it speaks version 99 of the protocol, this program 1"),
        ("refuse", 2, "its set-up failed: the tables cannot be made"),
        ("torn_rows", 3, "it sent a page with a part of a row in it"),
        ("empty_pages", 3, "it sent 100 empty pages one after another, and none was its last"),
    ],
)
def test_a_driver_that_cannot_begin_says_why(how: str, code: int, says: str) -> None:
    done = run("run", "-s", raw(how), "-d", "1s", *CALLERS)
    assert done.returncode == code
    assert says in done.stderr


@pytest.mark.parametrize(
    ("strategy", "more", "says"),
    [
        ("exec:", [], "exec: names no program"),
        ("exec:./none", [], "./none cannot be started: No such file or directory"),
        ("exec:./d postgresql://u:secret@h/d", [], "a URL with a password in the command"),
        ("exec:./driver", ["--processes", "2"], "has processes of its own"),
        ("exec:./driver", ["--workload", "zset"], "is no strategy for zset"),
    ],
)
def test_bad_usage_is_refused_before_anything_starts(
    strategy: str, more: list[str], says: str
) -> None:
    done = run("run", "-s", strategy, "-d", "1s", *more)
    assert done.returncode == 2
    assert says in done.stderr
    assert "secret" not in done.stderr
