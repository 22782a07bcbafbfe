"""hotcount-load on tables that somebody else made: --item-table, --vote-user and the others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hotcount import load

from tests.support.load_generator import run, run_json
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


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def blog(request: pytest.FixtureRequest, tmp_path: Path) -> Blog:
    if request.param == "postgres":
        place: PostgresDatabase = request.getfixturevalue("postgres_database")
        found = Blog(place.url, f"{place.schema}.", place.run, lambda sql: int(place.psql(sql)))
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

        found = Blog(f"sqlite:///{file}", "", script, number)
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
