"""`python -m hotcount sync`: saves the counts of a cache, once or until it is told to stop."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.commands import output_of, run, syncing, told_to_stop
from tests.support.eventually import eventually
from tests.support.servers import RedisServer
from tests.support.sqlite_files import rows


@pytest.fixture
def url(database_path: Path) -> str:
    return f"sqlite:///{database_path}"


def redis_votes(url: str, server: RedisServer, strategy: Any = "cached") -> hotcount.Votes:
    votes = hotcount.Votes(url, server.url, strategy)
    votes.create_tables()
    votes.add_items([1, 2])
    return votes


def stored(url: str) -> list[int]:
    found = rows(Path(url.removeprefix("sqlite:///")), "SELECT vote_count FROM item ORDER BY id")
    return [n for (n,) in found]


def sync(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("sync", *arguments)


def test_sync_once_saves_everything_and_says_so(url: str, own_redis: RedisServer) -> None:
    with redis_votes(url, own_redis) as votes:
        votes.cast_many([1, 1, 2], [1, 2, 1])
        at = ("--db", url, "--cache", own_redis.url)
        done = sync(*at, "--once", "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["settled"], said["saved"], said["at_risk"]) == (True, 2, 0)
        assert stored(url) == [2, 1]
        again = sync(*at, "--once")
        assert (again.returncode, "saved 0" in again.stdout) == (0, True)


def test_sync_once_writes_the_votes_that_wait(url: str, own_redis: RedisServer) -> None:
    with redis_votes(url, own_redis, "write_behind") as votes:
        votes.cast_many([1, 1, 99], [1, 2, 1])
        at = ("--strategy", "write_behind", "--db", url, "--cache", own_redis.url)
        done = sync(*at, "--once", "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["saved"], said["refused"], said["at_risk"]) == (2, 1, 0)
        assert stored(url)[0] == 2
        assert sync(*at[:-2], "--once").returncode == 2


def test_sync_says_at_once_that_votes_were_set_aside(url: str, own_redis: RedisServer) -> None:
    at = ("--strategy", "write_behind", "--db", url, "--cache", own_redis.url)
    with redis_votes(url, own_redis, "write_behind") as votes:
        votes.cast_many([98, 99], [1, 1])
        with syncing(*at) as (process, line):
            line()
            assert "2 votes that the database refuses were set aside" in line()
            told_to_stop(process)


def test_sync_runs_until_it_is_told_to_stop(url: str, own_redis: RedisServer) -> None:
    with (
        redis_votes(url, own_redis) as votes,
        syncing("--json", "--db", url, "--cache", own_redis.url) as (process, _),
    ):
        votes.cast(1, 1)
        eventually(lambda: stored(url)[0] == 1)
        said, _ = told_to_stop(process)
        assert process.returncode == 0
        assert json.loads(said)["saved"] == 1


# SIGTERM at the very moment at which Event.wait() holds the lock that Event.set() takes, or, where
# nobody calls that, when the event is looked at.
TERMINATED_IN_ITS_EVENT = """
import os, runpy, signal, sys, threading

def on_call(frame, event, argument):
    if event == "call" and frame.f_code.co_filename == threading.__file__:
        name, own = frame.f_code.co_name, frame.f_locals.get("self")
        held = name == "wait" and isinstance(own, threading.Condition)
        if (held or name == "is_set") and signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGTERM)

sys.setprofile(on_call)
sys.argv[0] = "hotcount"
runpy.run_module("hotcount", run_name="__main__")
"""


@pytest.mark.parametrize("strategy", ["cached", "slotted"])
def test_sync_ends_when_the_signal_comes_while_it_looks_at_its_event(
    strategy: Any, url: str, own_redis: RedisServer
) -> None:
    cache = own_redis.url if strategy == "cached" else None
    with hotcount.Votes(url, cache, strategy) as votes:
        votes.create_tables()
    at = ["--db", url, "--strategy", strategy, *(["--cache", cache] if cache else [])]
    said = output_of(TERMINATED_IN_ITS_EVENT, "sync", "--json", *at)
    assert json.loads(said)["rounds"] in (0, 1)


# SIGTERM as soon as it says that it may be interrupted.
TERMINATED_AT_ITS_WORD = """
import os, runpy, signal, sys

class Said:
    def write(self, text):
        if "until interrupted" in text:
            os.kill(os.getpid(), signal.SIGTERM)
        return len(text)
    def flush(self):
        pass

