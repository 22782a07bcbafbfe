"""Strategy batched with a cache: count() from copies there, which committed votes move."""

from __future__ import annotations

import multiprocessing
import signal
import sqlite3
import time
from collections.abc import Iterator
from itertools import count as numbers
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Votes

from tests.servers import RedisServer
from tests.together import THREADS, together

_prefixes = (f"m{{{number}}}:" for number in numbers())

CACHES = ["memory", pytest.param("redis", marks=pytest.mark.server)]


@pytest.fixture(params=CACHES)
def cache(request: pytest.FixtureRequest) -> Iterator[hotcount.Memory | hotcount.Redis]:
    if request.param == "memory":
        with hotcount.Memory() as memory:
            yield memory
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        with hotcount.Redis(server.url, prefix=next(_prefixes), timeout=20) as redis:
            yield redis


def make_votes(database: Any, cache: Any, **options: Any) -> Votes:
    votes = Votes(database, cache, **options)
    votes.create_tables()
    votes.add_items([1, 2, 3])
    return votes


@pytest.fixture
def votes(database: hotcount.Database, cache: Any) -> Votes:
    return make_votes(database, cache)


def test_the_second_look_is_the_caches_and_has_the_votes_since(votes: Votes) -> None:
    votes.cast(1, 1)
    first = votes.count(1)
    assert (first.value, first.source, first.exact) == (1, "sql", True)
    for user in range(2, 6):
        votes.cast(1, user)
        seen = votes.count(1)
        assert (seen.value, seen.source, seen.exact, seen.pending) == (user, "cache", False, 0)
    votes.retract(1, 1)
    votes.cast(1, None, 10, op_id="a")
    assert int(votes.count(1)) == 14
    exact = votes.count(1, consistency="exact")
    assert (exact.value, exact.source, exact.exact) == (14, "sql", True)


def test_an_item_without_votes_is_copied_too(votes: Votes) -> None:
    assert votes.count(2).source == "sql"
    assert votes.count(2).source == "cache"
    votes.cast(2, 1)
    assert (int(votes.count(2)), votes.count(2).source) == (1, "cache")


def test_many_at_once_from_both(votes: Votes) -> None:
    votes.cast_many([1, 1, 2], [1, 2, 1])
    votes.count(2)
    counts = votes.count_many([1, 2, 3, 1])
    assert [int(each) for each in counts] == [2, 1, 0, 2]
    assert [each.source for each in counts] == ["sql", "cache", "sql", "sql"]
    assert {each.source for each in votes.count_many([1, 2, 3])} == {"cache"}


def test_as_of_is_when_the_copy_was_begun(votes: Votes) -> None:
    began = time.time()
    votes.count(1)
    time.sleep(0.05)
    copy = votes.count(1)
    assert copy.source == "cache"
    # Both clocks are this machine's.
    assert began - 0.01 <= copy.as_of <= time.time() - 0.04


def test_a_copy_ends_after_max_age_however_many_votes_move_it(
    database: hotcount.Database, cache: Any
) -> None:
    votes = make_votes(database, cache, max_age=0.3)
    votes.count(1)
    ends = time.monotonic() + 20
    user = 0
    while votes.count(1).source == "cache":
        assert time.monotonic() < ends
        user += 1
        votes.cast(1, user)
    assert int(votes.count(1)) == user


def test_votes_of_threads_reach_the_copy(votes: Votes) -> None:
    votes.count_many([1, 2])

    def work(index: int) -> None:
        for number in range(8):
            votes.cast(1 + number % 2, 100 * index + number)
            votes.count(1)

    together(work)
    counts = votes.count_many([1, 2])
    assert [int(each) for each in counts] == [THREADS * 4] * 2
    assert {each.source for each in counts} == {"cache"}


def test_reconcile_takes_wrong_copies_out(database_path: Path, cache: Any) -> None:
    with hotcount.Database(f"sqlite:///{database_path}") as database:
        votes = make_votes(database, cache)
        votes.cast(1, 1)
        votes.count(1)
        with sqlite3.connect(database_path, isolation_level=None) as other:
            other.execute("UPDATE vote_cell SET n = n + 5, ver = ver + 1")
        assert int(votes.count(1)) == 1
        votes.cast(1, 2)
        assert int(votes.count(1)) == 7
        assert [(each.counted, each.actual) for each in votes.reconcile()] == [(7, 2)]
        found = votes.count(1)
        assert (found.value, found.source) == (2, "sql")


def test_an_older_copy_never_replaces_a_newer_one(database_path: Path, cache: Any) -> None:
    # Published late: SQL went back to an older state, as a backup would take it.
    with hotcount.Database(f"sqlite:///{database_path}") as database:
        votes = make_votes(database, cache)
        votes.count(1)
        votes.cast_many([1, 1, 1], [1, 2, 3])
        votes.cast(1, 4)
        with sqlite3.connect(database_path, isolation_level=None) as other:
            other.execute("UPDATE vote_cell SET ver = 0")
        votes.cast(1, 5)
        assert int(votes.count(1)) == 4
        assert int(votes.count(1, consistency="exact")) == 5


