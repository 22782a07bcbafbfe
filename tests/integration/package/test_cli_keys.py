"""hotcount get, peek, reset, top and block, on real servers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount._keys import EXAMPLES
from hotcount.cli import main

from tests.support.commands import run
from tests.support.programs import run_python
from tests.support.servers import RedisServer

RATE = ("--rate", "5/hour", "--name", "api")


@pytest.fixture
def redis(own_redis: RedisServer) -> Iterator[hotcount.Redis]:
    with own_redis.redis(timeout=20) as redis:
        yield redis


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A database with votes on items 7 and 8, and a slotted counter."""
    url = f"sqlite:///{tmp_path}/votes.db"
    make_counts(url)
    return url


def make_counts(url: str) -> None:
    with hotcount.Votes(url, missing_items="create") as votes:
        votes.create_tables()
        for user in range(3):
            votes.cast(7, user)
        votes.cast(8, 1, -1)
    with hotcount.SlottedCounter(url) as slots:
        slots.create_table()
        slots.add("home", 1234)


def said(*arguments: str) -> str:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def said_json(*arguments: str) -> Any:
    return json.loads(said(*arguments, "--json"))


def exit_code(*arguments: str) -> int | str | None:
    """Of the command, in this process."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code


def test_counters_are_read_and_reset(own_redis: RedisServer, redis: hotcount.Redis) -> None:
    likes = hotcount.Counter(redis)
    likes.add("photo:42", 1234567)
    hotcount.Counter(redis, "").add("whole:key", 5)
    hotcount.Counter(own_redis.redis(prefix="app:"), "hits").add("page", 7)
    url = own_redis.url
    assert said("get", url, "photo:42", "a\nb") == "photo:42: 1,234,567\na\\nb: 0\n"
    assert said_json("get", url, "photo:42", "none") == {
        "counts": [{"key": "photo:42", "value": 1234567}, {"key": "none", "value": 0}]
    }
    assert said("get", url, "--prefix", "", "whole:key") == "whole:key: 5\n"
    assert said("get", url, "--store-prefix", "app:", "--prefix", "hits", "page") == "page: 7\n"
    assert said("reset", url, "photo:42", "none") == "photo:42: was 1,234,567\nnone: was 0\n"
    assert likes.get("photo:42") == 0
    likes.add("photo:42", 2)
    assert said_json("reset", url, "photo:42") == {"before": [{"key": "photo:42", "value": 2}]}


def test_votes_and_slots_are_read(file: str) -> None:
    assert said("get", file, "7", "8", "9") == "7: 3\n8: -1\n9: 0\n"
    first = said_json("get", file, "7", "--exact")["counts"][0]
    assert (first["item"], first["value"], first["exact"], first["source"]) == (7, 3, True, "sql")
    assert said("get", file, "--slots", "home", "none") == "home: 1,234\nnone: 0\n"
    assert said("get", file, "--slots", "none", "home", "none").splitlines()[0::2] == 2 * [
        "none: 0"
    ]
    assert said("reset", file, "--slots", "home") == "home: was 1,234\n"
    assert said("get", file, "--slots", "--table", "hotcount_slot", "home") == "home: 0\n"


def test_an_item_of_odd_characters_is_one_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/votes.db"
    with hotcount.Votes(url, missing_items="create", item_type=str) as votes:
        votes.create_tables()
        votes.cast("a\x1b\nb", 1)
    assert said("get", url, "a\x1b\nb", "--item-type", "str") == "a\\x1b\\nb: 1\n"


def test_counts_in_a_cache_are_those_of_the_cache(own_redis: RedisServer, file: str) -> None:
    names: Any = {"item_table": "post", "vote_table": "likes", "missing_items": "create"}
    with hotcount.Votes(file, own_redis.url, "cached", **names) as votes:
        votes.create_tables()
        votes.cast(7, 1)
    options = ("--cache", own_redis.url, "--item-table", "post", "--vote-table", "likes")
    (count,) = said_json("get", file, "7", *options)["counts"]
    assert (count["value"], count["source"]) == (1, "cache")
    (count,) = said_json("get", file, "7", "--exact", *options)["counts"]
    assert (count["value"], count["source"]) == (1, "sql")


def test_a_key_that_fails_hides_no_other(own_redis: RedisServer, redis: hotcount.Redis) -> None:
    url, likes = own_redis.url, hotcount.Counter(redis)
    likes.add_many({"first": 5, "last": 7})
    redis.execute("RPUSH", "count:list", "x")
    done = run("get", url, "first", "list", "last")
    assert (done.returncode, done.stdout) == (3, "first: 5\nlast: 7\n")
    assert "hotcount get: list: " in done.stderr
    assert "WRONGTYPE" in done.stderr
    # What the first was is known nowhere else by then.
    done = run("reset", url, "first", "list", "last", "more", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (
        3,
        {"before": [{"key": "first", "value": 5}]},
    )
    assert "hotcount reset: list: " in done.stderr
    assert done.stderr.endswith("; not tried: last, more\n")
    assert likes.get("last") == 7


def test_keys_may_be_bytes_that_are_no_text(own_redis: RedisServer, redis: hotcount.Redis) -> None:
    url = own_redis.url
    hotcount.Counter(redis).add(b"\xff", 3)
    hotcount.LiveSets(redis).create(b"\xff", 60, [("a", 1)])
    given = "\udcff"  # As Python has it of the command line.
    assert said("get", url, given) == "\\xff: 3\n"
    assert said_json("get", url, given) == {"counts": [{"key": "\\xff", "value": 3}]}
    assert said("top", url, given) == "1 a\n"
    assert said_json("block", url, given, *RATE, "--seconds", "60")["blocked"] == ["\\xff"]
    assert said_json("peek", url, given, *RATE)["keys"][0]["reason"] == "blocked"


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["output", "locale"],
)
def test_a_key_is_the_same_where_the_locale_has_ascii_alone(
    environment: dict[str, str], own_redis: RedisServer, redis: hotcount.Redis
) -> None:
    hotcount.Counter(redis).add("ключ", 3)
    command = ("-m", "hotcount", "get", own_redis.url, "ключ")
    done = run_python(*command, env={**os.environ, **environment})
    assert (done.stderr, done.stdout) == ("", "\\u043a\\u043b\\u044e\\u0447: 3\n")


@pytest.mark.parametrize("where", ["redis", "database"])
def test_a_limiters_keys_are_looked_at_blocked_and_reset(
    where: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    url = own_redis.url if where == "redis" else f"sqlite:///{tmp_path}/limits.db"
    with hotcount.Limiter(url, "5/hour", name="api") as limiter:
        limiter.create_table()
        for _ in range(5):
            limiter.hit("user:7")
        (full, fresh) = said("peek", url, "user:7", "user:8", *RATE).splitlines()
        assert full.startswith("user:7: limited, 0 of 5 left, again in ")
        assert fresh.startswith("user:8: allowed, 5 of 5 left, full again in 0.000 s")
        found = said_json("peek", url, "user:7", *RATE)["keys"][0]
        assert (found["key"], found["allowed"], found["violated"]) == ("user:7", False, ["5/hour"])
        assert said("reset", url, "user:7", *RATE) == "user:7: forgotten\n"
        assert limiter.peek("user:7").remaining == 5
        blocking = ("block", url, "user:7", *RATE, "--seconds", "60")
        assert said(*blocking) == "user:7: blocked for 60 s\n"
        assert limiter.peek("user:7").reason == "blocked"
        assert "blocked" in said("peek", url, "user:7", *RATE)
        assert said_json(*blocking) == {"blocked": ["user:7"], "seconds": 60}
        assert said_json("reset", url, "user:7", *RATE) == {"reset": ["user:7"]}
        assert limiter.peek("user:7").allowed
        limiter.hit(("GET /", "1.2.3.4"))
        several = said("peek", url, "--tuple", "GET /", "1.2.3.4", *RATE)
        assert several.startswith("GET / 1.2.3.4: allowed, 4 of 5 left")


def test_algorithm_and_alignment_name_another_state(own_redis: RedisServer) -> None:
    url = own_redis.url
    with hotcount.Limiter(url, "5/hour", algorithm="fixed_window", align="first") as limiter:
        limiter.hit("k", 5)
    window = ("--rate", "5/hour", "--algorithm", "fixed_window")
    assert "limited" in said("peek", url, "k", *window, "--align", "first")
    assert "5 of 5 left" in said("peek", url, "k", *window)


def test_the_top_of_a_set(own_redis: RedisServer, redis: hotcount.Redis) -> None:
    sets = hotcount.LiveSets(redis)
    sets.create("feed:7", 60, [("a", 1), ("b", 2.5), (b"\xff\n", 3)])
    assert said("top", own_redis.url, "feed:7", "-n", "2") == "3 \\xff\\n\n2.5 b\n"
    assert said_json("top", own_redis.url, "feed:7")["members"][1:] == [
        {"member": "b", "score": 2.5},
        {"member": "a", "score": 1.0},
    ]
    assert said("top", own_redis.url, "none") == ""
    assert said_json("top", own_redis.url, "none") == {"members": []}
    scores = [("a", float("-inf")), ("b", 1700000001.0), ("c", 1700000001.25), ("d", float("inf"))]
    sets.create("feed:8", 60, scores)
    times = said("top", own_redis.url, "feed:8")
    assert times == "inf d\n1700000001.25 c\n1700000001 b\n-inf a\n"
    done = run("top", own_redis.url, "feed:8", "--json")
    members = json.loads(done.stdout, parse_constant=pytest.fail)["members"]
    assert [each["score"] for each in members] == ["inf", 1700000001.25, 1700000001, "-inf"]


def test_bad_usage_is_told_before_anything_is_done(
    own_redis: RedisServer, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = own_redis.url
    for arguments, says in (
        (["get", "memory://", "k"], "a store in memory is of one process"),
        (["get", url], "KEY"),
        (["get", url, "k", "--slots"], "--slots is of a database"),
        (["get", file, "seven"], "ITEM is not of --item-type int"),
        (["get", file, "7", "--store-prefix", "x"], "--store-prefix is of Redis"),
        (["get", f"{file}.none", "7"], "there is no such file"),
        (["reset", file, "7"], "--rate"),
        (["peek", url, "k"], "--rate"),
        (["peek", url, "k", "--rate", "often"], "often"),
        (["block", url, "k", "--rate", "5/s"], "--seconds"),
        (["block", url, "k", "--rate", "5/s", "--seconds", "0"], "not more than 0"),
        (["top", file, "k"], "sorted sets are in a Redis"),
        (["top", url, "k", "-n", "0"], "not from 1 to 1000"),
        (["get", url, "k", "--exact"], "--exact is of votes"),
        (["get", url, "k", "--vote-table", "likes"], "--vote-table is of votes"),
        (["get", url, "k", "--table", "x"], "--table is of a database"),
        (["get", file, "7", "--prefix", "x"], "--prefix is of a Counter"),
        (["get", file, "7", "--table", "x"], "--table is of a SlottedCounter"),
        (["get", file, "k", "--slots", "--cache", url], "--cache is of votes"),
        (["get", file, "a\udcff", "--item-type", "str"], "ITEM is not of --item-type str"),
        # Without its rate it would be a counter that is reset.
        (["reset", url, "k", "--name", "api"], "--name is of a limiter"),
        (["reset", url, "k", *RATE, "--prefix", "x"], "--prefix is of a counter"),
        (["reset", file, "k", *RATE, "--slots"], "--slots is of a counter"),
        (["peek", url, "k", *RATE, "--table", "x"], "--table is of a database"),
        (["peek", url, "k", *RATE, "--align", "first"], "--align is of --algorithm fixed_window"),
    ):
        assert exit_code(*arguments) == 2
        shown = capsys.readouterr()
        assert (shown.out, says in shown.err) == ("", True), shown.err


def test_a_server_that_fails_or_a_key_of_another_type_is_inconclusive(
    own_redis: RedisServer,
    redis: hotcount.Redis,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    redis.execute("RPUSH", "count:list", "x")
    for url, key in ((own_redis.url, "list"), (f"redis+unix://{tmp_path}/nobody.sock", "k")):
        for command in ("get", "reset"):
            assert exit_code(command, url, key) == 3
            shown = capsys.readouterr()
            assert (shown.out, shown.err.startswith(f"hotcount {command}: ")) == ("", True)


def test_the_examples_of_help_run(
    own_redis: RedisServer,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DATABASE_URL", file)
    for command, examples in EXAMPLES.items():
        for example in examples.split("; "):
            _, *arguments = example.replace("redis://cache/0", own_redis.url).split()
            assert (arguments[0], exit_code(*arguments)) == (command, 0)
            assert capsys.readouterr().err == ""
