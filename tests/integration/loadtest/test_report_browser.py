"""The page of `hotcount report` in Chromium, at desktop and phone width."""

from __future__ import annotations

from pathlib import Path

import pytest
from hotcount.cli import main

from tests.support.browser import chromium
from tests.support.load_generator import SMALL, run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    runs = folder / "run"
    done = run("run", "-s", "batched", "-r", "1k", "-d", "2s", *SMALL, "--out", str(runs))
    assert done.returncode in (0, 3), done.stderr
    compared = folder / "compared"
    few = ("-s", "naive,slotted,batched", "--rounds", "2", "-d", "300ms")
    assert run("compare", *few, *SMALL, "--out", str(compared)).returncode in (0, 3)
    assert main(["report", str(runs), str(compared), "-o", str(folder / "report.html")]) == 0
    return folder / "report.html"


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_the_report_draws_all_charts_without_a_request(
    page: Path, width: int, height: int, tmp_path: Path
) -> None:
    with chromium(width, height) as window:
        window.driver.get(page.as_uri())
        drawn = window.driver.find_elements("css selector", "[role=img] .main-svg")
        assert len({svg.find_element("xpath", "ancestor::*[@role='img']").id for svg in drawn}) == 4
        for chart in window.driver.find_elements("css selector", "[role=img]"):
            assert chart.get_attribute("aria-label")
            assert chart.size["width"] <= width
        assert not window.driver.find_elements("css selector", ".modebar")
        cut = (
            "return [...document.querySelectorAll('.table')]"
            ".filter(each => each.scrollWidth > each.clientWidth).length"
        )
        assert width < 500 or window.driver.execute_script(cut) == 0
        window.check(page.as_uri())
        window.driver.save_screenshot(str(tmp_path / f"{width}.png"))
