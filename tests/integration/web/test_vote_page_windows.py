"""The demo's page in several windows of one browser, and beside a server that goes and comes."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import chromium
from tests.support.eventually import eventually
from tests.support.vote_page import VotePage

pytestmark = pytest.mark.long

MARKS = (
    "return [...document.querySelectorAll('#items button')]"
    ".map(each => each.getAttribute('aria-pressed') === 'true')"
)
COUNTS = "return [...document.querySelectorAll('#items .number')].map(each => each.textContent)"


def marks(browser: Any) -> list[bool]:
    return list(browser.execute_script(MARKS))


def is_marked(browser: Any, item: int) -> bool:
    return marks(browser)[item]


def counts(browser: Any) -> list[str]:
    return list(browser.execute_script(COUNTS))


def click(browser: Any, item: int) -> None:
    browser.find_elements("css selector", "#items button")[item].click()


def text(browser: Any, id: str) -> str:
    return str(browser.find_element("id", id).text)


def listens(browser: Any) -> bool:
    return bool(browser.execute_script("return events !== null"))


def open_window(browser: Any, page: VotePage) -> str:
    browser.switch_to.new_window("window")
    browser.get(page.url)
    return str(browser.current_window_handle)


# One more than a browser has connections to one host.
def test_seven_windows_vote_and_see_each_other(page: VotePage) -> None:
    with chromium(800, 600) as window:
        browser = window.driver
        browser.get(page.url)
        windows = [browser.current_window_handle]
        windows += [open_window(browser, page) for _ in range(6)]
        for item, handle in enumerate((windows[0], windows[-1])):
            browser.switch_to.window(handle)
            eventually(lambda: text(browser, "verdict") == "Nothing lost, nothing doubled.")
            click(browser, item)
            eventually(partial(is_marked, browser, item))
        # One browser is one voter: each window shows both of its votes.
        listeners = 0
        for handle in windows:
            browser.switch_to.window(handle)
            eventually(lambda: counts(browser)[:2] == ["1", "1"])
            eventually(lambda: marks(browser) == [True, True, False, False, False])
            listeners += listens(browser)
        assert listeners == 1


def test_the_window_that_listened_is_closed_and_another_one_listens(page: VotePage) -> None:
    with chromium(800, 600) as window:
        browser = window.driver
        browser.get(page.url)
        first = browser.current_window_handle
        eventually(lambda: text(browser, "verdict") == "Nothing lost, nothing doubled.")
        second = open_window(browser, page)
        browser.switch_to.window(first)
        browser.close()
        browser.switch_to.window(second)
        assert page.post("/vote", {"item": 3, "on": True})[0] == 200
        eventually(lambda: counts(browser)[2] == "1")


def test_a_window_that_is_hidden_holds_no_connection(page: VotePage) -> None:
    with chromium(800, 600) as window:
        browser = window.driver
        browser.get(page.url)
        eventually(lambda: text(browser, "verdict") == "Nothing lost, nothing doubled.")
        assert listens(browser)
        hide = (
            "Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        browser.execute_script(hide, True)
        assert not listens(browser)
        assert page.post("/vote", {"item": 2, "on": True})[0] == 200
        browser.execute_script(hide, False)
        eventually(lambda: counts(browser)[1] == "1")


def test_a_server_that_starts_anew_takes_marks_and_trouble_away(tmp_path: Path) -> None:
    page = VotePage(tmp_path)
    try:
        with chromium(800, 600) as window:
            browser = window.driver
            browser.get(page.url)
            click(browser, 0)
            eventually(lambda: counts(browser)[0] == "1")
            page.kill()
            eventually(lambda: text(browser, "verdict") == "No connection; trying again.")
            click(browser, 1)
            eventually(lambda: text(browser, "trouble").startswith("The server does not answer."))
            page = VotePage(tmp_path, port=page.port or 0)
            eventually(lambda: text(browser, "trouble") == "")
            eventually(lambda: marks(browser) == [False] * 5)
            eventually(lambda: counts(browser) == ["0"] * 5)
    finally:
        page.kill()


def test_a_server_that_stands_still_is_said_to_be_silent(page: VotePage) -> None:
    with chromium(800, 600) as window:
        browser = window.driver
        browser.get(page.url)
        eventually(lambda: text(browser, "verdict") == "Nothing lost, nothing doubled.")
        page.send(signal.SIGSTOP)
        try:
            click(browser, 2)
            said = "The server does not answer."
            eventually(lambda: text(browser, "trouble").startswith(said), 60)
        finally:
            page.send(signal.SIGCONT)
        # It had the vote all the while.
        eventually(lambda: text(browser, "trouble") == "")
        eventually(lambda: counts(browser)[2] == "1")
        eventually(lambda: marks(browser)[2])
