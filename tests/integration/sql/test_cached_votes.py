"""Strategy cached over Redis and in memory: load, lost caches, dead processes, the command."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.servers import RedisServer
from tests.support.sqlite_files import rows
from tests.support.together import THREADS, beside, in_child, together

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


def number(path: Path, query: str) -> int:
    return int(rows(path, query)[0][0])


def stored(path: Path, item: int = 1) -> int:
    return number(path, f"SELECT vote_count FROM item WHERE id = {item}")


def live(path: Path, item: int = 1) -> int:
    return number(path, f"SELECT COALESCE(SUM(val), 0) FROM vote_live WHERE item_id = {item}")


@contextmanager
def working(votes: hotcount.Votes, workers: int) -> Iterator[list[hotcount.SyncWorker]]:
    """So many workers beside the body; what one of them raises is raised here."""
    made = [votes.sync_worker() for _ in range(workers)]
    with beside(*(worker.run for worker in made)):
        yield made


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
        eventually(lambda: sum(worker.stats()["deleted"] for worker in workers) > 0)
    report = votes.flush(20)
    assert (report.pending, report.at_risk) == (0, 0)
    for item in range(1, 6):
        assert stored(database_path, item) == live(database_path, item)
        assert int(votes.count(item)) == live(database_path, item)
    assert live(database_path) >= THREADS * 4 - 3 * 40
    assert votes.reconcile() == []
    assert sum(worker.stats()["recounted"] for worker in workers) == 0


def test_a_round_saves_once_and_deletes_past_the_retention(make: Make, database_path: Path) -> None:
    votes = make(retention=0.2)
    votes.cast_many([1, 2], [7, 7])
    worker = votes.sync_worker()
    first = worker.run_once()
    assert (first.scanned, first.saved, first.unsettled, first.at_risk) == (2, 2, 0, 0)
    assert (stored(database_path, 1), stored(database_path, 2)) == (1, 1)
    eventually(lambda: worker.run_once().scanned == 0)
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
    assert rows(database_path, "SELECT SUM(vote_count), COUNT(*) FROM item") == [(300, 300)]


def test_flush_reports_what_it_saved_and_a_second_one_saves_nothing(make: Make) -> None:
    votes = make()
    votes.cast_many([1, 1, 2], [7, 8, 7])
    assert votes.flush() == hotcount.FlushReport(acked=2, pending=0, at_risk=0)
    assert votes.flush() == hotcount.FlushReport(acked=0, pending=0, at_risk=0)


def test_run_returns_when_it_is_told_to(make: Make) -> None:
    votes = make(interval=60)
    worker = votes.sync_worker()
    with beside(worker.run):
        eventually(lambda: worker.stats()["rounds"] > 0)
    with pytest.raises(TypeError, match=r"stop must be a threading\.Event"):
        worker.run(5)  # type: ignore[arg-type]
    votes.close()
    with pytest.raises(hotcount.ClosedError):
        worker.run_once()


def test_a_second_round_waits_for_the_first_until_its_own_deadline(
    make: Make, database_path: Path
) -> None:
    votes = make()
    votes.cast(1, 10)
    worker = votes.sync_worker()
    saved: list[int] = []

    def finds_another_round() -> bool:
        with pytest.raises(hotcount.DeadlineError) as refused:
            worker.run_once(timeout=0.1)
        return "another round" in str(refused.value)

    holder = sqlite3.connect(database_path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with beside(lambda _: saved.append(worker.run_once(timeout=20).saved)):
        try:
            eventually(finds_another_round)
        finally:
            holder.rollback()
            holder.close()
    assert saved == [1]


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
    eventually(lambda: int(reader.count(1)) == 3)
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


@pytest.fixture(params=[{}])
def votes(
    request: pytest.FixtureRequest, database_path: Path, own_redis: RedisServer
) -> Iterator[hotcount.Votes]:
    """Over a Redis that the test stops or empties."""
    url = f"sqlite:///{database_path}"
    with hotcount.Votes(url, own_redis.url, "cached", **request.param) as votes:
        votes.create_tables()
        votes.add_items(range(1, 6))
        yield votes


# Hashes are deleted and born all the time.
short_retention = pytest.mark.parametrize("votes", [{"retention": 0.001}], indirect=True)


def test_votes_go_on_while_redis_is_away_and_are_counted_when_it_is_back(
    votes: hotcount.Votes, database_path: Path, own_redis: RedisServer
) -> None:
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


def test_a_worker_notices_counts_that_the_cache_lost(
    votes: hotcount.Votes, database_path: Path, direct: hotcount.Redis
) -> None:
    worker = votes.sync_worker()
    votes.cast(1, 1)
    worker.run_once()
    votes.cast(1, 2)
    direct.execute("FLUSHALL")
    assert worker.run_once().unsettled == 1
    assert worker.run_once().recounted == 1
    assert stored(database_path) == live(database_path) == 2


def test_a_vote_after_the_loss_has_the_item_recounted_by_a_new_worker(
    votes: hotcount.Votes, database_path: Path, direct: hotcount.Redis
) -> None:
    votes.cast_many([1, 1], [1, 2])
    direct.execute("FLUSHALL")
    votes.cast(1, 3)
    assert votes.flush(20).pending == 0
    assert stored(database_path) == live(database_path) == 3
    assert int(votes.count(1)) == 3


def test_reconcile_restores_what_nobody_noticed(
    votes: hotcount.Votes, database_path: Path, direct: hotcount.Redis
) -> None:
    votes.cast_many([1, 1, 2], [1, 2, 1])
    direct.execute("FLUSHALL")
    drift = [hotcount.Drift(1, 0, 2), hotcount.Drift(2, 0, 1)]
    assert votes.reconcile(dry_run=True) == drift
    assert votes.reconcile([2, 1]) == drift[::-1]
    assert votes.reconcile() == []
    assert (stored(database_path, 1), stored(database_path, 2)) == (2, 1)


def test_another_type_under_a_count_is_an_error_that_names_the_key(
    votes: hotcount.Votes, direct: hotcount.Redis
) -> None:
    votes.cast(1, 1)
    (key,) = direct.execute("KEYS", "votes:*")
    direct.execute("DEL", key)
    direct.execute("SET", key, "x")
    with pytest.raises(hotcount.WrongTypeError, match="votes:"):
        votes.count(1)
    assert votes.cast(1, 2).changed  # Committed, and noted for a recount.
    assert votes.count(1, consistency="exact").value == 2


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


@short_retention
def test_workers_killed_at_any_moment_lose_nothing(
    votes: hotcount.Votes, database_path: Path, own_redis: RedisServer
) -> None:
    draw = random.Random(4)
    cast = [0]

    def vote(ended: threading.Event) -> None:
        while not ended.is_set():
            votes.cast(1 + cast[0] % 5, cast[0], timeout=20)
            cast[0] += 1

    with beside(vote):
        for _ in range(5):
            worker = start(WORKER, f"sqlite:///{database_path}", own_redis.url)
            time.sleep(draw.uniform(0, 0.2))
            kill(worker)
    # No recount: that would hide what a dead worker had lost.
    assert votes.flush(20).pending == 0
    assert cast[0] > 0
    for item in range(1, 6):
        assert stored(database_path, item) == live(database_path, item)
    assert sum(live(database_path, item) for item in range(1, 6)) == cast[0]
    assert votes.reconcile() == []


@short_retention
def test_a_killed_voter_costs_a_count_at_most_its_vote_until_reconcile(
    votes: hotcount.Votes, database_path: Path, own_redis: RedisServer
) -> None:
    draw = random.Random(5)
    kills = 4
    with working(votes, 1):
        for number in range(kills):
            voter = start(VOTER, f"sqlite:///{database_path}", own_redis.url, str(number * 10**6))
            time.sleep(draw.uniform(0.02, 0.2))
            kill(voter)
    assert votes.flush(20).pending == 0
    drift = votes.reconcile()
    assert sum(each.actual - each.counted for each in drift) <= kills
    assert all(each.actual > each.counted for each in drift)
    assert votes.reconcile() == []
    for item in range(1, 6):
        assert stored(database_path, item) == live(database_path, item)
