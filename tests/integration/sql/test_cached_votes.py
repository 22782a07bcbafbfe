"""Strategy cached over Redis and in memory: load, lost caches, dead processes, the command."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import hotcount
import pytest

from tests.support.servers import RedisServer
from tests.support.together import THREADS, in_child, together

Make = Callable[..., hotcount.Votes]


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.server)])
def make(request: pytest.FixtureRequest, database_path: Path) -> Iterator[Make]:
    """Votes over one file and one cache, as many objects as asked for."""
    store: hotcount.Memory | hotcount.Redis
    if request.param == "memory":
        store = hotcount.Memory()
    else:
        store = hotcount.Redis(request.getfixturevalue("redis_server").url, timeout=20)
    with store, hotcount.Database(f"sqlite:///{database_path}", timeout=20) as database:

        def votes(**options: Any) -> hotcount.Votes:
            made = hotcount.Votes(database, store, "cached", **options)
            made.create_tables()
            made.add_items(range(1, 6))
            return made

        yield votes


def stored(path: Path, item: int = 1) -> int:
    with closing(sqlite3.connect(path, timeout=20)) as other:
        return int(other.execute("SELECT vote_count FROM item WHERE id = ?", (item,)).fetchone()[0])


def live(path: Path, item: int = 1) -> int:
    with closing(sqlite3.connect(path, timeout=20)) as other:
        return int(
            other.execute(
                "SELECT COALESCE(SUM(val), 0) FROM vote_live WHERE item_id = ?", (item,)
            ).fetchone()[0]
        )


@contextmanager
def working(votes: hotcount.Votes, workers: int) -> Iterator[list[hotcount.SyncWorker]]:
    """So many workers beside the body; what one of them raises is raised here."""
    made = [votes.sync_worker() for _ in range(workers)]
    stop = threading.Event()
    failures: list[BaseException] = []

    def run(worker: hotcount.SyncWorker) -> None:
        try:
            worker.run(stop)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in made]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


# -- load -------------------------------------------------------------------


def test_after_the_drain_the_item_table_has_the_votes(make: Make, database_path: Path) -> None:
    # A retention that passes at once: hashes are deleted and born all the time.
    votes = make(retention=0.001, interval=0.001, page=2)

    def work(index: int) -> None:
        draw = random.Random(index)
        for _ in range(12):
            item, user = draw.randint(1, 5), draw.randint(1, 40)
            if draw.random() < 0.3:
                votes.retract(item, user)
            else:
                votes.cast(item, user, draw.randint(-3, 3))
        votes.cast_many([1, 2, 3] * 4, [1000 * index + k for k in range(12)])

    with working(votes, 3) as workers:
        together(work)
    report = votes.flush(20)
    assert (report.pending, report.at_risk) == (0, 0)
    for item in range(1, 6):
        assert stored(database_path, item) == live(database_path, item)
        assert int(votes.count(item)) == live(database_path, item)
    assert live(database_path) >= THREADS * 4 - 3 * 40
    assert votes.reconcile() == []
    assert sum(worker.stats()["deleted"] for worker in workers) > 0
    assert sum(worker.stats()["recounted"] for worker in workers) == 0


def test_a_round_saves_once_and_deletes_past_the_retention(make: Make, database_path: Path) -> None:
    votes = make(retention=0.2)
    votes.cast_many([1, 2], [7, 7])
    worker = votes.sync_worker()
    first = worker.run_once()
    assert (first.scanned, first.saved, first.unsettled, first.at_risk) == (2, 2, 0, 0)
    assert (stored(database_path, 1), stored(database_path, 2)) == (1, 1)
    deleted, deadline = first.deleted, time.monotonic() + 20
    while deleted < 2:
        assert time.monotonic() < deadline
        again = worker.run_once()
        assert again.saved == 0
        deleted += again.deleted
    assert worker.run_once().scanned == 0
    count = votes.count(1)
    assert (count.value, count.exact, count.source) == (1, False, "sql")
    stats = worker.stats()
    assert (stats["saved"], stats["deleted"], stats["failed"]) == (2, 2, 0)


def test_pages_are_small_and_none_is_missed(make: Make, database_path: Path) -> None:
    votes = make(page=10, workers=4)
    items = range(1, 301)
    votes.add_items(items)
    votes.cast_many(items, [7] * 300)
    assert votes.sync_worker().run_once().saved == 300
    with closing(sqlite3.connect(database_path)) as other:
        assert other.execute("SELECT SUM(vote_count), COUNT(*) FROM item").fetchone() == (300, 300)


def test_flush_reports_what_it_saved_and_a_second_one_saves_nothing(make: Make) -> None:
    votes = make()
    votes.cast_many([1, 1, 2], [7, 8, 7])
    assert votes.flush() == hotcount.FlushReport(acked=2, pending=0, at_risk=0)
    assert votes.flush() == hotcount.FlushReport(acked=0, pending=0, at_risk=0)


def test_run_returns_when_it_is_told_to(make: Make) -> None:
    votes = make(interval=60)
    stop = threading.Event()
    worker = votes.sync_worker()
    running = threading.Thread(target=worker.run, args=(stop,))
    running.start()
    deadline = time.monotonic() + 20
    while worker.stats()["rounds"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    stop.set()
    running.join(20)
    assert not running.is_alive()
    with pytest.raises(TypeError, match=r"stop must be a threading\.Event"):
        worker.run(5)  # type: ignore[arg-type]
    votes.close()
    with pytest.raises(hotcount.ClosedError):
        worker.run_once()


def test_a_strategy_without_a_cache_has_no_worker(database: hotcount.Database) -> None:
    with pytest.raises(hotcount.ConfigError, match="'batched' keeps no counts in a cache"):
        hotcount.Votes(database).sync_worker()


def test_a_forked_child_votes_and_the_count_is_right_in_the_end(
    make: Make, database_path: Path
) -> None:
    votes = make()
    votes.cast(1, 1)

    def child() -> int:
        votes.cast(1, 2)
        return votes.flush(20).pending

    assert in_child(child) == 0
    votes.cast(1, 3)
    assert votes.flush(20).pending == 0
    assert stored(database_path) == live(database_path) == 3


def test_a_reader_learns_within_max_age_that_the_tables_changed_hands(
    make: Make, database_path: Path
) -> None:
    reader = make(max_age=0.01)
    reader.cast(1, 1)
    assert int(reader.count(1)) == 1
    with hotcount.Votes(f"sqlite:///{database_path}", strategy="batched") as batched:
        batched.create_tables()
        batched.cast(1, 2)
    with pytest.raises(hotcount.ConfigError, match="create_tables"):
        reader.sync_worker().run_once()
    make().cast(1, 3)
    # Until then it reads the count of before.
    deadline = time.monotonic() + 20
    while int(reader.count(1)) != 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert reader.cast(1, 4).changed
    assert reader.flush(20).pending == 0
    assert stored(database_path) == int(reader.count(1)) == 4


def test_two_databases_over_one_cache_keep_their_counts_apart(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with hotcount.Redis(redis_server.url, timeout=20) as redis:
        several = []
        for number in range(2):
            votes = hotcount.Votes(f"sqlite:///{tmp_path}/{number}.db", redis, "cached")
            votes.create_tables()
            votes.add_items([1])
            votes.cast_many([1] * (number + 1), range(number + 1))
            several.append(votes)
        assert [int(votes.count(1)) for votes in several] == [1, 2]
        for votes in several:
            votes.flush()
            assert votes.reconcile() == []
            votes.close()


def test_two_memories_over_one_database_come_out_right(database_path: Path) -> None:
    # Not how it is meant: each process of an application has one, and they meet in the database.
    with hotcount.Database(f"sqlite:///{database_path}", timeout=20) as database:
        both = [hotcount.Votes(database, hotcount.Memory(), "cached") for _ in range(2)]
        both[0].create_tables()
        both[0].add_items([1])
        for user in range(20):
            both[user % 2].cast(1, user)
            both[user % 3 % 2].sync_worker().run_once()
        for _ in range(3):
            for votes in both:
                assert votes.flush(20).pending == 0
        assert stored(database_path) == live(database_path) == 20


# -- a cache that is away, or lost its data ---------------------------------


def redis_votes(path: Path, server: RedisServer, **options: Any) -> hotcount.Votes:
    votes = hotcount.Votes(f"sqlite:///{path}", server.url, "cached", **options)
    votes.create_tables()
    votes.add_items([1, 2])
    return votes


@pytest.mark.server
def test_votes_go_on_while_redis_is_away_and_are_counted_when_it_is_back(
    database_path: Path, own_redis: RedisServer
) -> None:
    with redis_votes(database_path, own_redis) as votes:
        votes.cast(1, 1)
        own_redis.kill()
        assert votes.cast(1, 2).changed
        assert votes.cast_many([1, 2], [3, 3]).changed[1]
        assert votes.count(1, consistency="exact").value == 3
        assert votes.count(1).source == "sql"
        with pytest.raises(hotcount.UnavailableError):
            votes.flush()
        own_redis.start()
        assert votes.flush(20).pending == 0
        assert (stored(database_path, 1), stored(database_path, 2)) == (3, 1)
        assert [int(count) for count in votes.count_many([1, 2])] == [3, 1]


@pytest.mark.server
def test_a_worker_notices_counts_that_the_cache_lost(
    database_path: Path, own_redis: RedisServer
) -> None:
    with redis_votes(database_path, own_redis) as votes, own_redis.redis() as redis:
        worker = votes.sync_worker()
        votes.cast(1, 1)
        worker.run_once()
        votes.cast(1, 2)
        redis.execute("FLUSHALL")
        assert worker.run_once().unsettled == 1
        assert worker.run_once().recounted == 1
        assert stored(database_path) == live(database_path) == 2


@pytest.mark.server
def test_a_vote_after_the_loss_has_the_item_recounted_by_a_new_worker(
    database_path: Path, own_redis: RedisServer
) -> None:
    with redis_votes(database_path, own_redis) as votes, own_redis.redis() as redis:
        votes.cast_many([1, 1], [1, 2])
        redis.execute("FLUSHALL")
        votes.cast(1, 3)
        assert votes.flush(20).pending == 0
        assert stored(database_path) == live(database_path) == 3
        assert int(votes.count(1)) == 3


@pytest.mark.server
def test_reconcile_restores_what_nobody_noticed(
    database_path: Path, own_redis: RedisServer
) -> None:
    with redis_votes(database_path, own_redis) as votes, own_redis.redis() as redis:
        votes.cast_many([1, 1, 2], [1, 2, 1])
        redis.execute("FLUSHALL")
        drift = [hotcount.Drift(1, 0, 2), hotcount.Drift(2, 0, 1)]
        assert votes.reconcile(dry_run=True) == drift
        assert votes.reconcile([2, 1]) == drift[::-1]
        assert votes.reconcile() == []
        assert (stored(database_path, 1), stored(database_path, 2)) == (2, 1)


@pytest.mark.server
def test_another_type_under_a_count_is_an_error_that_names_the_key(
    database_path: Path, own_redis: RedisServer
) -> None:
    with redis_votes(database_path, own_redis) as votes, own_redis.redis() as redis:
        votes.cast(1, 1)
        (key,) = redis.execute("KEYS", "votes:*")
        redis.execute("DEL", key)
        redis.execute("SET", key, "x")
        with pytest.raises(hotcount.WrongTypeError, match="votes:"):
            votes.count(1)
        assert votes.cast(1, 2).changed  # Committed, and noted for a recount.
        assert votes.count(1, consistency="exact").value == 2


# -- processes that die -----------------------------------------------------

WORKER = """
import sys, hotcount
votes = hotcount.Votes(sys.argv[1], sys.argv[2], "cached", retention=0.001, interval=0.001, page=3)
print("ready", flush=True)
votes.sync_worker().run()
"""
VOTER = """
import sys, hotcount
votes = hotcount.Votes(sys.argv[1], sys.argv[2], "cached", retention=0.001)
print("ready", flush=True)
for user in range(int(sys.argv[3]), 10**9):
    votes.cast(1 + user % 5, user)
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=20)
    # It was at work until then, or it proves nothing.
    assert process.returncode == -signal.SIGKILL


