"""A Redis that evicts what hotcount keeps there: votes stay exact, because SQL has them."""

import threading
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.servers import RedisServer
from tests.support.sqlite_files import rows
from tests.support.together import beside, together


def evictions(direct: hotcount.Redis) -> int:
    stats = direct.execute("INFO", "stats").decode()
    return int(stats.partition("evicted_keys:")[2].split()[0])


def evict_again_and_again(direct: hotcount.Redis, ended: threading.Event) -> None:
    while not ended.wait(0.02):
        direct.execute("CONFIG", "SET", "maxmemory", 1)
        direct.execute("CONFIG", "SET", "maxmemory", 0)


@pytest.mark.parametrize("strategy", ["cached", "batched"])
def test_votes_are_exact_while_redis_evicts_every_key(
    strategy: Any, database_path: Path, own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    direct.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    database = hotcount.Database(f"sqlite:///{database_path}", timeout=20)
    with own_redis.redis(timeout=20) as store, hotcount.Votes(database, store, strategy) as votes:
        votes.create_tables()
        votes.add_items(range(1, 6))

        def work(caller: int) -> None:
            for user in range(100):
                votes.cast(1 + user % 5, 100 * caller + user)
                votes.count(1 + user % 5)

        with beside(lambda ended: evict_again_and_again(direct, ended)):
            together(work, 4)
        fired("evicted", evictions(direct))
        eventually(lambda: votes.flush(20).pending == 0)
        votes.reconcile()
        assert [votes.count(item, consistency="exact").value for item in range(1, 6)] == [80] * 5
        assert [int(votes.count(item)) for item in range(1, 6)] == [80] * 5
    assert rows(database_path, "SELECT vote_count FROM item ORDER BY id") == [(80,)] * 5
