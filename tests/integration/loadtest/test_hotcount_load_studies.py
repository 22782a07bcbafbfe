"""hotcount load calibrate, search, sweep and compare: several runs, one answer."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.load_generator import (
    SMALL,
    UNVOTE,
    VOTE,
    program,
    read_ledger,
    run,
    run_json,
    study,
    study_json,
)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sweep", "-s", "batched"], "--rates"),
        (["sweep", "-s", "batched", "--rates", "5:1:x2"], "below the first"),
        (
            ["sweep", "-s", "batched", "--rates", "5", "--arrival", "closed"],
            "sweep varies the rate",
        ),
        (["search", "-s", "batched", "-r", "100"], "-r is not an option of search"),
        (["search", "-s", "batched", "--markdown", "--json"], "--markdown"),
        (["search", "-s", "quick"], "'quick' is no strategy"),
        (["search", "--speed", "9"], "unknown option '--speed'"),
        (["search", "--slo", "stale.p99<1s", "-s", "memory/gcra"], "votes and counters alone"),
        (["scale", "-w", "5,3"], "the numbers do not rise"),
        (["scale", "--arrival", "poisson"], "--arrival is not an option of scale"),
        (["calibrate", "-s", "naive"], "unknown option '-s'"),
        (["search", "--slo", "p99<redis://a:secret@h"], "***"),
    ],
)
def test_what_contradicts_itself_is_refused(arguments: list[str], says: str) -> None:
    done = study(*arguments)
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert "secret" not in done.stderr


def test_each_line_is_a_run_and_a_wrong_one_ends_nothing(tmp_path: Path) -> None:
    """`hotcount-load run --each`, which the studies drive."""
    folder = tmp_path / "each"
    lines = [
        {"name": "one", "options": ["-s", "memory", "-r", "200", "--arrival", "uniform"]},
        {"name": "two", "options": ["-s", "memory", "--speed", "9"]},
        {"name": "three", "options": ["-s", "naive", "-w", "2"]},
    ]
    options = ["-s", "memory,naive", "-d", "100ms", "--threshold", "lost=0", *SMALL]
    options += ["--out", str(folder)]
    done = subprocess.run(
        [program(), "run", "--each", *options],
        input="\n".join([*map(json.dumps, lines), "no JSON", ""]),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    ready, one, two, three, wrong = map(json.loads, done.stdout.splitlines())
    assert [each["strategy"] for each in ready["settings"]] == ["memory", "naive"]
    assert one["settings"]["rate_per_s"] == 200
    assert one["thresholds"] == [
        {"threshold": "lost=0", "found": 0, "unit": "count", "figure": "0", "met": True,
         "too_few": False}
    ]  # fmt: skip
    assert "--speed" in two["error"]
    assert two["exit_code"] == wrong["exit_code"] == 2
    assert (three["settings"]["workers"], three["audit"]["passed"]) == (2, True)
    assert sorted(each.name for each in folder.iterdir() if each.is_dir()) == ["one", "three"]


def test_a_comparison_has_its_statistics_in_the_folder_too(tmp_path: Path) -> None:
    folder = tmp_path / "compare"
    options = ["--workload", "counters", "-s", "memory,memory/ttl", "--rounds", "6", "--no-best"]
    code, document = study_json("compare", *options, "-d", "50ms", *SMALL, "--out", str(folder))
    assert code in (0, 3)
    assert document == json.loads((folder / "compare.json").read_text())
    (part,) = document["parts"]
    first, second = part["strategies"]
    assert first["writes_per_s"]["interval"]
    assert first["ratio_to_baseline"]["difference"] is None
    assert second["ratio_to_baseline"]["difference"] in (True, False)
    assert 0 < second["ratio_to_baseline"]["p"] <= second["ratio_to_baseline"]["p_adjusted"] <= 1
    text = study("diff", str(folder), str(folder))
    assert text.returncode == 0
    assert "6 paired" in text.stdout
    assert "No difference in the rate could be shown: memory, memory/ttl" in text.stdout


@pytest.mark.parametrize(
    ("study", "reason"),
    [
        (["sweep", "--rates", "50,60"], "not run at 60.0/s and above: interrupted before"),
        (["search", "--from", "50"], "it was interrupted"),
    ],
)
def test_an_interrupted_study_says_what_did_not_run(study: list[str], reason: str) -> None:
    command = [sys.executable, "-m", "hotcount", "load", *study, "-s", "memory", "--json"]
    load = subprocess.Popen(
        [*command, "-d", "30s", "--warmup", "0", "--progress", "ndjson"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert load.stderr is not None
    while '"load"' not in load.stderr.readline():
        assert load.poll() is None
    os.killpg(load.pid, signal.SIGINT)
    out, _ = load.communicate(timeout=30)
    document = json.loads(out)
    assert load.returncode == 3
    assert document["command"][:3] == ["hotcount", "load", study[0]]
    (found,) = document["strategies"]
    assert len(found["trials"]) == 1
    assert found["trials"][0]["audit"]["passed"]
    assert found["reasons"] == [reason]


def test_a_sweep_keeps_its_runs_and_a_series(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    code, document = study_json(
        *["sweep", "-s", "batched,naive", "--rates", "50:100:x2", "-d", "200ms", *SMALL],
        *["--out", str(folder)],
    )
    # A machine that is busy with other things may not carry one of them.
    assert code in (0, 3)
    assert document == json.loads((folder / "sweep.json").read_text())
    rows = list(csv.DictReader((folder / "sweep.csv").read_text().splitlines()))
    assert [(row["strategy"], float(row["rate_per_s"])) for row in rows] == [
        ("batched", 50),
        ("batched", 100),
        ("naive", 50),
        ("naive", 100),
    ]
    assert {row["lost"] for row in rows} == {"0"}
    audited = run("audit", str(folder))
    assert audited.returncode == 0, audited.stdout
    assert "Audit of 4 runs" in audited.stdout


def test_a_trace_is_sent_as_it_was_recorded_and_audited(tmp_path: Path) -> None:
    trace = tmp_path / "votes.csv"
    lines = [f"{1000 + number / 1000},{number % 3 + 70},{number + 1},1" for number in range(100)]
    trace.write_text(
        "\n".join(["time,item,user,value", *lines, "1000.1,70,1,0", "1000.1,70,,", ""])
    )
    folder = tmp_path / "run"
    code, document = run_json(
        *["run", "-s", "batched", "--trace", str(trace), "--progress", "none"],
        *["--out", str(folder)],
    )
    assert code in (0, 3)  # A machine that is busy with other things may not carry it.
    assert document["settings"]["trace"] == str(trace)
    assert document["settings"]["items"] == 3
    assert document["result"]["offered"]["scheduled"] == 102
    assert document["audit"]["passed"]
    writes = read_ledger(folder / "ledger.bin")
    assert [write.user for write in writes] == [*range(1, 101), 1]
    assert [write.kind for write in writes[99:]] == [VOTE, UNVOTE]
    assert [write.intended_ns for write in writes[1:3]] == pytest.approx([1e6, 2e6], abs=1e3)
    assert len(read_ledger(folder / "ledger.bin", reads=True)) == 1
    assert run("audit", str(folder)).returncode == 0

    trace.write_text("time,item,user,value\n1,70,1,1\n2,70,1,5\n")
    refused = run("run", "-s", "batched", "--trace", str(trace))
    assert refused.returncode == 2
    assert "line 3: its value is '5'" in refused.stderr


@pytest.mark.long
def test_a_search_finds_a_rate_and_the_one_that_is_refused() -> None:
    code, document = study_json(
        *["search", "-s", "naive", "--slo", "err<1%,lost=0", "-d", "300ms", *SMALL, "-w", "2"],
        timeout=300,
    )
    assert code == 0, document["strategies"][0]["reasons"]
    (found,) = document["strategies"]
    assert 0 < found["rate_per_s"] < found["refused_per_s"]
    confirmed = [trial for trial in found["trials"] if trial["rate_per_s"] == found["rate_per_s"]]
    assert sum(trial["held"] for trial in confirmed) >= 3
    seeds = [trial["settings"]["seed"] for trial in found["trials"]]
    assert seeds[0] == 1
    assert len({*seeds[-3:], 1}) == 4, "each confirmation has traffic of its own"
    assert all(trial["audit"]["passed"] for trial in found["trials"])
    assert found["limit"] != "-"


@pytest.mark.long
def test_a_calibration_is_found_by_later_runs(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "calibration"
    code, document = study_json("calibrate", "--out", str(folder))
    assert code == 0
    kept = json.loads((cache / "hotcount" / "calibration.json").read_text())
    assert kept == document == json.loads((folder / "calibration.json").read_text())
    ceiling = document["ceiling"]
    assert ceiling["closed_per_s"] > 10_000
    assert ceiling["open_per_s"] >= 10_000
    assert document["timer_late_us"]["p99"] > 0
    assert document["flush_us"]["p50"] > 0

    _, slow = run_json("run", "-s", "batched", "-d", "200ms", *SMALL)
    assert slow["result"]["generator"]["ceiling_per_s"] == ceiling["closed_per_s"]
    assert slow["result"]["generator"]["headroom"] > 3
    assert slow["result"]["bound"] != "generator"
    _, fast = run_json("run", "-s", "memory", "-d", "200ms", *SMALL)
    assert fast["result"]["generator"]["headroom"] < 100
    text = run("run", "-s", "batched", "-d", "200ms", "--wide", *SMALL).stdout
    assert "the load generator drives " in text


@pytest.mark.long
@pytest.mark.server
def test_a_server_that_stands_still_is_charged_to_every_call_that_was_due() -> None:
    """At a constant rate the times of a stall of L run evenly from L to 0. So of a load of T, the
    share q waited longer than L - q T."""
    window_s, rate = 5, 2000
    code, document = run_json(
        *["run", "-s", "redis", "--managed", "redis", "-r", str(rate), "--arrival", "uniform"],
        *["-d", f"{window_s}s", "--warmup", "500ms", "-w", "64", "--mix", "vote=1"],
        *["--fault", "2s:redis.pause+1s", "--progress", "none"],
    )
    assert code == 0, document["reasons"]
    response = document["result"]["response_us"]
    assert response["count"] == window_s * rate
    stall_s = response["max"] * 1e-6
    # The timer that ends the stall may be late; it is never early.
    assert stall_s > 0.95
    assert response["p999"] * 1e-6 == pytest.approx(stall_s - 0.001 * window_s, rel=0.05)
    assert response["p99"] * 1e-6 == pytest.approx(stall_s - 0.01 * window_s, rel=0.05)
    assert response["p50"] * 1e-6 < 0.1 * stall_s
    assert document["audit"]["passed"]
