"""hotcount-load on tables that somebody else made: --item-table, --vote-user and the others."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hotcount import load

from tests.support.load_generator import program, run, run_json
from tests.support.servers import PostgresDatabase

# Keys with gaps, columns that the load knows nothing of, and a foreign key to the users.
SCHEMA = """
CREATE TABLE member (member_id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE post (post_id INTEGER PRIMARY KEY, title TEXT NOT NULL,
                   likes INTEGER NOT NULL DEFAULT 0);
CREATE TABLE post_like (post_id INTEGER NOT NULL REFERENCES post,
                        member_id INTEGER NOT NULL REFERENCES member,
                        liked INTEGER NOT NULL, liked_before INTEGER NOT NULL DEFAULT 0,
                        revision INTEGER, PRIMARY KEY (post_id, member_id));
"""
POSTS, MEMBERS = 30, 200
POSTS_SQL = ",".join(f"({7 * number}, 'post {number}', 0)" for number in range(1, POSTS + 1))
MEMBERS_SQL = ",".join(f"({number}, 'm')" for number in range(1, MEMBERS + 1))
SCHEMA += f"INSERT INTO post VALUES {POSTS_SQL}; INSERT INTO member VALUES {MEMBERS_SQL};"

LOAD = ["-d", "1s", "--warmup", "0", "-w", "4", "--progress", "none"]
MANY = ["--items", str(POSTS), "--users", str(MEMBERS)]


@dataclass(frozen=True)
class Blog:
    """Somebody's database."""

    url: str
    schema: str  # Before the tables' names.
    script: Callable[[str], None]
    number: Callable[[str], int]
    beside: str  # Counts hotcount's tables.

    @property
    def options(self) -> list[str]:
        tables = [f"--item-table={self.schema}post", f"--vote-table={self.schema}post_like"]
        columns = ["--item-id=post_id", "--item-count=likes", "--vote-item=post_id"]
        more = ["--vote-user=member_id", "--vote-value=liked", "--vote-previous=liked_before"]
        return [f"--db={self.url}", *tables, *columns, *more, "--vote-version=revision"]

    def is_as_it_was(self) -> None:
        assert self.number("SELECT COUNT(*) FROM post_like") == 0
        assert self.number("SELECT COUNT(*) FROM post WHERE likes <> 0") == 0
        assert self.number("SELECT COUNT(*) FROM post WHERE title LIKE 'post %'") == POSTS
        assert self.number(self.beside) == 0

    def wait_for_votes(self) -> None:
        until = time.monotonic() + 30
        while self.number("SELECT COUNT(*) FROM post_like") == 0:
            assert time.monotonic() < until, "nobody votes"
            time.sleep(0.05)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def blog(request: pytest.FixtureRequest, tmp_path: Path) -> Blog:
    if request.param == "postgres":
        place: PostgresDatabase = request.getfixturevalue("postgres_database")
        beside = (
            f"SELECT COUNT(*) FROM pg_class WHERE relnamespace = '{place.schema}'::regnamespace "
            "AND relkind IN ('r', 'v') AND relname LIKE 'post_like_%'"
        )
        found = Blog(
            place.url, f"{place.schema}.", place.run, lambda sql: int(place.psql(sql)), beside
        )
    else:
        file = tmp_path / "blog.db"

        def script(sql: str) -> None:
            with sqlite3.connect(file) as database:
                database.executescript(sql)
            database.close()

        def number(sql: str) -> int:
            with sqlite3.connect(file) as database:
                count = int(database.execute(sql).fetchone()[0])
            database.close()
            return count

        beside = (
            "SELECT COUNT(*) FROM sqlite_master WHERE type IN ('table', 'view') "
            "AND name LIKE 'post_like_%'"
        )
        found = Blog(f"sqlite:///{file}", "", script, number, beside)
    found.script(SCHEMA)
    return found


def test_a_run_votes_on_rows_that_are_there_and_takes_its_votes_out_again(blog: Blog) -> None:
    for strategy in ("batched", "naive"):
        code, document = run_json("run", "-s", strategy, *blog.options, *MANY, *LOAD)
        assert code in {0, 3}, document["reasons"]
        audit = document["audit"]
        assert audit["passed"]
        assert audit["rows"] > 0
        assert audit["items"] == POSTS
        assert audit["reads"]["checked"] > 0
        assert document["settings"]["tables"]["vote-user"] == "member_id"
        blog.is_as_it_was()


def test_a_comparison_has_each_round_on_the_same_tables(blog: Blog) -> None:
    pairs = (option.removeprefix("--").split("=", 1) for option in blog.options)
    options: dict[str, Any] = {name.replace("-", "_"): value for name, value in pairs}
    frame = load.compare(
        ["naive", "batched"], rounds=2, duration=0.2, warmup=0, workers=4, no_best=True,
        items=POSTS, users=MEMBERS, **options,
    )  # fmt: skip
    assert list(frame.strategy) == ["naive", "batched", "naive/again"]
    assert set(frame.verdict) <= {"passed", "inconclusive"}, frame.reasons
    assert list(frame.lost) == list(frame.doubled) == [0, 0, 0]
    blog.is_as_it_was()


def test_votes_of_somebody_else_are_never_touched(blog: Blog) -> None:
    blog.script("INSERT INTO post_like VALUES (7, 1, 1, 0, NULL); UPDATE post SET likes = 1 "
                "WHERE post_id = 7")  # fmt: skip
    done = run("run", *blog.options, *MANY, *LOAD)
    assert done.returncode == 2
    assert "post_like" in done.stderr
    assert "holds 1 votes already" in done.stderr
    assert "empty the table" in done.stderr
    assert blog.number("SELECT SUM(likes) FROM post") == 1
    assert blog.number("SELECT COUNT(*) FROM post_like") == 1


def test_fewer_rows_than_items_names_the_option(blog: Blog) -> None:
    done = run("run", *blog.options, "--items", str(POSTS + 1), *LOAD)
    assert done.returncode == 2
    assert f"take --items {POSTS}" in done.stderr


def test_an_item_table_without_rows_asks_for_items(blog: Blog) -> None:
    blog.script("DELETE FROM post")
    done = run("run", *blog.options, *MANY, *LOAD)
    assert done.returncode == 2
    assert "has no rows: insert the items" in done.stderr


@pytest.mark.parametrize("option", ["--item-table", "--vote-table"])
def test_a_table_that_is_not_there_is_not_made(blog: Blog, option: str) -> None:
    done = run("run", *blog.options, f"{option}={blog.schema}post_like_typo", *MANY, *LOAD)
    assert done.returncode == 2
    assert option in done.stderr
    assert "post_like_typo" in done.stderr
    blog.is_as_it_was()


def test_a_name_that_has_a_dot_stands_in_quotation_marks(blog: Blog) -> None:
    blog.script('ALTER TABLE post_like RENAME TO "post.like"')
    named = f'--vote-table={blog.schema}"post.like"'
    code, document = run_json("run", *blog.options, named, *MANY, *LOAD)
    assert code in {0, 3}, document["reasons"]
    assert document["audit"]["passed"]
    assert document["audit"]["rows"] > 0
    blog.script('ALTER TABLE "post.like" RENAME TO post_like')
    blog.is_as_it_was()


def test_rows_that_come_meanwhile_stay_and_are_counted(blog: Blog) -> None:
    options = [*blog.options, *MANY, "--items", "20", *LOAD, "-d", "3s"]
    process = subprocess.Popen([program(), "run", *options], stdout=subprocess.DEVNULL)
    blog.wait_for_votes()
    blog.script(f"INSERT INTO member VALUES ({MEMBERS + 1}, 'm')")
    blog.script(f"INSERT INTO post_like VALUES ({7 * POSTS}, 1, 1, 0, NULL), "
                f"(7, {MEMBERS + 1}, 1, 0, NULL)")  # fmt: skip
    # The audit calls a vote that it does not know on one of its items a ghost.
    assert process.wait(60) == 1
    assert blog.number("SELECT COUNT(*) FROM post_like") == 2
    assert blog.number(f"SELECT SUM(likes) FROM post WHERE post_id IN (7, {7 * POSTS})") == 2
    assert blog.number("SELECT SUM(likes) FROM post") == 2
    assert blog.number(blog.beside) == 0


def test_ctrl_c_in_python_takes_the_votes_out_again(blog: Blog) -> None:
    pairs = (option.removeprefix("--").split("=", 1) for option in blog.options)
    options = {name.replace("-", "_"): value for name, value in pairs}
    call = f"load.run(duration=60, workers=4, items={POSTS}, users={MEMBERS}, **{options!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", f"from hotcount import load; {call}"], stderr=subprocess.PIPE
    )
    blog.wait_for_votes()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in told
    blog.is_as_it_was()
