"""What the page of a comparison says: of open loops, of few rounds, of calls that failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hotcount._report_charts import of_part
from hotcount._report_numbers import number, percentile_of, ratio_of, whole
from hotcount._report_rows import _logged
from hotcount.report import Chart, Part, read

from tests.support.load_generator import SMALL, run
from tests.support.report_page import MEASURED, body_of, changed


def compared(folder: Path, *options: str) -> Path:
    strategies = ("-s", "naive,batched", "--rounds", "2")
    done = run("compare", *strategies, *options, *SMALL, "--out", str(folder))
    assert done.returncode in MEASURED, done.stderr
    return folder


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compared(tmp_path_factory.mktemp("closed") / "compared", "-d", "200ms", "--no-best")


@pytest.fixture(scope="module")
def in_open_loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compared(tmp_path_factory.mktemp("open") / "compared", "-d", "300ms", "-r", "300")


def with_each(folder: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a comparison in which `change` had each strategy, and the baseline's second run."""
    (part,) = json.loads((folder / "compare.json").read_text())["parts"]
    for strategy in [*part["strategies"], *part["references"]]:
        change(strategy)
    return changed(folder, to, "compare.json", parts=[part])


def carried(found: dict[str, Any]) -> None:
    """As on a machine that has the time."""
    found |= {"overloaded": False, "failed": 0, "unknown": 0, "censored": 0, "offered_share": 1.0}
    found |= {"reasons": [], "conclusion": "passed"}
    found["response_us"]["count"] = max(200, found["response_us"]["count"])
    found["response_us"] |= {"p50": 1000.0, "p90": 2000.0, "p99": 4000.0, "p999": 8000.0}
    found["p99_ratio_to_baseline"] |= {"median": 1.0, "min": 1.0, "max": 1.0}
    if found["strategy"] == "batched":
        found["response_us"]["p99"] = 3000.0
        found["p99_ratio_to_baseline"] |= {"median": 0.75, "min": 0.5, "max": 0.8}


def chart_of(part: Part, title: str) -> Chart:
    (found,) = [chart for chart in of_part(part) if chart.title == title]
    return found


@pytest.mark.parametrize(
    ("format", "value", "text"),
    [
        (whole, 52_702.5, "52,703"),
        (whole, 2.5, "3"),
        (whole, -1234.5, "-1,235"),
        (whole, 0.0, "0"),
        (number, 0.0, "0"),
        (number, 2657.5719451571085, "2,660"),
        (number, 52_702.5, "52,700"),
        (number, 0.99964, "1.00"),
        (number, 99.96, "100"),
        (number, 80.0, "80.0"),
        (number, 0.05638, "0.0564"),
        (number, -3.14159, "-3.14"),
    ],
)
def test_a_number_is_written_as_in_the_terminal(
    format: Callable[[float], str], value: float, text: str
) -> None:
    assert format(value) == text


def test_an_open_loop_compares_p99_and_names_no_fastest(in_open_loop: Path, tmp_path: Path) -> None:
    folder = with_each(in_open_loop, tmp_path / "carried", carried)
    body = body_of(folder, tmp_path / "report.html")
    assert "fastest" not in body
    assert (
        "batched had the lowest p99 of those that carried 300 operations/s, 3.00 ms, "
        "0.750 (0.500 to 0.800) times the p99 of naive" in body
    )
    assert "<h3>p99 latency, in the same rounds</h3>" in body
    assert "<th>p99 x naive</th>" in body
    assert "<th>offered</th>" in body
    assert "<th>writes/s</th>" not in body
    rows = {row["strategy"]: row for row in read(folder).rows()}
    assert (rows["batched"]["ratio"], rows["batched"]["ratio_of"]) == (0.75, "p99_ms")


def test_what_was_overloaded_has_no_percentiles_and_no_ratio(
    in_open_loop: Path, tmp_path: Path
) -> None:
    def overload_naive(found: dict[str, Any]) -> None:
        carried(found)
        found["overloaded"] = found["strategy"] != "batched"

    folder = with_each(in_open_loop, tmp_path / "over", overload_naive)
    (part,) = read(folder).parts
    naive, batched, _ = part.rows
    assert (naive.overloaded, naive.ratio) == (True, None)
    assert (ratio_of(naive), percentile_of(naive, "p50")) == ("-", "-")
    assert percentile_of(batched) == "3.00"
    latency = chart_of(part, "Latency by percentile")
    assert [line.name for line in latency.figure.data] == ["batched"]
    assert "Overloaded, so without percentiles: naive, naive/again." in latency.said
    body = body_of(folder, tmp_path / "report.html")
    assert "batched had the lowest p99 of those that carried 300 operations/s, 3.00 ms" in body
    assert "100.0\u00a0% overloaded" in body


