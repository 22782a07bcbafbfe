"""Strategy batched with a cache: count() from copies there, which folds publish."""

import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Database, Redis, Votes

from tests.support.eventually import eventually
from tests.support.servers import RedisServer, keys_of
from tests.support.sqlalchemy_side import BACKENDS, BothSides, both_sides
from tests.support.stores import Store
from tests.support.together import THREADS, together


@pytest.fixture(params=BACKENDS[1:])  # SQLite's counts are in the items' table.
def sides(request: pytest.FixtureRequest, database_path: Path) -> Iterator[BothSides]:
    sides = both_sides(request, request.param, database_path)
    yield sides
    sides.close()


@pytest.fixture
def database(sides: BothSides) -> hotcount.Database:
    return sides.database


@pytest.fixture
def cache(counter_store: Store) -> Store:
    return counter_store


def make_votes(database: Any, cache: Any, **options: Any) -> Votes:
    """Votes without background folds, after the fold of a first vote."""
    votes = Votes(database, cache, fold_interval=3600, **options)
    votes.create_tables()
    votes.add_items([1, 2, 3])
    votes.cast(3, 1)
    votes.flush()
    return votes


@pytest.fixture
def votes(database: hotcount.Database, cache: Any) -> Votes:
    return make_votes(database, cache)


def test_a_copy_has_the_votes_once_a_fold_has_published_them(votes: Votes) -> None:
    first = votes.count(1)
    assert (first.value, first.source, first.exact) == (0, "sql", False)
    for user in range(1, 5):
        votes.cast(1, user)
        before = votes.count(1)
        assert (before.value, before.source, before.exact) == (user - 1, "cache", False)
        exact = votes.count(1, consistency="exact")
        assert (exact.value, exact.source, exact.exact) == (user, "sql", True)
        votes.flush()
        assert (int(votes.count(1)), votes.count(1).source) == (user, "cache")
    votes.retract(1, 1)
    votes.cast(1, None, 10, op_id="a")
    votes.flush()
    assert int(votes.count(1)) == 13


def test_a_fold_makes_the_copy_that_nobody_has_read(votes: Votes) -> None:
    votes.cast(2, 1)
    votes.flush()
    found = votes.count(2)
    assert (found.value, found.source) == (1, "cache")


def test_a_copy_leaves_out_votes_that_wait_in_the_journal(votes: Votes) -> None:
    votes.cast(1, 1)
    filled = votes.count(1)
    assert (filled.value, filled.source) == (0, "sql")
    assert (int(votes.count(1)), votes.count(1).source) == (0, "cache")


def test_an_item_without_votes_is_copied_too(votes: Votes) -> None:
    assert votes.count(2).source == "sql"
    assert votes.count(2).source == "cache"


def test_count_many_reads_from_the_cache_and_from_sql_in_one_call(votes: Votes) -> None:
    votes.cast_many([1, 1, 2], [1, 2, 1])
    votes.flush()
    counts = votes.count_many([1, 2, 3, 1])
    assert [int(each) for each in counts] == [2, 1, 1, 2]
    assert {each.source for each in counts} == {"cache"}
    votes.add_items([4])
    assert [each.source for each in votes.count_many([1, 4])] == ["cache", "sql"]


def test_as_of_is_the_folds_time(votes: Votes) -> None:
    votes.cast(1, 1)
    began = time.time()
    votes.flush()
    ended = time.time()
    # Both clocks are this machine's.
    assert began - 0.01 <= votes.count(1).as_of <= ended + 0.01


def test_a_count_of_a_switch_is_as_of_that_time(database: hotcount.Database, votes: Votes) -> None:
    naive = Votes(database, strategy="naive")
    naive.create_tables()
    naive.cast(2, 1)
    began = time.time()
    votes.create_tables()
    ended = time.time()
    counted = votes.count(2)
    assert (counted.value, counted.source) == (1, "sql")
    assert began - 0.01 <= counted.as_of <= ended + 0.01


def test_a_copy_ends_after_max_age(database: hotcount.Database, cache: Any) -> None:
    votes = make_votes(database, cache, max_age=0.3)
    votes.count(1)
    eventually(lambda: votes.count(1).source == "sql")


def test_the_process_that_voted_publishes(database: hotcount.Database, cache: Any) -> None:
    votes = Votes(database, cache, fold_interval=0.05)
    votes.create_tables()
    votes.add_items([1])
    votes.count(1)
    together(lambda index: votes.cast(1, index))
    eventually(lambda: int(votes.count(1)) == THREADS)


def test_what_reconcile_sets_right_is_published(sides: BothSides, cache: Any, votes: Votes) -> None:
    votes.cast(1, 1)
    votes.flush()
    sides.run("UPDATE vote_cell SET n = n + 5 WHERE item = 1")
    votes.cast(1, 2)
    votes.flush()
    assert int(votes.count(1)) == 7
    assert [(each.counted, each.actual) for each in votes.reconcile()] == [(7, 2)]
    votes.flush()
    assert (int(votes.count(1)), votes.count(1).source) == (2, "cache")


