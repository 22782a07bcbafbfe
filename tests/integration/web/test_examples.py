"""examples/fastapi and examples/flask behind their own servers, with two processes each."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import hotcount
import pytest

from tests.support.browser import chromium
from tests.support.eventually import eventually
from tests.support.programs import end
from tests.support.servers import PostgresDatabase, RedisServer, free_port

ROOT = Path(__file__).resolve().parents[3]
PHONE, DESKTOP = (390, 844), (1280, 900)


@dataclass
class Served:
    port: int
    log: Path
    process: subprocess.Popen[bytes]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> Any:
        """The status, and the JSON or the headers of the response."""
        with closing(self.connect()) as connection:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, names)
            response = connection.getresponse()
            text = response.read()
            is_json = response.headers["Content-Type"] == "application/json"
            return response.status, json.loads(text) if is_json else dict(response.headers)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return int(self.ask("GET", "/")[0]) < 500
        except OSError:
            return False


@contextmanager
def serve(folder: Path, program: str, *options: str, **environment: str) -> Iterator[Served]:
    port, log = free_port(), folder / "server.log"
    bind = ("--bind", f"127.0.0.1:{port}") if program == "gunicorn" else ("--port", str(port))
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", program, "--workers", "2", *bind, *options, "app:app"],
            cwd=folder,
            env=os.environ | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        served = Served(port, log, process)
        eventually(served.answers, 60)
        yield served
    finally:
        end(process)


def uvicorn(folder: Path, database: str) -> Any:
    where = str(ROOT / "examples/fastapi")
    options = ("--app-dir", where, "--timeout-graceful-shutdown", "1")
    return serve(folder, "uvicorn", *options, DATABASE=database)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def likes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    if request.param == "sqlite":
        url = "sqlite:///likes.db"
    else:
        database: PostgresDatabase = request.getfixturevalue("postgres_database")
        url = database.url
    with uvicorn(tmp_path, url) as served:
        yield served


def test_a_like_counts_once_and_reaches_every_viewer(likes: Served) -> None:
    with closing(likes.connect()) as viewer, closing(likes.connect()) as other:
        streams = []
        for connection in (viewer, other):
            connection.request("GET", "/events")
            streams.append(connection.getresponse())
        visitors = [f"visitor={uuid.uuid4().hex}" for _ in range(20)]
        with ThreadPoolExecutor(8) as pool:
            work = [pool.submit(likes.ask, "PUT", "/likes/2", Cookie=each) for each in visitors * 3]
            told = [each.result() for each in work]
        assert {status for status, _ in told} == {200}
        assert sum(cast["changed"] for _, cast in told) == 20
        told_counts = [cast["count"]["value"] for _, cast in told]
        assert (min(told_counts) >= 1, max(told_counts)) == (True, 20)
        taken_back = likes.ask("DELETE", "/likes/2", Cookie=visitors[0])[1]
        assert (taken_back["counted"], taken_back["count"]["value"]) == (False, 19)
        for stream in streams:
            lines = (line for line in stream if line.startswith(b"data: "))
            states = (json.loads(line[6:]) for line in lines)
            final = next(state for state in states if state["2"] == 19)
            assert final == {"1": 0, "2": 19, "3": 0, "4": 0, "5": 0}
    mine = {
        name: name == "PostgreSQL" for name in likes.ask("GET", "/likes", Cookie=visitors[1])[1]
    }
    assert likes.ask("GET", "/likes", Cookie=visitors[1])[1] == mine


def test_what_is_no_like_is_refused_and_counts_nothing(likes: Served) -> None:
    visitor = likes.ask("GET", "/")[1]["set-cookie"].split(";")[0]
    for path, cookie in (("/likes/9", visitor), ("/likes/x", visitor), ("/likes/1", "visitor=x")):
        assert likes.ask("PUT", path, Cookie=cookie)[0] == 422
    assert likes.ask("PUT", "/likes/1")[0] == 422
    assert set(likes.ask("GET", "/likes", Cookie=visitor)[1].values()) == {False}


@pytest.mark.long
@pytest.mark.parametrize(("width", "height"), [DESKTOP, PHONE])
def test_the_page_shows_likes_in_every_window(tmp_path: Path, width: int, height: int) -> None:
    with chromium(width, height) as window:
        browser = window.driver

        def shown() -> list[tuple[str, bool]]:
            script = (
                "return [...document.querySelectorAll('button')].map(each => "
                "[each.lastChild.textContent, each.getAttribute('aria-pressed') === 'true'])"
            )
            return [(count, pressed) for count, pressed in browser.execute_script(script)]

        def trouble() -> str:
            return str(browser.find_element("id", "trouble").text)

        def click(item: int) -> None:
            browser.find_elements("css selector", "button")[item].click()

        with uvicorn(tmp_path, "sqlite:///likes.db") as served:
            url = f"http://127.0.0.1:{served.port}/"
            browser.get(url)
            eventually(lambda: shown() == [("0", False)] * 5)
            # The answer to the click has the count, too.
            browser.execute_script("events.close()")
            click(1)
            eventually(lambda: shown()[1] == ("1", True))
            first = browser.current_window_handle
            browser.switch_to.new_window("window")
            browser.get(url)
            eventually(lambda: shown()[:2] == [("0", False), ("1", True)])
            click(0)
            eventually(lambda: shown()[0] == ("1", True))
            browser.switch_to.window(first)
            eventually(lambda: shown()[:2] == [("1", True), ("1", True)])
            click(1)
            eventually(lambda: shown()[1] == ("0", False))
            browser.save_screenshot(str(tmp_path / f"{width}.png"))
            assert trouble() == ""
            window.check(url)
        eventually(lambda: trouble() == "No connection; trying again.")
        click(2)
        eventually(lambda: trouble().startswith("The server does not answer."))


@pytest.fixture
def plans(tmp_path: Path, own_redis: RedisServer) -> Iterator[Served]:
    where = str(ROOT / "examples/flask")
    options = ("--no-control-socket", "--threads", "4", "--chdir", where)
    with serve(tmp_path, "gunicorn", *options, STORE=own_redis.url) as served:
        yield served


FORM = {"Content_Type": "application/x-www-form-urlencoded"}


def generate(plans: Served, key: str) -> tuple[int, Any]:
    body = urlencode({"prompt": "hello"})
    return plans.ask("POST", "/generate", body, X_Api_Key=key, **FORM)  # type: ignore[no-any-return]


def test_plans_have_their_own_rates_and_budgets(plans: Served) -> None:
    assert generate(plans, "nobody's")[0] == 401
    with ThreadPoolExecutor(8) as pool:
        free = list(pool.map(lambda _: generate(plans, "free-key"), range(16)))
        pro = list(pool.map(lambda _: generate(plans, "pro-key"), range(16)))
    assert {status for status, _ in pro} == {200}
    served = [answer for status, answer in free if status == 200]
    refused = [answer for status, answer in free if status == 429]
    # Ten requests a minute at most, and of those no more at once than the budget has room for.
    assert 1 <= len(served) <= 10
    assert len(served) + len(refused) == 16
    used = sum(answer["used"] for answer in served)
    assert used <= 2000
    for key, spent, limit in (
        ("free-key", used, 2000),
        ("pro-key", sum(answer["used"] for _, answer in pro), 1_000_000),
    ):
        status, decision = plans.ask("GET", "/usage", X_Api_Key=key)
        assert (status, decision["limit"], decision["remaining"]) == (200, limit, limit - spent)


def test_a_spent_budget_is_a_429_with_the_headers_of_limits(
    plans: Served, own_redis: RedisServer
) -> None:
    with own_redis.redis() as store:
        budget = hotcount.Limiter(store, "1/day", name="tokens", algorithm="fixed_window")
        assert budget.hit("free-key", 1900, rate="2000/day")
    with closing(plans.connect()) as connection:
        body = urlencode({"prompt": "hello"})
        headers = {"X-Api-Key": "free-key", "Content-Type": FORM["Content_Type"]}
        connection.request("POST", "/generate", body, headers)
        response = connection.getresponse()
        assert response.status == 429
        assert response.headers["RateLimit-Policy"].startswith('"tokens";q=2000')
        assert int(response.headers["Retry-After"]) > 0
    assert plans.ask("GET", "/usage", X_Api_Key="free-key")[1]["remaining"] == 100