def test_cells_of_slotted_are_in_the_copy(database: hotcount.Database, cache: Any) -> None:
    slotted = Votes(database, strategy="slotted")
    slotted.create_tables()
    slotted.add_items([1])
    together(lambda index: slotted.cast(1, index))
    votes = make_votes(database, cache)
    votes.cast(1, 1_000)
    assert int(votes.count(1)) == THREADS + 1
    votes.cast(1, 1_001)
    copy = votes.count(1)
    assert (copy.value, copy.source) == (THREADS + 2, "cache")


def test_ids_of_other_types(database: hotcount.Database, cache: Any) -> None:
    votes = Votes(database, cache, item_type=str, item_table="page", vote_table="page_vote")
    votes.create_tables()
    votes.add_items(["a:b{c}", "\u00fc"])
    for item in ("a:b{c}", "\u00fc"):
        votes.count(item)
        votes.cast(item, 1)
        assert (int(votes.count(item)), votes.count(item).source) == (1, "cache")


def test_other_strategies_take_no_mirror(cache: Any) -> None:
    for strategy in ("naive", "slotted"):
        with pytest.raises(hotcount.ConfigError, match="'batched' and 'cached' take one"):
            Votes("sqlite:///:memory:", cache, strategy)


def test_the_contract_says_what_a_copy_may_miss(votes: Votes) -> None:
    contract = votes.contract()
    assert contract.durable
    assert not contract.exact
    assert "max_age" in contract.may_lose


# -- a cache that fails -----------------------------------------------------


@pytest.mark.server
def test_votes_and_counts_go_on_without_the_cache(
    database: hotcount.Database, own_redis: RedisServer
) -> None:
    with hotcount.Redis(own_redis.url, timeout=5) as redis:
        votes = make_votes(database, redis)
        votes.count(1)
        own_redis.stop()
        for user in range(20):
            assert votes.cast(1, user).changed
        found = votes.count(1)
        assert (found.value, found.source) == (20, "sql")
        own_redis.start()
        ends = time.monotonic() + 20
        while votes.count(1).source != "cache":
            assert time.monotonic() < ends
            time.sleep(0.05)
        votes.cast(1, 21)
        assert int(votes.count(1)) == 21


@pytest.mark.server
def test_a_cache_that_hangs_holds_votes_up_once_a_second_at_most(
    database: hotcount.Database, own_redis: RedisServer
) -> None:
    with hotcount.Redis(own_redis.url, timeout=30) as redis:
        votes = make_votes(database, redis)
        votes.count(1)
        votes.cast(1, 0)
        own_redis.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            for user in range(1, 11):
                votes.cast(1, user)
                votes.count(1)
            # 0.1 s for what finds out, again after each second; the rest is the machine's.
            assert time.monotonic() - began < 5
        finally:
            own_redis.send_signal(signal.SIGCONT)
        assert int(votes.count(1, consistency="exact")) == 11


@pytest.mark.server
def test_a_key_of_another_kind_is_no_copy(
    database: hotcount.Database, redis_server: RedisServer
) -> None:
    prefix = next(_prefixes)
    with hotcount.Redis(redis_server.url, prefix=prefix, timeout=20) as redis:
        votes = make_votes(database, redis)
        votes.count(1)
        (key,) = redis.execute("KEYS", prefix.replace("{", "\\{") + "*")
        redis.execute("DEL", key)
        redis.execute("SET", key, "mine")
        votes.cast(1, 1)
        for _ in range(2):
            found = votes.count(1)
            assert (found.value, found.source) == (1, "sql")
        assert redis.execute("GET", key) == b"mine"


# -- many processes ---------------------------------------------------------


def _vote(url: str, redis_url: str, prefix: str, index: int) -> None:
    redis = hotcount.Redis(redis_url, prefix=prefix, timeout=20)
    with redis, Votes(hotcount.Database(url, timeout=20), redis) as votes:
        for number in range(25):
            votes.cast(1, 1_000 * index + number)
            votes.count(1)


@pytest.mark.server
def test_processes_share_a_mirror(database_path: Path, redis_server: RedisServer) -> None:
    url, prefix = f"sqlite:///{database_path}", next(_prefixes)
    with hotcount.Redis(redis_server.url, prefix=prefix, timeout=20) as redis:
        votes = make_votes(hotcount.Database(url, timeout=20), redis)
        votes.count(1)
        context = multiprocessing.get_context("spawn")
        workers = [
            context.Process(target=_vote, args=(url, redis_server.url, prefix, index))
            for index in range(3)
        ]
        for worker in workers:
            worker.start()
        seen = 0
        while any(worker.is_alive() for worker in workers):
            now = int(votes.count(1))
            # A copy's version never falls, and so neither does a count of votes that only come.
            assert now >= seen
            seen = now
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        found = votes.count(1)
        assert (found.value, found.source) == (75, "cache")
