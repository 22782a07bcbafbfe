"""The demo's page in a real browser: Chromium without a screen, at desktop and phone width."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.demo_page import DemoPage
from tests.support.eventually import eventually

pytestmark = pytest.mark.long


@pytest.fixture
def page(tmp_path: Path) -> Iterator[DemoPage]:
    page = DemoPage(tmp_path)
    yield page
    page.kill()


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_votes_bots_and_audit_show_without_an_error(
    page: DemoPage, tmp_path: Path, width: int, height: int
) -> None:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By

    options = ChromeOptions()
    for argument in ("headless=new", "no-sandbox", f"window-size={width},{height}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with Chrome(options=options, service=Service("/usr/bin/chromedriver")) as browser:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        browser.get(page.url)

        def text(id: str) -> str:
            return str(browser.find_element(By.ID, id).text)

        buttons = browser.find_elements(By.CSS_SELECTOR, "#items button")
        assert [button.text for button in buttons][:2] == ["SQLite", "PostgreSQL"]
        buttons[1].click()
        eventually(lambda: buttons[1].get_attribute("aria-pressed") == "true")
        eventually(lambda: text("rows") == text("told") == "1")
        browser.find_element(By.ID, "bots").click()
        eventually(lambda: text("rows") == text("told") == "1,001")
        eventually(lambda: "votes a second" in text("speed"))
        assert text("verdict") == "Nothing lost, nothing doubled."
        browser.save_screenshot(str(tmp_path / f"{width}.png"))
        buttons[1].click()
        eventually(lambda: buttons[1].get_attribute("aria-pressed") == "false")
        eventually(lambda: text("rows") == "1,000")
        browser.refresh()
        assert text("trouble") == ""
        wide = "return document.documentElement.scrollWidth <= window.innerWidth"
        assert browser.execute_script(wide), "the page scrolls sideways"
        assert browser.get_log("browser") == []
        asked = [
            json.loads(entry["message"])["message"] for entry in browser.get_log("performance")
        ]
        urls = [
            event["params"]["request"]["url"]
            for event in asked
            if event["method"] == "Network.requestWillBeSent"
        ]
        assert urls
        assert all(url.startswith((page.url, "data:")) for url in urls), urls
    assert page.stop()[0] == 0