@pytest.mark.server
def test_workers_killed_at_any_moment_lose_nothing(
    database_path: Path, own_redis: RedisServer
) -> None:
    url = f"sqlite:///{database_path}"
    draw = random.Random(4)
    with hotcount.Votes(url, own_redis.url, "cached", retention=0.001) as votes:
        votes.create_tables()
        votes.add_items(range(1, 6))
        stop = threading.Event()
        cast = [0]

        def vote() -> None:
            while not stop.is_set():
                votes.cast(1 + cast[0] % 5, cast[0], timeout=20)
                cast[0] += 1

        voter = threading.Thread(target=vote)
        voter.start()
        try:
            for _ in range(5):
                worker = start(WORKER, url, own_redis.url)
                time.sleep(draw.uniform(0, 0.2))
                kill(worker)
        finally:
            stop.set()
            voter.join()
        # No recount: that would hide what a dead worker had lost.
        assert votes.flush(20).pending == 0
        assert cast[0] > 0
        for item in range(1, 6):
            assert stored(database_path, item) == live(database_path, item)
        assert sum(live(database_path, item) for item in range(1, 6)) == cast[0]
        assert votes.reconcile() == []


@pytest.mark.server
def test_a_killed_voter_costs_a_count_at_most_its_vote_until_reconcile(
    database_path: Path, own_redis: RedisServer
) -> None:
    url = f"sqlite:///{database_path}"
    draw = random.Random(5)
    with hotcount.Votes(url, own_redis.url, "cached", retention=0.001) as votes:
        votes.create_tables()
        votes.add_items(range(1, 6))
        kills = 4
        with working(votes, 1):
            for number in range(kills):
                voter = start(VOTER, url, own_redis.url, str(number * 10**6))
                time.sleep(draw.uniform(0.02, 0.2))
                kill(voter)
        assert votes.flush(20).pending == 0
        drift = votes.reconcile()
        assert sum(each.actual - each.counted for each in drift) <= kills
        assert all(each.actual > each.counted for each in drift)
        assert votes.reconcile() == []
        for item in range(1, 6):
            assert stored(database_path, item) == live(database_path, item)


