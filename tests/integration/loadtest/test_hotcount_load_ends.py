"""hotcount-load as people start it, how it ends before its time, and what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.load_generator import SMALL, program, run, run_json
from tests.support.programs import captured

# Far more than it takes; a machine may be busy.
PATIENCE_S = 60


def heed_hangups() -> None:
    # Under nohup the tests ignore them, and so would what they start.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def started(*arguments: str) -> subprocess.Popen[str]:
    """A generator in the middle of a load."""
    command = [program(), *arguments, "--items", "200", "-w", "4", "--warmup", "0"]
    load = subprocess.Popen(
        [*command, "-d", "60s", "--progress", "ndjson"],
        preexec_fn=heed_hangups,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert load.stderr is not None
    while json.loads(load.stderr.readline())["event"] != "sample":
        pass
    return load


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGTERM"])
def test_a_signal_ends_the_load_and_still_audits(name: str, temporary: Path) -> None:
    load = started("run", "-s", "batched", "--json")
    load.send_signal(getattr(signal, name))
    out, err = load.communicate(timeout=PATIENCE_S)
    assert load.returncode == 3, err
    document = json.loads(out)
    assert document["reasons"] == ["it was interrupted"]
    assert document["audit"]["passed"]
    assert document["audit"]["acknowledged"] > 0
    assert list(temporary.iterdir()) == []


def ignore_hangups() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_nohup_keeps_its_meaning() -> None:
    load = subprocess.Popen(
        [program(), "run", "-s", "memory", "-d", "500ms", *SMALL],
        preexec_fn=ignore_hangups,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    load.send_signal(signal.SIGHUP)
    _, err = load.communicate(timeout=PATIENCE_S)
    assert load.returncode == 0, err


def test_results_that_nobody_reads_are_in_the_folder(tmp_path: Path) -> None:
    for streams in (["stdout"], ["stdout", "stderr"]):
        folder = tmp_path / "-".join(streams)
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [program(), "run", "-s", "batched", "-d", "100ms", *SMALL, "--out", str(folder)],
            stdout=write,
            stderr=write if "stderr" in streams else subprocess.PIPE,
            timeout=PATIENCE_S,
            check=False,
        )
        os.close(write)
        assert done.returncode == 3, done.stderr
        if "stderr" not in streams:
            assert b"the results could not be written" in done.stderr
        assert json.loads((folder / "run.json").read_text())["conclusion"] == "passed"
        assert run("audit", str(folder)).returncode == 0


def test_a_stream_that_was_closed_does_not_become_a_file_of_the_run(tmp_path: Path) -> None:
    for number, kept in enumerate((["--out", str(tmp_path / "run")], [])):
        done = subprocess.run(
            [program(), "run", "-s", "batched", "-d", "100ms", *SMALL, *kept],
            preexec_fn=lambda: os.closerange(0, 2),
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 3, done.stderr
        assert b"the results could not be written" in done.stderr
        assert (b"nothing of them is kept" in done.stderr) == bool(number)
    assert run("audit", str(tmp_path / "run")).returncode == 0


@pytest.mark.parametrize("arguments", [["run", "--help"], ["--version"], ["tune"]])
def test_a_message_that_cannot_be_written_is_no_crash(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [program(), *arguments], stdout=full, stderr=full, timeout=PATIENCE_S, check=False
        )
    assert done.returncode == (2 if arguments == ["tune"] else 0)


def test_a_folder_is_of_one_run_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    load = started("run", "-s", "batched", "--out", str(folder))
    try:
        second = run("run", "-s", "memory", "-d", "100ms", *SMALL, "--out", str(folder))
        assert second.returncode == 2
        assert "another run works in it" in second.stderr
        audit = run("audit", str(folder))
        assert audit.returncode == 3
        assert "audit it when that has ended" in audit.stderr
    finally:
        load.kill()
        load.communicate()
    code, found = run_json("audit", str(folder))
    assert code == 0, found
    assert found["runs"][0]["state"] == "running"


def test_an_interrupted_comparison_names_what_did_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "compare"
    load = started(
        *["compare", "-s", "naive,slotted,batched", "--no-best", "--rounds", "3"],
        *["--out", str(folder)],
    )
    load.send_signal(signal.SIGINT)
    out, err = load.communicate(timeout=PATIENCE_S)
    assert load.returncode == 3, err
    rows: dict[str, str] = {}
    for line in out.splitlines():
        if line.strip():
            rows.setdefault(line.split()[0], line)
    document = json.loads((folder / "compare.json").read_text())
    of_part = document["parts"][0]
    everybody = [*of_part["strategies"], *of_part["references"]]
    not_run = [each for each in everybody if each["not_run"]]
    assert len(not_run) == 3, "one was under way"
    for each in not_run:
        assert rows[each["strategy"]].endswith("not run")
        assert "passed" not in rows[each["strategy"]]
        assert each["audit"] is None
        assert each["conclusion"] == "inconclusive"
    named = [each["strategy"] for each in not_run if each["role"] == "named"]
    assert f"\nNot run: {', '.join(named)}.\n" in out
    assert run("audit", str(folder)).returncode == 0


@pytest.mark.server
def test_what_a_killed_program_left_goes_with_the_next_start_of_any_kind(temporary: Path) -> None:
    load = started("run", "-s", "redis", "--managed", "redis")
    load.kill()
    load.communicate()
    kinds = {each.name.rsplit("-", 1)[0] for each in temporary.iterdir()}
    assert kinds == {"hotcount-load", "hotcount-redis"}

    def gone() -> bool:
        # A server that ends just now may still write there.
        assert run("run", "-s", "memory", "-d", "10ms", *SMALL).returncode == 0
        return list(temporary.iterdir()) == []

    eventually(gone, PATIENCE_S)


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune"], ["'tune'", "run, compare, audit"]),
        (["run", "-s", "quick"], ["'quick'", "naive, slotted, batched"]),
        (["audit", "missing"], ["missing"]),
    ],
)
def test_bad_usage_names_what_is_wrong_and_what_is_right(
    arguments: list[str], words: list[str], tmp_path: Path
) -> None:
    done = captured([program(), *arguments], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
