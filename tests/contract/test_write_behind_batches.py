"""add_many and get_many of a WriteBehindCounter, on every database."""

import asyncio

import hotcount
import pytest
from hotcount import Database, Redis, WriteBehindCounter, aio

from tests.support.servers import RedisServer

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize("ack", ["cache", "local", "sql"])
def test_a_batch_is_counted_as_its_adds(views: WriteBehindCounter, ack: str) -> None:
    added = views.add_many(["a", "b", "a", "c"], [1, 2, 3, 0], ack=ack)  # type: ignore[arg-type]
    assert list(added) == [1, 2, 3, 0]
    views.add_many({b"b": -5, b"\xc3\xa9": 7}, ack=ack)  # type: ignore[arg-type]
    counts = views.get_many(["a", "b", "c", "never", "a", "é"])
    assert list(counts.value) == [4, -3, 0, 0, 4, 7]
    assert list(counts.pending) == ([0] * 6 if ack == "sql" else [4, 7, 0, 0, 4, 7])
    assert views.flush().pending == 0
    views.sync_worker().run_once()
    counts = views.get_many(["a", "b", "é"])
    assert list(counts.value) == [4, -3, 7]
    assert list(counts.pending) == [0, 0, 0]


def test_many_keys_of_writers_are_read_as_one_by_one(database: Database, cache: Redis) -> None:
    keys = [f"k{i}" for i in range(1200)]
    writers = [WriteBehindCounter(database, cache) for _ in range(2)]
    writers[0].create_tables()
    writers[0].add_many(keys, range(1200))
    writers[0].sync_worker().run_once()
    for writer in writers:
        writer.add_many(keys[::2], 10)
    counts = writers[0].get_many(keys)
    assert list(counts.value) == [i + (20 if i % 2 == 0 else 0) for i in range(1200)]
    assert [counts[i] == writers[0].get(keys[i]) for i in (0, 1, 1199)] == [True] * 3


def test_one_key_that_is_refused_leaves_the_others(views: WriteBehindCounter, cache: Redis) -> None:
    added = views.add_many({"a": 1, "": 2, "b": 2**64, "c": 3}, errors="return")
    assert (added[0], added[3], sorted(added.errors)) == (1, 3, [1, 2])
    with pytest.raises(hotcount.BatchError) as failed:
        views.add_many(["d", "full", "full"], [1, INT64_MAX, 1])
    assert sorted(failed.value.errors) == [2]
    views.add_many({"full": 1}, ack="local")
    with pytest.raises(hotcount.BatchError) as unread:
        views.get_many(["a", "full", "x" * 1001])
    assert sorted(unread.value.errors) == [1, 2]
    assert unread.value.result.value[0] == 1
    assert list(views.get_many(["c", "d"]).value) == [3, 1]
    assert list(views.add_many(["even", "even"], [5, -5])) == [5, -5]
    assert views.get_many(["even"])[0].pending == 0
    assert views.add_many([]) == []
    assert list(views.get_many([]).value) == []


def test_what_redis_refuses_is_counted_nowhere(database: Database, own_redis: RedisServer) -> None:
    cache = own_redis.redis()
    views = WriteBehindCounter(database, cache, flush_interval=60)
    views.create_tables()
    cache.execute("CONFIG", "SET", "maxmemory", "1")
    added = views.add_many(["a", "b", "a"], errors="return")
    assert sorted(added.errors) == [0, 1, 2]
    assert all("OOM" in str(error) for error in added.errors.values())
    cache.execute("CONFIG", "SET", "maxmemory", "0")
    assert list(views.get_many(["a", "b"]).value) == [0, 0]
    assert views.stats()["at_risk"] == 0


def test_loops_add_and_read_many(database: Database, cache: Redis) -> None:
    async def main() -> list[int]:
        async with aio.WriteBehindCounter(database, cache) as views:
            await views.create_tables()
            await asyncio.gather(*(views.add_many({"a": 1, "b": 2}) for _ in range(10)))
            return list((await views.get_many(["a", "b", "c"])).value)

    assert asyncio.run(main()) == [10, 20, 0]