# -- the command ------------------------------------------------------------


def sync(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hotcount", "sync", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.server
def test_sync_once_saves_everything_and_says_so(
    database_path: Path, own_redis: RedisServer
) -> None:
    with redis_votes(database_path, own_redis) as votes:
        votes.cast_many([1, 1, 2], [1, 2, 1])
        at = ("--db", f"sqlite:///{database_path}", "--cache", own_redis.url)
        done = sync(*at, "--once", "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["settled"], said["saved"], said["at_risk"]) == (True, 2, 0)
        assert (stored(database_path, 1), stored(database_path, 2)) == (2, 1)
        again = sync(*at, "--once")
        assert (again.returncode, "saved 0" in again.stdout) == (0, True)


@pytest.mark.server
def test_sync_runs_until_it_is_told_to_stop(database_path: Path, own_redis: RedisServer) -> None:
    with redis_votes(database_path, own_redis) as votes:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "hotcount", "sync", "--json", "--interval", "0.01"),
                *("--db", f"sqlite:///{database_path}", "--cache", own_redis.url),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        votes.cast(1, 1)
        deadline = time.monotonic() + 30
        while stored(database_path) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
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


@pytest.mark.server
@pytest.mark.parametrize("strategy", ["cached", "slotted"])
def test_sync_ends_when_the_signal_comes_while_it_looks_at_its_event(
    strategy: Literal["cached", "slotted"], database_path: Path, own_redis: RedisServer
) -> None:
    cache = own_redis.url if strategy == "cached" else None
    url = f"sqlite:///{database_path}"
    with hotcount.Votes(url, cache, strategy) as votes:
        votes.create_tables()
    done = subprocess.run(
        [
            *(sys.executable, "-c", TERMINATED_IN_ITS_EVENT, "sync", "--json"),
            *("--db", url, "--strategy", strategy, *(("--cache", cache) if cache else ())),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] in (0, 1)


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


def test_sync_that_cannot_reach_a_server_is_inconclusive(
    database_path: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{database_path}"
    with hotcount.Votes(url, "memory://", "cached") as votes:
        votes.create_tables()
    done = sync("--db", url, "--cache", f"redis+unix://{tmp_path}/none.sock", "--once")
    assert (done.returncode, done.stdout) == (3, "")
