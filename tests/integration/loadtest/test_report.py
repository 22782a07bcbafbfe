"""series.csv and response.hlog of a run, and `hotcount report`, which draws them."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hotcount._report_numbers import number
from hotcount._report_rows import folders_of
from hotcount.report import read

from tests.support.load_generator import FAILED, OK, SMALL, program, read_ledger, run
from tests.support.report_page import MEASURED, changed, report


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("open") / "run"
    done = run("run", "-s", "batched", "-r", "2k", "-d", "2500ms", *SMALL, "--out", str(folder))
    assert done.returncode in MEASURED, done.stderr
    return folder


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("closed") / "compared"
    strategies = ("-s", "naive,batched", "--rounds", "2", "-d", "200ms")
    done = run("compare", *strategies, *SMALL, "--out", str(folder))
    assert done.returncode in MEASURED, done.stderr
    return folder


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "series.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_series_has_each_write_of_the_ledger_once(open_run: Path) -> None:
    operations = read_ledger(open_run / "ledger.bin")
    rows = rows_of(open_run)
    ok = sum(int(row[f"{kind}_ok"]) for row in rows for kind in ("vote", "unvote"))
    assert ok == sum(each.status == OK for each in operations) > 0
    assert sum(int(row["failed"]) for row in rows) == sum(x.status == FAILED for x in operations)
    assert [float(row["from_s"]) for row in rows] == list(range(len(rows)))
    assert int(rows[-1]["waiting"]) == 0


def test_another_implementation_reads_the_log_and_agrees_with_the_ledger(open_run: Path) -> None:
    log = str(open_run / "response.hlog")
    reader = HistogramLogReader(log, HdrHistogram(1, (1 << 42) - 1, 3))
    total = HdrHistogram(1, (1 << 42) - 1, 3)
    while (interval := reader.get_next_interval_histogram()) is not None:
        if interval.get_tag() != "read":  # read_ledger() leaves them out.
            total.add(interval)
    reader.close()
    times = sorted(
        each.done_ns - each.intended_ns
        for each in read_ledger(open_run / "ledger.bin")
        if each.status == OK
    )
    assert total.get_total_count() == len(times)
    for share in (0.5, 0.9, 0.99, 0.999):
        exact = times[-int(-share * len(times) // 1) - 1]
        assert total.get_value_at_percentile(100 * share) == pytest.approx(exact, rel=2e-3)
    assert total.get_max_value() == pytest.approx(times[-1], rel=1e-3)


def test_runs_and_comparisons_are_one_file(
    open_run: Path, comparison: Path, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    done = report(open_run, comparison, "-o", file)
    assert (done.returncode, done.stderr) == (0, "")
    page = file.read_text(encoding="utf-8")
    head, _, body = page.partition("<body>")
    assert "src=" not in body, "nothing is loaded"
    assert "<link" not in body
    assert "<script>" in head
    document = json.loads((open_run / "run.json").read_text())
    p99 = document["result"]["response_us"]["p99"] / 1000
    # A disk that stands still for seconds leaves more than one call of a hundred unanswered.
    said = f"99 of 100 calls were answered within {number(p99)} ms", "More than 1 of 100 calls"
    assert any(sentence in body for sentence in said)
    assert "The audit found every promise kept: nothing acknowledged was lost or doubled." in body
    assert body.count('role="img"') == 2 + 2, "latency and time of the run; rates and latency"
    assert "batched was the fastest with" in body
    assert body.count("<th>stale reads</th>") == 2
    assert "<td>exact</td>" in body


def test_stale_reads_are_drawn_beside_latency(comparison: Path, tmp_path: Path) -> None:
    parts = json.loads((comparison / "compare.json").read_text())["parts"]
    reads = parts[0]["strategies"][1]["audit"]["reads"]
    reads |= {"checked": 10, "stale": 4}
    reads["staleness_ms"] |= {"p99": 80.0, "up_to": [[0.0, 6], [80.0, 4]]}
    stale = changed(comparison, tmp_path / "stale", "compare.json", parts=parts)
    file = tmp_path / "report.html"
    done = report(stale, "-o", file)
    assert (done.returncode, done.stderr) == (0, "")
    body = file.read_text(encoding="utf-8").partition("<body>")[2]
    assert "<h3>Latency and staleness</h3>" in body
    assert "99 of 100 at most 80.0 ms, batched the stalest." in body
    assert "<tr><td>batched</td><td>0</td><td>60\u00a0%</td></tr>" in body
    assert "<tr><td>batched</td><td>80.0</td><td>100\u00a0%</td></tr>" in body


def test_rows_and_charts_are_for_notebooks(comparison: Path) -> None:
    result = read(comparison)
    rows = [row for row in result.rows() if not row["reference"]]
    assert [row["strategy"] for row in rows] == ["naive", "batched"]
    assert rows[0]["ratio"] == 1
    assert all(row["writes_per_s"] > 0 < row["cpu_us"] for row in rows)
    rates, latency = result.charts()
    assert rates.numbers[0] == ("naive", "1.00")
    assert [line.name for line in latency.figure.data][:2] == ["naive", "batched"]


def test_what_the_audit_found_is_said_first(open_run: Path, tmp_path: Path) -> None:
    kept = json.loads((open_run / "run.json").read_text())["audit"]
    reads = {**kept["reads"], "checked": 200, "stale": 4, "never_right": 1}
    reads["staleness_ms"]["p99"] = 312.4
    audit = {**kept, "passed": False, "lost": 3, "reads": reads}
    why = ["the audit found 3 lost, <b>0</b> double"]
    broken = changed(
        open_run, tmp_path / "broken", "run.json", audit=audit, conclusion="broken", reasons=why
    )
    file = tmp_path / "report.html"
    assert report(broken, "-o", file).returncode == 0
    body = file.read_text(encoding="utf-8").partition("<body>")[2]
    assert "broken</span></h2>" in body
    assert "The audit found a broken promise of batched." in body
    assert "3 lost, &lt;b&gt;0&lt;/b&gt; double" in body
    assert "<td>2\u00a0%, p99 312\u00a0ms; 1\u00a0never right</td>" in body


def test_a_run_that_was_killed_is_shown_as_one(open_run: Path, tmp_path: Path) -> None:
    killed = changed(
        open_run, tmp_path / "killed", "run.json",
        state="running", result=None, audit=None, conclusion=None, reasons=None,
    )  # fmt: skip
    for name in ("series.csv", "response.hlog"):
        (killed / name).unlink()
    file = tmp_path / "report.html"
    done = report(killed, "-o", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "The run was killed, or goes on" in file.read_text(encoding="utf-8")


def test_rounds_of_a_strategy_whose_name_ends_alike_are_another_ones(tmp_path: Path) -> None:
    for name in ("naive", "redis-naive", "naive-again", "naive-16", "exec-a-b"):
        (tmp_path / f"votes-closed-01-{name}").mkdir()
        (tmp_path / f"votes-closed-02-{name}").mkdir()
    for strategy, kept in (("naive", "naive"), ("naive@16", "naive-16"), ("exec:a b", "exec-a-b")):
        found = [each.name for each in folders_of(tmp_path, "votes-closed", strategy)]
        assert found == [f"votes-closed-01-{kept}", f"votes-closed-02-{kept}"]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (None, "has none of compare.json, run.json"),
        ("{", "run.json cannot be read"),
        ('{"schema": "hotcount-load/99"}', "is no result of this hotcount-load"),
        ('{"schema": "hotcount-load/1", "kind": "run"}', "its result lacks something"),
        ('{"schema": "hotcount-load/1"}', "its result lacks something"),
    ],
)
def test_a_folder_without_a_result_is_named(
    content: str | None, wrong: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if content is not None:
        (folder / "run.json").write_text(content)
    done = report(folder, "-o", tmp_path / "report.html")
    assert done.returncode == 2
    assert str(folder) in done.stderr
    assert wrong in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_html_draws_a_run_that_is_not_kept_and_one_that_is(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.html", tmp_path / "compared"
    done = run("run", "-s", "memory", "-d", "1200ms", *SMALL, "--html", str(page))
    assert done.returncode in MEASURED, done.stderr
    body = page.read_text(encoding="utf-8").partition("<body>")[2]
    assert body.count('role="img"') == 2, "latency and time"
    options = ("--rounds", "1", "-d", "200ms", "--out", str(folder), "--html", str(page))
    done = run("compare", "-s", "memory,memory/ttl", *SMALL, *options)
    assert done.returncode in MEASURED, done.stderr
    assert "Writes per second, in the same rounds" in page.read_text(encoding="utf-8")


def test_without_the_package_html_is_refused_before_the_load(tmp_path: Path) -> None:
    alone = tmp_path / "bin"
    alone.mkdir()
    shutil.copy(program(), alone)
    done = subprocess.run(
        [alone / "hotcount-load", "run", "-s", "memory", "--out", tmp_path / "run", "--html", "x"],
        capture_output=True, text=True, timeout=60, env={"PATH": str(alone)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "hotcount[report]" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_page_that_cannot_be_written_is_refused_before_the_load(tmp_path: Path) -> None:
    where = tmp_path / "nowhere" / "page.html"
    done = run("run", "-s", "memory", "-d", "200ms", *SMALL, "--html", str(where))
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere/page.html: it cannot be written there" in done.stderr
