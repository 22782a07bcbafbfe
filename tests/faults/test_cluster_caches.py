"""Caches on a cluster: what waits there for SQL, beside moved slots and failovers."""

import asyncio
import contextlib
import operator
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hotcount
import hotcount.aio
import pytest
from redis.crc import key_slot

from tests.support.eventually import BUSY, eventually
from tests.support.redis_cluster import RedisCluster
from tests.support.sqlalchemy_side import both_sides
from tests.support.together import beside
from tests.support.votes_strategies import shard_of
from tests.support.wrong_clock import WrongClock

pytestmark = [pytest.mark.server, pytest.mark.timed]

ITEMS = list(range(1, 41))
KEYS = [f"page:{number}" for number in ITEMS]


def reshard(cluster: RedisCluster) -> None:
    """Moves half of one primary's slots with streams and cells, and some of its empty ones."""
    used = {key_slot(name) for name in cluster.nodes[0].client.keys("*")}
    own = [slot for slot, port in enumerate(cluster.owners()) if port == cluster.nodes[0].port]
    for slot in sorted({*sorted(used)[::2], *own[::16]}):
        cluster.reshard(0, 1, range(slot, slot + 1))


def fail_over(cluster: RedisCluster) -> None:
    cluster.fail_over(3)


def kill(cluster: RedisCluster) -> None:
    cluster.kill(0)
    cluster.wait_ok()


class Running:
    """Calls `one` again and again, in threads: before and after the block for half a second, and in
    each thread so often."""

    OFTEN = 40

    def __init__(self, one: Callable[[int], None]) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(one, i)) for i in range(4)]
        self._calls = [0] * 4
        self.failed: list[BaseException] = []

    def _run(self, one: Callable[[int], None], first: int) -> None:
        try:
            while not self._stop.is_set():
                one(first + 4 * self._calls[first])
                self._calls[first] += 1
        except BaseException as error:  # The test's thread raises it.
            self.failed.append(error)

    def _await_more(self) -> None:
        goals = [calls + self.OFTEN for calls in self._calls]
        time.sleep(0.5)  # Rounds of a worker.
        eventually(
            lambda: bool(self.failed) or all(map(operator.ge, self._calls, goals)), seconds=60
        )

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()
        self._await_more()

    def __exit__(self, *_: object) -> None:
        try:
            self._await_more()
        finally:
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
        cluster.hold_replicas(0)
        cast(-1)
        assert votes.sync_worker().run_once().unsettled == 0
        assert [int(votes.get(item, user)) for item in ITEMS for user in (1, 2)] == [-1] * 80
        cluster.nodes[3].run("CLUSTER", "FAILOVER", "TAKEOVER")
        cluster.wait_ok()
        cast(1)
        assert votes.flush(timeout=30).at_risk == 0
        assert [int(votes.get(item, user)) for item in ITEMS for user in (1, 2)] == [1] * 80
        assert [int(count) for count in votes.count_many(ITEMS)] == [2] * len(ITEMS)


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_votes_of_a_new_process_do_not_wait_for_a_node_of_other_streams(
    cluster: RedisCluster, tmp_path: Path, in_a_loop: bool
) -> None:
    with (
        hotcount.Database(f"sqlite:///{tmp_path}/votes.db") as database,
        hotcount.Redis(cluster.url, timeout=10) as store,
        hotcount.Redis(cluster.url, timeout=10) as new_store,
    ):
        votes = hotcount.Votes(database, store, "write_behind", missing_items="create")
        votes.create_tables()
        votes.cast_many(ITEMS, [1] * len(ITEMS))
        streams = cluster.nodes[0].client.keys("waiting:*}")
        there = {int(key.rpartition(b":")[2][:-1]) for key in streams}
        away = [item for item in ITEMS if shard_of(item, 16) in there]
        others = [item for item in ITEMS if shard_of(item, 16) not in there]
        late = hotcount.Votes(database, new_store, "write_behind")
        late_in_a_loop = hotcount.aio.Votes(database, new_store, "write_behind")

        async def cast_in_a_loop() -> None:
            waiting = [asyncio.create_task(late_in_a_loop.cast(item, 2)) for item in away]
            await asyncio.sleep(0.2)
            await late_in_a_loop.cast_many(others, [2] * len(others), timeout=1 + BUSY)
            assert not any(task.done() for task in waiting)
            await asyncio.gather(*waiting, return_exceptions=True)

        cluster.pause(0)
        if in_a_loop:
            asyncio.run(cast_in_a_loop())
        else:

            def cast_away() -> None:
                with contextlib.suppress(hotcount.BatchError):
                    late.cast_many(away, [2] * len(away))

            waiting = threading.Thread(target=cast_away)
            waiting.start()
            time.sleep(0.2)
            late.cast_many(others, [2] * len(others), timeout=1 + BUSY)
            assert waiting.is_alive()
            waiting.join()
        cluster.resume(0)
        cluster.wait_ok()
        late.cast_many(away, [2] * len(away))
        assert votes.flush(timeout=30).at_risk == 0
        assert [int(count) for count in votes.count_many(ITEMS)] == [2] * len(ITEMS)


def is_right(votes: hotcount.Votes, acknowledged: set[tuple[int, int]]) -> bool:
    """Every count, of the cache and of the table, is what was cast. Nothing reconciles them."""
    expected = Counter(item for item, _ in acknowledged)
    counts = [expected[item] for item in ITEMS]
    return (
        [int(count) for count in votes.count_many(ITEMS)] == counts
        and [count.value for count in votes.count_many(ITEMS, consistency="exact")] == counts
        and votes.reconcile(dry_run=True) == []
    )


