"""What a WriteBehindCounter promises, on every database."""

import asyncio
from typing import Any

import hotcount
import pytest
from hotcount import Database, Redis, WriteBehindCounter, aio

from tests.support.eventually import eventually
from tests.support.servers import RedisServer
from tests.support.together import THREADS, in_child, together

pytestmark = pytest.mark.server

INT64_MAX = 2**63 - 1


def keys_in(cache: Redis, prefix: str = "views") -> set[bytes]:
    """The keys that have cells."""
    found: set[bytes] = set()
    for shard in range(16):
        found |= set(cache.execute("SMEMBERS", f"{cache.prefix!s}{prefix}:{{{shard}}}:keys"))
    return found


def test_an_add_is_counted_at_once(views: WriteBehindCounter, cache: Redis) -> None:
    views.add("home")
    views.add("home", 4)
    count = views.get("home")
    assert (count.value, count.pending, count.source, count.exact) == (5, 5, "cache", False)
    assert keys_in(cache) == {b"home"}
    done = views.sync_worker().run_once()
    assert (done.scanned, done.saved, done.deleted, done.unsettled) == (1, 1, 1, 0)
    count = views.get("home")
    assert (count.value, count.pending, count.source) == (5, 0, "sql")
    assert keys_in(cache) == set()


def test_rounds_between_adds_count_each_once(views: WriteBehindCounter, cache: Redis) -> None:
    worker = views.sync_worker()
    for n in range(1, 6):
        views.add("k", n)
        views.add("other")
        assert views.get("k") == n * (n + 1) // 2
        worker.run_once()
        worker.run_once()
        assert views.get("k") == n * (n + 1) // 2
    assert [int(views.get(key)) for key in ("other", "never")] == [5, 0]
    assert worker.stats()["saved"] == 10


def test_amounts_below_0_are_counted_in_any_order(views: WriteBehindCounter) -> None:
    views.add("k", 5)
    views.add("k", -7)
    assert (views.get("k").value, views.get("k").pending) == (-2, 12)
    views.sync_worker().run_once()
    views.add("k", -1)
    views.add("k", 0)
    assert (views.get("k").value, views.get("k").pending) == (-3, 1)
    views.sync_worker().run_once()
    assert (views.get("k").value, views.get("k").pending) == (-3, 0)


def test_a_local_add_is_seen_elsewhere_after_a_flush(database: Database, cache: Redis) -> None:
    here = WriteBehindCounter(database, cache, flush_interval=60)
    there = WriteBehindCounter(database, cache)
    here.create_tables()
    here.add("k", 3, ack="local")
    assert [int(each.get("k")) for each in (here, there)] == [3, 0]
    assert (here.stats()["at_risk"], here.stats()["pending_cells"]) == (3, 1)
    assert here.flush() == hotcount.FlushReport(acked=1, pending=0, at_risk=0)
    assert [int(each.get("k")) for each in (here, there)] == [3, 3]
    assert here.stats()["at_risk"] == 0


def test_a_local_add_is_flushed_by_itself(database: Database, cache: Redis) -> None:
    views = WriteBehindCounter(database, cache, flush_interval=0.02)
    views.create_tables()
    views.add("k", ack="local")
    eventually(lambda: keys_in(cache) == {b"k"})


def test_close_flushes_what_is_local(database: Database, cache: Redis) -> None:
    other = WriteBehindCounter(database, cache)
    other.create_tables()
    with WriteBehindCounter(database, cache, flush_interval=60) as views:
        views.add("k", 3, ack="local")
    assert other.get("k") == 3
    with pytest.raises(hotcount.ClosedError):
        views.add("k")


def test_who_closes_the_store_first_is_told_what_is_lost(database: Database, cache: Redis) -> None:
    views = WriteBehindCounter(database, cache, flush_interval=60)
    views.create_tables()
    views.add("k", 3, ack="local")
    cache.close()
    with pytest.warns(RuntimeWarning, match="3 adds were not sent"):
        views.close()
    views.close()


def test_an_add_with_ack_sql_is_in_sql(views: WriteBehindCounter, cache: Redis) -> None:
    views.add("k", 2)
    views.add("k", 3, ack="sql")
    # With it went what the same cell had before.
    count = views.get("k")
    assert (count.value, count.pending) == (5, 0)
    views.sync_worker().run_once()
    assert views.get("k") == 5
    assert keys_in(cache) == set()


