"""The page of examples/vote_page.py: votes, live counts, bots, and an audit that can fail."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing

import pytest

from examples.vote_page import MOST_VIEWERS, Told, audit_of
from tests.support.eventually import eventually
from tests.support.vote_page import PROGRAM, VotePage


def test_a_visitor_votes_once_however_often_it_is_sent(page: VotePage) -> None:
    status, headers, html = page.ask("GET", "/")
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert b"http://" not in html, "the page asks nobody else"
    assert b"https://" not in html
    visitor = {"Cookie": headers["Set-Cookie"].split(";")[0]}
    for _ in range(3):
        assert page.post("/vote", {"item": 2, "on": True}, **visitor) == (
            200,
            {"item": 2, "on": True, "count": 1},
        )
    assert json.loads(page.ask("GET", "/mine", **visitor)[2]) == {"items": [2]}
    assert page.post("/vote", {"item": 2, "on": True})[1]["count"] == 2, "somebody else"
    assert page.post("/vote", {"item": 2, "on": False}, **visitor)[1]["count"] == 1
    code, audit = page.stop()
    assert code == 0
    assert audit == {
        "rows": 1, "counted": 1, "told": 1, "under_way": 0, "wrong": "", "ok": True
    }  # fmt: skip


def test_each_window_sees_the_bots_come_and_the_audit_go_on(page: VotePage) -> None:
    with page.states() as first, page.states() as second:
        for window in (first, second):
            assert next(window)["told"] == 0
        assert page.post("/bots", {})[0] == 202
        for window in (first, second):
            for state in window:
                assert state["wrong"] == ""
                if state["botsLeft"] == 0 and state["rows"] == state["told"] == 1000:
                    break
            assert sum(state["counts"].values()) == 1000
            assert state["perSecond"] > 0
    assert page.stop()[1]["rows"] == 1000


def test_a_row_that_vanishes_is_found_and_ends_with_1(page: VotePage) -> None:
    assert page.post("/vote", {"item": 1, "on": True})[0] == 200
    with closing(sqlite3.connect(page.database(), timeout=20)) as thief:
        thief.execute("DELETE FROM vote")
        thief.commit()
    with page.states() as states:
        found = next(state for state in states if state["wrong"])
    assert found["wrong"] == "SQLite: 0 votes, counted 1; 1 lost"
    code, audit = page.stop()
    assert (code, audit["ok"], audit["wrong"]) == (1, False, found["wrong"])


def test_what_is_no_vote_is_refused_and_counts_nothing(page: VotePage) -> None:
    for body in ({"item": 9, "on": True}, {"item": "1", "on": True}, {"item": 1}, {"item": True}):
        assert page.post("/vote", body)[0] == 400
    for garbage in (b"{", b"[1]", b"\xff", b"7"):
        assert page.post("/vote", garbage) == (400, {"error": "the body must be a JSON object"})
    assert page.post("/vote", b"x" * 2000)[0] == 400
    vote = {"item": 1, "on": True}
    assert page.post("/vote", vote, Origin="http://elsewhere.example")[0] == 403
    assert page.post("/vote", vote, Cookie="hotcount_visitor=nothing")[1]["count"] == 1
    assert page.ask("GET", "/../etc/passwd")[0] == 404
    assert page.post("/nothing", {})[0] == 404
    assert page.stop()[1]["rows"] == 1


def test_more_listeners_than_may_are_refused_until_one_leaves(page: VotePage) -> None:
    def admitted() -> bool:
        page.post("/vote", {"item": 1, "on": True})
        with page.events() as response:
            return response.status == 200

    with ExitStack() as stack:
        for _ in range(MOST_VIEWERS):
            assert stack.enter_context(page.events()).status == 200
        assert not admitted()
    eventually(admitted)


def serve_at(where: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PROGRAM, where]
    return subprocess.run(command, capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize("where", ["nowhere", "127.0.0.1:", ":80", "127.0.0.1:99999", "::1:x"])
def test_an_address_that_is_none_is_named(where: str) -> None:
    done = serve_at(where)
    assert done.returncode == 2
    assert f"{where!r} is not HOST:PORT" in done.stderr


def test_an_address_that_is_taken_is_named(page: VotePage) -> None:
    where = f"127.0.0.1:{page.port}"
    done = serve_at(where)
    assert done.returncode == 2
    assert f"{where}: Address already in use" in done.stderr


@pytest.mark.parametrize(
    ("rows", "before", "after", "wrong"),
    [
        (5, Told(5, 5, 5), Told(5, 5, 5), ""),
        (4, Told(5, 5, 5), Told(5, 5, 5), "1 lost"),
        (6, Told(5, 5, 5), Told(5, 5, 5), "1 too many"),
        # One is on its way: it may be there or not, or take one back.
        (5, Told(6, 5, 5), Told(6, 6, 6), ""),
        (6, Told(6, 5, 5), Told(6, 6, 6), ""),
        (4, Told(6, 5, 5), Told(6, 6, 4), ""),
        (7, Told(6, 5, 5), Told(6, 6, 6), "1 too many"),
        # It began after the first look.
        (6, Told(5, 5, 5), Told(6, 5, 5), ""),
        # Nobody knows what became of one: it stays possible.
        (6, Told(6, 5, 5, 0, 1), Told(6, 5, 5, 0, 1), ""),
        (4, Told(6, 5, 5, 0, 1), Told(6, 5, 5, 0, 1), ""),
        (3, Told(6, 5, 5, 0, 1), Told(6, 5, 5, 0, 1), "1 lost"),
    ],
)
def test_the_audit_allows_what_may_be_and_nothing_else(
    rows: int, before: Told, after: Told, wrong: str
) -> None:
    assert audit_of({1: rows}, {1: rows}, before, after).wrong == wrong


def test_a_count_that_is_not_its_rows_is_wrong_though_the_sum_is_right() -> None:
    told = Told(5, 5, 5)
    audit = audit_of({1: 3, 2: 2}, {1: 2, 2: 3}, told, told)
    assert audit.wrong == "SQLite: 3 votes, counted 2; PostgreSQL: 2 votes, counted 3"
