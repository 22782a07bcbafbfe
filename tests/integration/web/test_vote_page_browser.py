"""The demo's page in a real browser: Chromium without a screen, at desktop and phone width."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import chromium
from tests.support.eventually import eventually
from tests.support.vote_page import VotePage

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_votes_bots_and_audit_show_without_an_error(
    page: VotePage, tmp_path: Path, width: int, height: int
) -> None:
    with chromium(width, height) as window:
        browser = window.driver
        browser.get(page.url)

        def text(id: str) -> str:
            return str(browser.find_element("id", id).text)

        buttons = browser.find_elements("css selector", "#items button")
        assert [button.text for button in buttons][:2] == ["SQLite", "PostgreSQL"]
        buttons[1].click()
        eventually(lambda: buttons[1].get_attribute("aria-pressed") == "true")
        eventually(lambda: text("rows") == text("told") == "1")
        browser.find_element("id", "bots").click()
        eventually(lambda: text("rows") == text("told") == "1,001")
        eventually(lambda: "votes a second" in text("speed"))
        assert text("verdict") == "Nothing lost, nothing doubled."
        browser.save_screenshot(str(tmp_path / f"{width}.png"))
        buttons[1].click()
        eventually(lambda: buttons[1].get_attribute("aria-pressed") == "false")
        eventually(lambda: text("rows") == "1,000")
        browser.refresh()
        assert text("trouble") == ""
        window.check(page.url)
    assert page.stop()[0] == 0
