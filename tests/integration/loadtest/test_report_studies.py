"""What the pages of `search`, `sweep` and `scale` say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hotcount.report import Chart, read

from tests.support import load_generator
from tests.support.load_generator import SMALL
from tests.support.report_page import MEASURED, body_of, changed


def study(folder: Path, command: str, *arguments: str) -> Path:
    options = ("--workload", "counters", "-s", "memory", *SMALL, "--out", str(folder))
    done = load_generator.study(command, *options, *arguments)
    assert done.returncode in MEASURED, done.stderr
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "--slo", "max<10s", "--from", "500", "--max-time", "1s", "-d", "100ms"),
        ("sweep", "--rates", "500", "-d", "100ms"),
        ("scale", "-w", "1,2,4", "--rounds", "1", "-d", "100ms"),
    ],
    ids=["search", "sweep", "scale"],
)
def test_a_study_that_is_not_kept_ends_with_its_page(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    quiet = ("--warmup", "0", "--progress", "none", "--items", "200")
    done = load_generator.study(*arguments, "-s", "memory", *quiet, "--html", str(page))
    assert done.returncode in MEASURED, done.stderr
    assert done.stderr == ""
    assert 'role="img"' in page.read_text(encoding="utf-8").partition("<body>")[2]
    assert list(tmp_path.iterdir()) == [page]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep") / "swept"
    return study(folder, "sweep", "--rates", "1000,2000,4000", "-d", "100ms")


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale") / "scaled"
    return study(folder, "scale", "--rounds", "2", "-d", "50ms", "-w", "1,3,7")


def only_chart(folder: Path) -> Chart:
    (chart,) = read(folder).charts()
    return chart


def searched(swept: Path, to: Path, **found: Any) -> Path:
    """What a search that tried the same rates would have said."""
    (one,) = json.loads((swept / "sweep.json").read_text())["strategies"]
    for trial, held in zip(one["trials"], (True, False, False), strict=True):
        rate = trial["settings"]["rate_per_s"]
        trial |= {"rate_per_s": rate, "held": held, "misses": [], "conclusion": "passed"}
    one |= {"rate_per_s": 1000.0, "refused_per_s": 2000.0, "limit": "p99<2ms: 11.2 ms",
            "elapsed_s": 1.0, "conclusion": "passed", "reasons": []}  # fmt: skip
    one |= found
    folder = changed(
        swept, to, "sweep.json",
        kind="search", slo="p99<2ms,err<0.1%,lost=0", strategies=[one], conclusion="passed",
    )  # fmt: skip
    (folder / "sweep.json").rename(folder / "search.json")
    return folder


def test_a_page_of_a_study_has_load_place_audit_and_meaning(
    swept: Path, scaled: Path, tmp_path: Path
) -> None:
    for folder, loop in ((swept, "open loop, 1,000 to 4,000 operations/s"),
                         (scaled, "closed loop, 1 to 7 callers")):  # fmt: skip
        body = body_of(folder, tmp_path / f"{folder.name}.html")
        assert f"counters: {loop}" in body
        assert "this process&#x27;s memory" in body
        assert "The audit found every promise kept" in body
        assert "<h3>What an acknowledgement means</h3><ul><li><b>memory</b>: when answered" in body
        for raw in ("rate_per_s", "ok_per_s", "without_an_answer", "writes_per_s"):
            assert f"<th>{raw}</th>" not in body
    titles = [only_chart(folder).title for folder in (swept, scaled)]
    assert titles == ["Latency against the rate", "Throughput against callers"]


def test_a_search_says_what_was_asked_and_what_the_next_rate_misses(
    swept: Path, tmp_path: Path
) -> None:
    folder = searched(swept, tmp_path / "searched")
    body = body_of(folder, tmp_path / "report.html")
    assert "Asked for: p99&lt;2ms,err&lt;0.1%,lost=0." in body
    assert "memory carries 1,000 calls/s; at 2,000 it misses p99&lt;2ms: 11.2 ms." in body
    assert "<th>held what was asked for</th>" in body
    chart = only_chart(folder)
    ticks = chart.figure.layout.xaxis.ticktext
    assert {"1,000", "2,000", "3,000", "4,000"} <= set(ticks)
    assert [line.y0 for line in chart.figure.layout.shapes] == [2]


def test_a_search_that_confirmed_nothing_says_why(swept: Path, tmp_path: Path) -> None:
    why = ["--max-time 40s was over before a rate was confirmed; 0 held once"]
    folder = searched(swept, tmp_path / "searched", rate_per_s=0.0, reasons=why)
    body = body_of(folder, tmp_path / "report.html")
    assert "memory: no rate was confirmed; at 2,000 it misses p99&lt;2ms: 11.2 ms." in body
    assert f"memory: {why[0]}." in body


def test_a_sweep_says_which_rate_was_carried_and_which_was_not(swept: Path, tmp_path: Path) -> None:
    (one,) = json.loads((swept / "sweep.json").read_text())["strategies"]
    for trial, conclusion in zip(one["trials"], ("passed", "passed", "inconclusive"), strict=True):
        trial |= {"conclusion": conclusion, "reasons": []}
        trial["result"]["response_us"]["p99"] = 12_400.0
    one["trials"][2]["reasons"] = ["overloaded: 95.9 % of the schedule was offered"]
    folder = changed(swept, tmp_path / "swept", "sweep.json", strategies=[one])
    body = body_of(folder, tmp_path / "report.html")
    assert "memory carried 2,000 calls/s; p99 there, in ms: 12.4." in body
    assert "memory at 4,000 calls/s: overloaded: 95.9 % of the schedule was offered." in body
    assert "<td>4,000</td></tr>" in body, "the lowest rate that was not carried"


def test_a_scale_has_its_law_in_numbers_and_ticks_where_it_measured(
    scaled: Path, tmp_path: Path
) -> None:
    (one,) = json.loads((scaled / "scale.json").read_text())["strategies"]
    law = {"lambda_per_s": 582.0, "sigma": 0.05, "sigma_interval": {"low": 0.0, "high": 0.122},
           "kappa": 0.0223, "kappa_interval": None, "peak_callers": 6.7,
           "peak_interval": None}  # fmt: skip
    without = law | {"peak_callers": None, "no_peak_because": "these rounds do not say where it is"}
    other = {**one, "strategy": "memory/ttl", "law": without}
    folder = changed(scaled, tmp_path / "s", "scale.json", strategies=[one | {"law": law}, other])
    chart = only_chart(folder)
    assert chart.figure.layout.xaxis.ticktext == ("1", "3", "7")
    assert chart.said.startswith("The median of 2 rounds, from the least to the most")
    measured, fitted, _, its_fitted = chart.figure.data
    assert fitted.line.color == measured.marker.color != its_fitted.line.color
    body = body_of(folder, tmp_path / "report.html")
    assert "<td>0.0500 (0\u00a0to\u00a00.122)</td><td>0.0223</td><td>6.70</td>" in body
    assert "memory is fastest with 6.70 callers, by the fitted law:" in body
    assert "memory/ttl has no peak: these rounds do not say where it is." in body


def test_an_audit_that_found_something_is_said_of_a_study(swept: Path, tmp_path: Path) -> None:
    (one,) = json.loads((swept / "sweep.json").read_text())["strategies"]
    one["trials"][1]["audit"]["passed"] = False
    folder = changed(swept, tmp_path / "swept", "sweep.json", strategies=[one])
    body = body_of(folder, tmp_path / "report.html")
    assert "The audit found a broken promise of memory." in body
    assert "<span class=broken>broken</span>" in body