def test_reset_takes_what_get_counts_wherever_it_is(
    views: WriteBehindCounter, cache: Redis, database: Database
) -> None:
    assert views.reset("k") == 0
    views.add("k", 3)
    views.sync_worker().run_once()
    views.add("k", 4)
    views.add("k", 5, ack="local")
    views.add("other", 6)
    with WriteBehindCounter(database, cache, flush_interval=60) as elsewhere:
        elsewhere.add("k", 7)
        elsewhere.add("k", 8, ack="local")  # Not sent yet: counted afterwards.
        assert [views.reset("k"), views.reset("k"), int(views.get("k"))] == [19, 0, 0]
    assert [int(views.get(key)) for key in ("k", "other")] == [8, 6]
    views.sync_worker().run_once()
    assert (views.get("k").value, views.get("k").pending) == (8, 0)
    views.add("k", -10)
    assert [views.reset("k"), int(views.get("k"))] == [-2, 0]
    # Redis may lose what it had: the count was brought to SQL before.
    views.add("k", 9)
    assert views.reset("k") == 9
    cache.execute("FLUSHALL")
    views.flush()
    views.sync_worker().run_once()
    assert views.get("k") == 0


def test_resets_and_adds_of_many_threads_sum_exactly(views: WriteBehindCounter) -> None:
    worker = views.sync_worker()
    acks: tuple[Any, ...] = ("cache", "local", "sql")
    taken: list[int] = []

    def run(thread: int) -> None:
        for number in range(30):
            views.add("k", 1 + number % 3, ack=acks[number % 3])
            if number % 10 == 5:
                taken.append(views.reset("k"))
            if thread == 0:
                worker.run_once()

    together(run)
    assert sum(taken) + int(views.get("k")) == THREADS * 60
    assert min(taken) >= 0


@pytest.mark.parametrize("ack", ["cache", "local", "sql"])
def test_adds_of_many_threads_sum_exactly(views: WriteBehindCounter, ack: str) -> None:
    worker = views.sync_worker()

    def work(index: int) -> None:
        for i in range(10):
            views.add("hot", index + 1, ack=ack)  # type: ignore[arg-type]
            views.add(f"k{i}", -1, ack=ack)  # type: ignore[arg-type]
            if index == 0:
                worker.run_once()

    together(work)
    total = 10 * sum(range(1, THREADS + 1))
    assert views.get("hot") == total
    assert views.flush().pending == 0
    worker.run_once()
    assert (views.get("hot").value, views.get("hot").pending) == (total, 0)
    assert all(views.get(f"k{i}") == -THREADS for i in range(10))


def test_cells_that_sql_has_make_room_for_others(database: Database, cache: Redis) -> None:
    views = WriteBehindCounter(database, cache, max_cells=4, flush_interval=0.02)
    views.create_tables()
    for i in range(4):
        views.add(f"k{i}", 10)
    with pytest.raises(hotcount.CapacityError, match="max_cells"):
        views.add("k4")
    assert views.get("k4") == 0
    views.add("k0", 1)  # It has a cell.
    views.sync_worker().run_once()
    eventually(lambda: views.stats()["unapplied_cells"] == 0)
    for i in range(4, 8):
        views.add(f"k{i}", 10, ack="sql")
    # Cells that were dropped begin anew, under another id.
    for i in range(8):
        views.add(f"k{i}", 5, ack="sql")
    views.sync_worker().run_once()
    assert [views.get(f"k{i}").value for i in range(8)] == [16, *[15] * 7]
    assert views.stats()["writers"] > 1
    assert views.stats()["cells"] <= 4


def test_a_sum_beyond_64_bits_is_an_error_and_stops_no_other_key(views: WriteBehindCounter) -> None:
    views.add("full", INT64_MAX, ack="sql")
    with pytest.raises(hotcount.CounterOverflowError, match="full"):
        views.add("full", ack="sql")
    assert views.get("full") == INT64_MAX
    views.add("full", 5)
    views.add("a", 1)
    worker = views.sync_worker()
    with pytest.raises(hotcount.CounterOverflowError, match="full"):
        worker.run_once()
    assert (views.get("a").value, views.get("a").pending) == (1, 0)
    with pytest.raises(hotcount.CounterOverflowError, match="full"):
        views.get("full")
    views.add("full", -5)
    worker.run_once()
    assert (views.get("full").value, views.get("full").pending) == (INT64_MAX, 0)