def test_cells_of_slotted_are_in_the_copy(database: hotcount.Database, votes: Votes) -> None:
    slotted = Votes(database, strategy="slotted")
    slotted.create_tables()
    together(lambda index: slotted.cast(1, index))
    votes.cast(1, 1_000)
    votes.flush()
    assert (int(votes.count(1)), votes.count(1).source) == (THREADS + 1, "cache")


def test_copies_work_with_ids_of_other_types(database: hotcount.Database, cache: Any) -> None:
    votes = Votes(database, cache, item_type=str, item_table="page", vote_table="page_vote")
    votes.create_tables()
    votes.add_items(["a:b{c}", "\u00fc"])
    for item in ("a:b{c}", "\u00fc"):
        votes.count(item)
        votes.cast(item, 1)
        votes.flush()
        assert (int(votes.count(item)), votes.count(item).source) == (1, "cache")


def test_the_contract_says_what_a_copy_may_miss(votes: Votes) -> None:
    contract = votes.contract()
    assert contract.durable
    assert not contract.exact
    assert "max_age" in contract.may_lose
    assert "own" in contract.may_lose
    assert "less than one read before" in contract.may_lose


def test_sqlite_reads_its_counts_where_they_are(tmp_path: Path) -> None:
    with hotcount.Database(f"sqlite:///{tmp_path}/votes.db") as database:
        votes = make_votes(database, hotcount.Memory())
        votes.cast(1, 1)
        for _ in range(2):
            found = votes.count(1)
            assert (found.value, found.source, found.exact) == (1, "sql", True)
        assert votes.contract().exact


def test_other_strategies_take_no_copies() -> None:
    strategies: tuple[Any, ...] = ("naive", "slotted")
    for strategy in strategies:
        with pytest.raises(
            hotcount.ConfigError, match="'batched', 'cached' and 'write_behind' take one"
        ):
            Votes("sqlite:///:memory:", hotcount.Memory(), strategy)


def test_votes_go_on_without_the_cache(sides: BothSides, own_redis: RedisServer) -> None:
    with hotcount.Redis(own_redis.url, timeout=5) as redis:
        votes = make_votes(sides.database, redis)
        votes.count(1)
        own_redis.stop()
        for user in range(20):
            assert votes.cast(1, user).changed
        votes.flush()
        assert sides.run("SELECT vote_count FROM item WHERE id = 1") == [(20,)]
        found = votes.count(1)
        assert (found.value, found.source) == (20, "sql")
        own_redis.start()
        eventually(lambda: votes.count(1).source == "cache")
        votes.cast(1, 21)
        votes.flush()
        assert int(votes.count(1)) == 21


def test_a_cache_that_hangs_holds_nobody_up(sides: BothSides, own_redis: RedisServer) -> None:
    with hotcount.Redis(own_redis.url, timeout=60) as redis:
        votes = make_votes(sides.database, redis)
        votes.count(1)
        with own_redis.stopped():
            began = time.monotonic()
            for user in range(1, 11):
                votes.cast(1, user)
                votes.flush()
                assert int(votes.count(1)) == user
            # 0.1 or 0.25 s for who finds out, again after each second; the rest is the machine's.
            assert time.monotonic() - began < 30
        assert sides.run("SELECT vote_count FROM item WHERE id = 1") == [(10,)]


@pytest.mark.parametrize("value", [b"mine", b"1 2 3", b"9" * 30 + b" 1", b"-1 5", b""])
def test_a_key_of_another_kind_is_no_copy(database: Database, redis: Redis, value: bytes) -> None:
    votes = make_votes(database, redis)
    votes.count(1)
    (key,) = keys_of(redis, "*:1")
    redis.execute("SET", key, value)
    votes.cast(1, 1)
    votes.flush()
    for _ in range(2):
        found = votes.count(1)
        assert (found.value, found.source) == (1, "sql")
    assert redis.execute("GET", key) == value


def _vote(url: str, redis_url: str, prefix: str, index: int) -> None:
    redis = hotcount.Redis(redis_url, prefix=prefix, timeout=20)
    database = hotcount.Database(url, timeout=20)
    with redis, Votes(database, redis, fold_interval=0.02) as votes:
        for number in range(25):
            votes.cast(1, 1_000 * index + number)
            votes.count(1)


def test_processes_share_copies_that_never_fall(
    sides: BothSides, redis: hotcount.Redis, redis_server: RedisServer
) -> None:
    votes = make_votes(sides.database, redis)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_vote, args=(sides.url, redis_server.url, redis.prefix, index))
        for index in range(3)
    ]
    for worker in workers:
        worker.start()
    seen = 0
    while any(worker.is_alive() for worker in workers):
        now = int(votes.count(1))
        assert now >= seen
        seen = now
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    votes.flush()
    assert int(votes.count(1, consistency="exact")) == 75
    # A busy machine may have kept the cache from answering a fold in time: then a copy is
    # behind until max_age.
    eventually(lambda: (votes.count(1).source, int(votes.count(1))) == ("cache", 75), 60)