def test_six_rounds_have_an_interval(closed: Path, tmp_path: Path) -> None:
    def six_rounds(found: dict[str, Any]) -> None:
        found["trials"] *= 3
        for name in ("writes_per_s", "ratio_to_baseline"):
            found[name]["interval"] = [found[name]["min"], found[name]["max"]]
        found["ratio_to_baseline"]["difference"] = False

    folder = with_each(closed, tmp_path / "six", six_rounds)
    (part,) = read(folder).parts
    ratios = chart_of(part, "Writes per second, in the same rounds")
    assert "the median of 6 rounds, with its 95 % interval; ~: no difference" in ratios.said
    assert ratios.numbers[1][1].endswith(" ~")
    body = body_of(folder, tmp_path / "report.html")
    assert "Figures with brackets are the median of 6 rounds, with its 95 % interval." in body


def test_calls_without_an_answer_are_no_calls_within_the_time_limit(
    closed: Path, tmp_path: Path
) -> None:
    def fail(found: dict[str, Any]) -> None:
        if found["strategy"] == "batched":
            limit_us = 5_000_000.001
            found["failed"] = 11
            found["service_us"] |= {
                "p50": 1986.0,
                "p90": limit_us,
                "p99": limit_us,
                "p999": limit_us,
            }

    folder = with_each(closed, tmp_path / "failed", fail)
    (part,) = read(folder).parts
    _, batched, _ = part.rows
    assert percentile_of(batched) == "> 5,000"
    assert max(share for share, _ in batched.percentiles) < 0.9
    said = chart_of(part, "Latency by percentile").said
    assert (
        "More than 1 of 100 calls of batched failed or had no answer; half were answered within "
        "1.99 ms." in said
    )
    assert "5,000" not in said


def test_of_few_calls_the_page_shows_no_percentile_that_has_none_above_it(
    closed: Path, tmp_path: Path
) -> None:
    def few(found: dict[str, Any]) -> None:
        found["service_us"]["count"] = 60

    folder = with_each(closed, tmp_path / "few", few)
    (part,) = read(folder).parts
    for row in part.rows:
        assert percentile_of(row) == "-"
        assert max(share for share, _ in row.percentiles) == 0.9
    said = chart_of(part, "Latency by percentile").said
    assert "Fewer than 100 calls of naive have no 99 %." in said


def test_table_and_chart_have_the_same_percentiles(closed: Path, in_open_loop: Path) -> None:
    for folder in (closed, in_open_loop):
        (part,) = read(folder).parts
        for row in part.rows:
            drawn = dict(row.percentiles)
            assert row.overloaded or drawn[0.5] == row.p50_ms
            assert drawn.get(0.99, row.p99_ms) == row.p99_ms
            assert list(drawn.values()) == sorted(drawn.values())


def test_the_chart_of_a_closed_loop_has_the_calls_that_the_table_counts(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small = [each if each != "0" else "250ms" for each in SMALL]
    assert small[small.index("--warmup") + 1] == "250ms"
    done = run("run", "-s", "naive", "-d", "1s", *small, "--out", str(folder))
    assert done.returncode in MEASURED, done.stderr
    document = json.loads((folder / "run.json").read_text())
    counted = document["result"]["service_us"]["count"]
    answered, failed = _logged([folder], document["settings"])
    assert answered.get_total_count() + failed == counted


def test_what_a_contract_allows_is_counted_and_called_allowed(closed: Path, tmp_path: Path) -> None:
    def allow(found: dict[str, Any]) -> None:
        found["conclusion"] = "passed"
        found["audit"]["declared"] = 1234 if found["strategy"] == "batched" else 0

    folder = with_each(closed, tmp_path / "allowed", allow)
    (part,) = read(folder).parts
    assert [row.audit for row in part.rows] == ["passed", "allowed", "passed"]
    ratios = chart_of(part, "Writes per second, in the same rounds").figure
    assert {point.marker.symbol for point in ratios.data} == {"circle"}
    body = body_of(folder, tmp_path / "report.html")
    assert (
        "The audit found no promise broken. batched broke rules 1,234 times, as their contracts "
        "allow." in body
    )