def test_a_key_of_something_else_stops_no_other(views: WriteBehindCounter, cache: Redis) -> None:
    views.add("bad")
    views.add("good", 2)
    (cells,) = cache.execute("KEYS", f"{cache.prefix!s}views:*:c:bad")
    cache.execute("HSET", cells, "somebody", "nothing")
    with pytest.raises(hotcount.WrongTypeError, match="bad"):
        views.sync_worker().run_once()
    with pytest.raises(hotcount.WrongTypeError, match="bad"):
        views.get("bad")
    assert (views.get("good").value, views.get("good").pending) == (2, 0)
    cache.execute("HDEL", cells, "somebody")
    views.sync_worker().run_once()
    assert (views.get("bad").value, views.get("bad").pending) == (1, 0)


def test_keys_are_bytes_of_any_kind_that_the_database_takes(views: WriteBehindCounter) -> None:
    for key in ("é", "a b", "{x}", "a:b", "K", "k", "k "):
        views.add(key, 2)
    views.sync_worker().run_once()
    for key in ("a b", "{x}", "a:b", "K", "k", "k "):
        assert views.get(key) == 2
    assert views.get("é".encode()) == 2
    for bad in ("", "x" * 1001, "a\0b"):
        with pytest.raises(hotcount.ConfigError):
            views.add(bad)
    with pytest.raises(TypeError, match="key"):
        views.add(7)  # type: ignore[arg-type]
    with pytest.raises(hotcount.ConfigError, match="ack"):
        views.add("k", ack="maybe")  # type: ignore[arg-type]
    with pytest.raises(hotcount.ConfigError, match="n is"):
        views.add("k", -(2**63))


def test_a_forked_child_counts_under_an_id_of_its_own(views: WriteBehindCounter) -> None:
    views.add("k", 10)
    views.add("k", 1, ack="local")
    in_child(lambda: views.add("k", 100))
    views.add("k", 1000)
    assert views.flush().pending == 0
    assert views.get("k") == 1111
    views.sync_worker().run_once()
    assert (views.get("k").value, views.get("k").pending) == (1111, 0)


def test_loops_count_as_threads_do(database: Database, cache: Redis) -> None:
    views = aio.WriteBehindCounter(database, cache, flush_interval=0.02)

    async def main() -> list[int]:
        await views.create_tables()
        ack: Any
        for ack in ("cache", "local", "sql"):
            await asyncio.gather(*(views.add(f"k{i % 3}", 2, ack=ack) for i in range(60)))
        assert (await views.flush()).pending == 0
        counts = [int(await views.get(f"k{i}")) for i in range(3)]
        await views.aclose()
        return counts

    worker = views.sync_worker()
    assert asyncio.run(main()) == [120, 120, 120]
    with pytest.raises(hotcount.ClosedError):
        worker.run_once()
    other = WriteBehindCounter(database, cache)
    other.sync_worker().run_once()
    assert (other.get("k0").value, other.get("k0").pending) == (120, 0)


def test_a_redis_that_evicts_keys_is_refused(database: Database, own_redis: RedisServer) -> None:
    cache = own_redis.redis()
    cache.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(hotcount.ConfigError, match="allkeys-lru"):
        WriteBehindCounter(database, cache)
    cache.execute("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    WriteBehindCounter(database, cache)


OUT_OF_RANGE = {
    "table": "", "flush_interval": 61, "max_cells": 0, "interval": 3601,
}  # fmt: skip


@pytest.mark.parametrize(("option", "value"), OUT_OF_RANGE.items())
def test_an_option_out_of_range_is_refused_by_name(cache: Redis, option: str, value: Any) -> None:
    with pytest.raises(hotcount.ConfigError, match=option):
        WriteBehindCounter("sqlite:///:memory:", cache, **{option: value})


def test_memory_is_no_cache_for_it() -> None:
    with pytest.raises((TypeError, hotcount.ConfigError), match="Redis"):
        WriteBehindCounter("sqlite:///:memory:", "memory://")
