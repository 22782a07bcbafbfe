"""Caches on a cluster: what waits there for SQL, beside moved slots and failovers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hotcount
import hotcount.aio
import pytest

from tests.support.redis_cluster import RedisCluster
from tests.support.sqlalchemy_side import both_sides
from tests.support.wrong_clock import WrongClock

pytestmark = [pytest.mark.server, pytest.mark.alone]

ITEMS = list(range(1, 41))
KEYS = [f"page:{number}" for number in ITEMS]


def reshard(cluster: RedisCluster) -> None:
    own = [slot for slot, port in enumerate(cluster.owners()) if port == cluster.nodes[0].port]
    # Half of that primary's slots, so that streams and cells are among them.
    for slot in own[::2]:
        cluster.reshard(0, 1, range(slot, slot + 1))


def fail_over(cluster: RedisCluster) -> None:
    cluster.fail_over(3)


def kill(cluster: RedisCluster) -> None:
    cluster.kill(0)
    cluster.wait_ok()


class Running:
    """Calls `one` again and again, in threads, until the block ends."""

    def __init__(self, one: Callable[[int], None]) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(one, i)) for i in range(4)]
        self.failed: list[BaseException] = []

    def _run(self, one: Callable[[int], None], first: int) -> None:
        try:
            number = first
            while not self._stop.is_set():
                one(number)
                number += 4
        except BaseException as error:  # The test's thread raises it.
            self.failed.append(error)

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()
        time.sleep(0.5)

    def __exit__(self, *_: object) -> None:
        time.sleep(0.5)
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.failed


@pytest.mark.parametrize("strike", [reshard, pytest.param(fail_over, marks=pytest.mark.long)])
def test_votes_that_wait_are_all_written(
    cluster: RedisCluster, tmp_path: Path, strike: Callable[[RedisCluster], None]
) -> None:
    acknowledged: set[tuple[int, int]] = set()
    with (
        hotcount.Database(f"sqlite:///{tmp_path}/votes.db") as database,
        hotcount.Redis(cluster.url, timeout=10) as store,
    ):
        votes = hotcount.Votes(database, store, "write_behind", interval=0.05)
        votes.create_tables()
        votes.add_items(ITEMS)

        def cast(number: int) -> None:
            vote = ITEMS[number % len(ITEMS)], 1000 + number
            votes.cast(*vote)
            acknowledged.add(vote)

        worker = votes.sync_worker()
        with Running(cast):
            worker.run_once()
            strike(cluster)
            worker.run_once()
        report = votes.flush(timeout=30)
        assert report.at_risk == 0
        assert len(acknowledged) > 200
        expected = Counter(item for item, _ in acknowledged)
        assert [int(votes.count(item)) for item in ITEMS] == [expected[item] for item in ITEMS]
        assert votes.stats()["refused_votes"] == 0


def test_a_promoted_replica_whose_clock_is_behind_gives_later_versions(tmp_path: Path) -> None:
    """Its streams are behind as well: SQL has versions that it has never seen."""
    behind = WrongClock(tmp_path).environment(-1000)
    lasting = ("--repl-timeout", "86400")  # Some of it is by time(), which is right.
    with (
        RedisCluster(tmp_path, config=lasting, replica_environment=behind).started() as cluster,
        hotcount.Database(f"sqlite:///{tmp_path}/votes.db") as database,
        hotcount.Redis(cluster.url, timeout=10) as store,
    ):
        votes = hotcount.Votes(database, store, "write_behind", missing_items="create")
        in_a_loop = hotcount.aio.Votes(database, store, "write_behind")
        votes.create_tables()

        async def cast_in_a_loop(value: int) -> None:
            await in_a_loop.cast_many(ITEMS, [2] * len(ITEMS), value)

        def cast(value: int) -> None:
            votes.cast_many(ITEMS, [1] * len(ITEMS), value)
            asyncio.run(cast_in_a_loop(value))

        cast(1)
        cluster.wait_replicas()
        cluster.stop_replication(0)
        cast(-1)
        assert votes.sync_worker().run_once().unsettled == 0
        assert [int(votes.get(item, user)) for item in ITEMS for user in (1, 2)] == [-1] * 80
        cluster.nodes[3].run("CLUSTER", "FAILOVER", "TAKEOVER")
        cluster.wait_ok()
        cast(1)
        assert votes.flush(timeout=30).at_risk == 0
        assert [int(votes.get(item, user)) for item in ITEMS for user in (1, 2)] == [1] * 80
        assert [int(count) for count in votes.count_many(ITEMS)] == [2] * len(ITEMS)


@pytest.mark.parametrize(
    "strike", [kill, *(pytest.param(one, marks=pytest.mark.long) for one in (reshard, fail_over))]
)
def test_adds_of_a_write_behind_counter_outlive_a_primary(
    cluster: RedisCluster, tmp_path: Path, strike: Callable[[RedisCluster], None]
) -> None:
    # What the primary had acknowledged and its replica never got is sent again by its writer.
    added: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    lock = threading.Lock()
    with (
        hotcount.Database(f"sqlite:///{tmp_path}/views.db") as database,
        hotcount.Redis(cluster.url, timeout=10) as store,
        hotcount.WriteBehindCounter(database, store, flush_interval=0.05) as views,
    ):
        views.create_tables()

        def add(number: int) -> None:
            key = KEYS[number % len(KEYS)]
            known = added
            try:
                views.add(key, ack="cache" if number % 3 else "local")
            except hotcount.OutcomeUnknownError:
                known = unknown
            with lock:
                known[key] += 1

        worker = views.sync_worker()
        with Running(add):
            worker.run_once()
            strike(cluster)
            worker.run_once()
        assert views.flush(timeout=30).at_risk == 0
        worker.run_once()
        assert sum(added.values()) > 200
        for key in KEYS:
            assert added[key] <= int(views.get(key)) <= added[key] + unknown[key]


def test_copies_of_counts_are_on_all_nodes(
    cluster: RedisCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sides = both_sides(request, "postgresql", tmp_path / "votes.db")
    with hotcount.Redis(cluster.url, timeout=10) as store:
        votes = hotcount.Votes(sides.database, store, fold_interval=3600)
        votes.create_tables()
        votes.add_items(ITEMS)
        for item in ITEMS:
            votes.cast(item, 1)
        votes.flush()
        counts = votes.count_many(ITEMS)
        assert [int(count) for count in counts] == [1] * len(ITEMS)
        assert {votes.count(item).source for item in ITEMS} == {"cache"}
        assert all(node.client.keys("*") for node in cluster.nodes)
    sides.close()