sys.stderr = Said()
sys.argv[0] = "hotcount"
runpy.run_module("hotcount", run_name="__main__")
"""


@pytest.mark.parametrize("strategy", ["views", "slotted"])
def test_a_sync_that_is_told_to_stop_at_once_ends_well(
    strategy: str, url: str, tmp_path: Path
) -> None:
    with hotcount.Votes(url, strategy="slotted") as votes:
        votes.create_tables()
    away = ("--views", "--cache", f"redis+unix://{tmp_path}/none.sock")
    which = away if strategy == "views" else ("--strategy", strategy)
    said = output_of(TERMINATED_AT_ITS_WORD, "sync", "--json", "--db", url, *which)
    assert json.loads(said)["failed"] == 0


class StopsAt(threading.Event):
    """Set when the worker asks for the nth time."""

    def __init__(self, look: int) -> None:
        super().__init__()
        self.left = look

    def is_set(self) -> bool:
        self.left -= 1
        return self.left <= 0


def test_a_round_that_is_stopped_before_its_end_is_not_a_round_that_worked(
    url: str, own_redis: RedisServer
) -> None:
    with hotcount.WriteBehindCounter(url, own_redis.url) as views:
        worker, look = views.sync_worker(), 2  # The first look is before the round.
        while not (stats := worker.stats())["failed"]:
            worker.run(StopsAt(look))
            look += 1
            assert stats["rounds"] == 0
        assert look > 3, "no round was stopped before it came to the missing tables"
        views.create_tables()
        # It looks some 60 times a second, and begins a round in each.
        worker.run(StopsAt(100))
        assert worker.stats()["rounds"] > 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("--db", "sqlite:///:memory:"), 2),
        (("--db", "sqlite:///:memory:", "--cache", "memory://a", "--once"), 2),
        (("--db", "sqlite:///:memory:", "--cache", "no-url", "--once"), 2),
        (("--db", "sqlite:///:memory:", "--cache", "redis://h", "--page", "0"), 2),
    ],
)
def test_sync_refuses_bad_usage(arguments: tuple[str, ...], code: int) -> None:
    done = sync(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr


def test_sync_that_cannot_reach_a_server_is_inconclusive(url: str, tmp_path: Path) -> None:
    with hotcount.Votes(url, "memory://", "cached") as votes:
        votes.create_tables()
    done = sync("--db", url, "--cache", f"redis+unix://{tmp_path}/none.sock", "--once")
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize(
    ("away", "strategy"),
    [
        *(
            (away, each)
            for away in ("tables", "redis")
            for each in ("views", "cached", "write_behind")
        ),
        ("tables", "slotted"),
    ],
)
def test_sync_says_once_that_no_round_works_and_fails_if_none_did(
    away: str, strategy: Any, url: str, tmp_path: Path, own_redis: RedisServer
) -> None:
    cache = own_redis.url if away == "tables" else f"redis+unix://{tmp_path}/none.sock"
    hotcount.Database(url).close()
    if away == "redis" and strategy == "views":
        hotcount.WriteBehindCounter(url, "redis://h").create_tables()
    elif away == "redis":
        hotcount.Votes(url, "redis://h", strategy).create_tables()
    which = ("--views",) if strategy == "views" else ("--strategy", strategy)
    at = ("--db", url) if strategy == "slotted" else ("--db", url, "--cache", cache)
    with syncing("--json", *which, *at) as (process, line):
        # Of a server the client tells too.
        lines = [line() for _ in range(3 if away == "redis" else 2)]
        time.sleep(0.3)  # More rounds.
        said, rest = told_to_stop(process)
    lines += rest.splitlines()
    says = "table" if away == "tables" else "none.sock"
    expected = ["until interrupted", *[says] * (2 if away == "redis" else 1)]
    assert len(lines) == len(expected), lines
    assert [sum(text in each for each in lines) for text in (expected[0], says)] == [
        1,
        len(expected) - 1,
    ]
    found = json.loads(said)
    assert (process.returncode, found["rounds"], found["settled"]) == (1, 0, False)
    assert found["failed"] >= 1
    assert says in found.get("last_error", says)


def test_sync_says_when_rounds_work_again(url: str, own_redis: RedisServer) -> None:
    redis_votes(url, own_redis).close()
    with syncing("--db", url, "--cache", own_redis.url) as (process, line):
        assert "until interrupted" in line()
        own_redis.stop()
        began = {line() for _ in range(2)}
        own_redis.start()
        ended = {line() for _ in range(2)}
        for said, lines in (
            ("rounds fail", began),
            ("is not available", began),
            ("rounds work again", ended),
            ("is available again", ended),
        ):
            assert [said in each for each in lines].count(True) == 1, (said, lines)
        assert (told_to_stop(process)[1], process.returncode) == ("", 0)