@pytest.fixture
def cached(cluster: RedisCluster, tmp_path: Path) -> Iterator[hotcount.Votes]:
    with (
        hotcount.Database(f"sqlite:///{tmp_path}/votes.db", timeout=20) as database,
        hotcount.Redis(cluster.url, timeout=10) as store,
    ):
        votes = hotcount.Votes(database, store, "cached", interval=0.05)
        votes.create_tables()
        votes.add_items(ITEMS)
        yield votes


def empty_a_node(cluster: RedisCluster) -> None:
    cluster.nodes[1].run("FLUSHALL")


@pytest.mark.parametrize("strike", [reshard, fail_over, kill, empty_a_node])
def test_counts_of_a_cache_on_a_cluster_come_out_right(
    cluster: RedisCluster, cached: hotcount.Votes, strike: Callable[[RedisCluster], None]
) -> None:
    acknowledged: set[tuple[int, int]] = set()

    def cast(number: int) -> None:
        vote = ITEMS[number % len(ITEMS)], 1000 + number
        assert cached.cast(*vote).changed
        acknowledged.add(vote)

    with beside(cached.sync_worker().run):
        with Running(cast):
            strike(cluster)
        assert len(acknowledged) > 200
        eventually(lambda: is_right(cached, acknowledged), 30)


def test_votes_that_a_failover_lost_count(cluster: RedisCluster, cached: hotcount.Votes) -> None:
    # The replica never gets the second round of votes, nor the hashes of half of the items. The
    # third round takes the versions of its hashes beyond what the worker saved before.
    acknowledged: set[tuple[int, int]] = set()

    def cast(items: list[int], users: range) -> None:
        votes = [(item, user) for item in items for user in users]
        cached.cast_many(*zip(*votes, strict=True))
        acknowledged.update(votes)

    worker = cached.sync_worker()
    cast(ITEMS[::2], range(3))
    worker.run_once()
    cluster.wait_replicas()
    cluster.hold_replicas(0)
    cast(ITEMS, range(3, 6))
    cluster.kill(0)
    cluster.wait_for_heir(0)
    cast(ITEMS[::2], range(6, 16))
    worker.run_once()
    assert worker.run_once().recounted >= len(ITEMS) // 8
    worker.run_once()
    assert is_right(cached, acknowledged)


def test_votes_that_a_primary_lost_count(cluster: RedisCluster, cached: hotcount.Votes) -> None:
    # Between two rounds of the worker: its owners are the same as in the round before.
    acknowledged: set[tuple[int, int]] = set()

    def cast(users: range) -> None:
        votes = [(item, user) for item in ITEMS for user in users]
        cached.cast_many(*zip(*votes, strict=True))
        acknowledged.update(votes)

    worker = cached.sync_worker()
    cast(range(3))
    worker.run_once()
    cluster.wait_replicas()
    cluster.hold_replicas(0)
    cast(range(3, 6))
    worker.run_once()
    cluster.nodes[3].run("CLUSTER", "FAILOVER", "TAKEOVER")
    cluster.wait_for_heir(0)
    cluster.let_replicas_follow()
    eventually(lambda: cluster.nodes[0].client.info("replication")["role"] == "slave")
    cast(range(6, 7))
    cluster.wait_replicas()
    cluster.fail_over(0)
    cast(range(7, 16))
    # Some in the first one, if the cache did not take their last votes.
    assert sum(worker.run_once().recounted for _ in range(2)) >= len(ITEMS) // 8
    worker.run_once()
    assert is_right(cached, acknowledged)


@pytest.mark.parametrize("timeout", [None, 0.5])
def test_votes_for_other_nodes_do_not_wait_for_one_that_is_away(
    cluster: RedisCluster, cached: hotcount.Votes, timeout: float | None
) -> None:
    users = range(2, 12)
    cached.cast_many(ITEMS, [1] * len(ITEMS))
    cluster.pause(0)
    began = time.monotonic()
    slow = 0
    for user in users:
        sent = time.monotonic()
        cached.cast_many(ITEMS, [user] * len(ITEMS), timeout=timeout)
        slow += time.monotonic() - sent > 0.25
    # One wait, of a second at most, and then not another before a second has passed.
    assert time.monotonic() - began < 1.5 + BUSY
    assert slow <= 4
    cluster.wait_for_heir(0)
    cluster.resume(0)
    cluster.wait_ok()
    acknowledged = {(item, user) for item in ITEMS for user in (1, *users)}
    with beside(cached.sync_worker().run):
        eventually(lambda: is_right(cached, acknowledged), 30)


def test_votes_wait_for_a_slot_that_moves(cluster: RedisCluster, cached: hotcount.Votes) -> None:
    # A script finds the hash of a shard on one node and the name on the other.
    cached.cast_many(ITEMS, [1] * len(ITEMS))
    name = next(
        name
        for item in ITEMS
        for name in cluster.nodes[0].client.keys(f"votes@*:{shard_of(item, 128)}}}")
    )
    slot = key_slot(name)
    shard = int(name.rpartition(b":")[2][:-1])
    moving = [item for item in ITEMS if shard_of(item, 128) == shard]
    others = [item for item in ITEMS if item not in moving]
    cluster.begin_moving(0, 1, slot)
    cluster.move_keys(0, 1, [name])
    began = time.monotonic()
    for user in range(2, 12):
        cached.cast_many(ITEMS, [user] * len(ITEMS))
    assert time.monotonic() - began < 1.5 + BUSY
    assert [int(count) for count in cached.count_many(others)] == [11] * len(others)
    cluster.finish_moving(0, 1, slot)
    cluster.wait_ok()
    acknowledged = {(item, user) for item in ITEMS for user in range(1, 12)}
    with beside(cached.sync_worker().run):
        eventually(lambda: is_right(cached, acknowledged), 30)


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
