"""Strategy cached: counts that a cache has lost, or did not take, and the notes of them in SQL."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import hotcount
import pytest
import redis

from tests.support.eventually import BUSY, eventually
from tests.support.redis_cluster import RedisCluster, SpareCluster
from tests.support.redis_sentinel import SentinelTrio
from tests.support.servers import RedisServer
from tests.support.sqlalchemy_side import BothSides, both_sides
from tests.support.together import in_threads
from tests.support.votes_strategies import shard_of

pytestmark = [pytest.mark.server, pytest.mark.timed]

ITEMS = list(range(1, 41))


@pytest.fixture
def sides(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BothSides]:
    made = both_sides(request, "postgresql", tmp_path / "votes.db")
    yield made
    made.close()


def make(sides: BothSides, store: hotcount.Redis, **options: Any) -> hotcount.Votes:
    votes = hotcount.Votes(sides.database, store, "cached", **options)
    votes.create_tables()
    votes.add_items(ITEMS)
    return votes


def cast(votes: hotcount.Votes, users: range, items: list[int] = ITEMS) -> None:
    pairs = [(item, user) for item in items for user in users]
    votes.cast_many(*zip(*pairs, strict=True))


def rows(sides: BothSides) -> dict[int, int]:
    """By item, item.vote_count."""
    return {int(item): int(count) for item, count in sides.run("SELECT id, vote_count FROM item")}


def noted(sides: BothSides) -> set[int]:
    return {int(item) for (item,) in sides.run("SELECT item FROM vote_recount")}


@contextlib.contextmanager
def locked(sides: BothSides, table: str, mode: str) -> Iterator[Callable[[], None]]:
    """Yields what ends the lock."""
    with sides.engine.connect() as connection:
        connection.exec_driver_sql(f"LOCK TABLE {table} IN {mode} MODE")
        yield connection.rollback


def shards_of(cluster: RedisCluster, index: int) -> set[int]:
    """The shards of counts on this node. Each shard has a name once a hash was made."""
    names = cluster.nodes[index].client.keys("votes@*")
    return {int(name.rpartition(b":")[2][:-1]) for name in names}


class Losing(Protocol):
    """A cache, and how it comes to have an older copy of its data."""

    url: str

    def keep(self) -> None:
        """Writes after this call are lost."""

    def lose(self) -> None:
        """Returns once the cache serves the older copy."""


class LosingServer:
    def __init__(self, server: RedisServer) -> None:
        self.url = server.url
        self._server = server

    def keep(self) -> None:
        with redis.Redis(unix_socket_path=str(self._server.socket)) as client:
            client.save()

    def lose(self) -> None:
        self._server.kill()
        self._server.start()


class LosingCluster:
    """A primary that is back before it is replaced: its owner and its epoch are the same."""

    def __init__(self, cluster: RedisCluster) -> None:
        self.url = cluster.url
        self._cluster = cluster

    def keep(self) -> None:
        self._cluster.nodes[0].client.save()

    def lose(self) -> None:
        self._cluster.nodes[0].kill()
        self._cluster.nodes[0].start()
        self._cluster.wait_ok()


class LosingTrio:
    def __init__(self, trio: SentinelTrio) -> None:
        self.url = trio.url
        self._trio = trio

    def keep(self) -> None:
        primary, replica = self._trio.direct(0), self._trio.direct(1)
        written = primary.info("replication")["master_repl_offset"]
        eventually(lambda: replica.info("replication")["slave_repl_offset"] >= written)
        replica.config_set("masteruser", "nobody")
        replica.config_set("masterauth", "nothing")
        replica.execute_command("CLIENT", "KILL", "TYPE", "master")

    def lose(self) -> None:
        self._trio.servers[0].kill()
        self._trio.await_primary(1)


@pytest.fixture(params=["one server", "cluster", "sentinel"])
def losing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Losing]:
    if request.param == "one server":
        with RedisServer(tmp_path).started() as server:
            yield LosingServer(server)
    elif request.param == "cluster":
        with RedisCluster(tmp_path, replicas=False).started() as cluster:
            yield LosingCluster(cluster)
    else:
        with SentinelTrio().started() as trio:
            yield LosingTrio(trio)


def test_counts_of_a_server_with_an_older_copy(sides: BothSides, losing: Losing) -> None:
    # The votes that follow take the versions of the hashes beyond what the worker saved before.
    with hotcount.Redis(losing.url, timeout=10) as store:
        votes = make(sides, store)
        worker = votes.sync_worker()
        cast(votes, range(3))
        worker.run_once()
        losing.keep()
        cast(votes, range(3, 6))
        worker.run_once()
        losing.lose()
        cast(votes, range(6, 16))
        eventually(lambda: worker.run_once(timeout=20).unsettled == 0)
        assert votes.reconcile(dry_run=True) == []
        assert rows(sides) == dict.fromkeys(ITEMS, 16)


def test_a_hash_that_comes_back_behind_the_scan_of_a_round_is_recounted(
    sides: BothSides, own_redis: RedisServer, plain: redis.Redis
) -> None:
    # It was deleted in order, so that neither the round nor SQL expects it.
    with own_redis.redis(timeout=10) as store:
        votes = make(sides, store, retention=0.5)
        worker = votes.sync_worker()

        def only_the_name_is_left() -> bool:
            worker.run_once()
            return bool(plain.dbsize() == 1)

        cast(votes, range(3))
        worker.run_once()
        plain.save()
        eventually(only_the_name_is_left)
        cast(votes, range(3, 6))
        eventually(only_the_name_is_left)
        worker.run_once()  # It forgets them.
        votes.add_items([100])
        votes.cast(100, 1)
        with locked(sides, "vote_sync", "SHARE") as unlock:
            round_ended = in_threads(lambda _: worker.run_once(timeout=20), range(1))
            eventually(lambda: sides.run("SELECT 1 FROM pg_locks WHERE NOT granted") != [])
            own_redis.kill()
            own_redis.start()
            cast(votes, range(6, 7))
            unlock()
            round_ended()
        eventually(lambda: worker.run_once(timeout=20).unsettled == 0)
        assert votes.reconcile(dry_run=True) == []
        assert rows(sides) == {**dict.fromkeys(ITEMS, 7), 100: 1}


def test_a_worker_remembers_lost_counts(sides: BothSides, own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=10) as store:
        votes = make(sides, store)
        worker = votes.sync_worker()
        cast(votes, range(3))
        worker.run_once()
        cast(votes, range(3, 6))
        store.execute("FLUSHALL")
        with locked(sides, "vote_sync", "ACCESS EXCLUSIVE") as unlock:
            with pytest.raises(hotcount.HotcountError):
                worker.run_once(timeout=1)
            unlock()
        eventually(lambda: worker.run_once(timeout=20).unsettled == 0)
        assert rows(sides) == dict.fromkeys(ITEMS, 6)


@pytest.mark.parametrize("timeout", [0.8, 3.0])  # A note has a fourth of its time, 0.25 s at most.
@pytest.mark.parametrize("where", ["one server", "cluster"])
def test_a_vote_that_the_cache_did_not_take_is_noted_in_sql(
    request: pytest.FixtureRequest, sides: BothSides, where: str, timeout: float
) -> None:
    if where == "cluster":
        cluster: RedisCluster = request.getfixturevalue("cluster")
        url, away = cluster.url, cluster.nodes[0]
    else:
        away = request.getfixturevalue("own_redis")
        url = away.url
    with hotcount.Redis(url, timeout=10) as store:
        votes = make(sides, store)
        cast(votes, range(3))
        shards = shards_of(cluster, 0) if where == "cluster" else range(128)
        items = [item for item in ITEMS if shard_of(item, 128) in shards]
        with away.stopped():
            began = time.monotonic()
            votes.cast(items[0], 100, timeout=timeout)
            votes.cast_many(items[1:3], [100, 100], timeout=timeout)
            assert time.monotonic() - began < 2 * timeout + BUSY
            assert noted(sides) >= set(items[:3])


def test_callers_return_after_the_note(sides: BothSides, own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=10) as store:
        votes = make(sides, store)
        cast(votes, range(3))
        with own_redis.stopped(), locked(sides, "vote_recount", "SHARE") as unlock:

            def vote(item: int) -> bool:
                votes.cast(item, 100, timeout=20)
                return item in noted(sides)

            ended = in_threads(vote, range(1, 9))
            time.sleep(4)
            unlock()
            assert all(ended())


def test_a_count_that_was_not_filled_is_recounted(sides: BothSides, cluster: RedisCluster) -> None:
    # Neither SQL nor a worker knows of these hashes when their primary is replaced.
    with hotcount.Redis(cluster.url, timeout=10) as store:
        votes = make(sides, store)
        worker = votes.sync_worker()
        worker.run_once()
        cluster.wait_replicas()
        cluster.hold_replicas(0)
        with locked(sides, "vote_sync", "SHARE"):
            votes.cast_many(ITEMS, [1] * len(ITEMS), timeout=2)
        cluster.nodes[3].run("CLUSTER", "FAILOVER", "TAKEOVER")
        cluster.wait_ok()
        eventually(lambda: worker.run_once(timeout=20).unsettled == 0)
        assert votes.reconcile(dry_run=True) == []
        assert rows(sides) == dict.fromkeys(ITEMS, 1)


def test_a_worker_that_begins_late_recounts(sides: BothSides, cluster: RedisCluster) -> None:
    with (
        hotcount.Redis(cluster.url, timeout=10) as store,
        hotcount.Redis(cluster.url, timeout=10) as new_store,
    ):
        votes = make(sides, store)
        cast(votes, range(3))
        votes.flush()
        cluster.wait_replicas()
        cluster.hold_replicas(0)
        cast(votes, range(3, 6))
        votes.flush()
        cluster.kill(0)
        worker = hotcount.Votes(sides.database, new_store, "cached").sync_worker()
        with pytest.raises(hotcount.HotcountError):
            worker.run_once(timeout=0.5)
        cluster.wait_ok()
        cast(votes, range(6, 16))
        eventually(lambda: worker.run_once(timeout=20).unsettled == 0)
        assert votes.reconcile(dry_run=True) == []
        assert rows(sides) == dict.fromkeys(ITEMS, 16)


@pytest.fixture
def patient_cluster(spare_cluster: SpareCluster) -> Iterator[RedisCluster]:
    """Three primaries, none of which counts as failed while it is paused."""
    patient = ("--cluster-node-timeout", "60000")
    with spare_cluster.taken(replicas=False, config=patient) as cluster:
        yield cluster


def test_a_round_names_the_silent_node(sides: BothSides, patient_cluster: RedisCluster) -> None:
    cluster = patient_cluster
    with hotcount.Redis(cluster.url, timeout=10) as store:
        votes = make(sides, store)
        worker = votes.sync_worker()
        cast(votes, range(3))
        worker.run_once()
        silent = shards_of(cluster, 0)
        away = [item for item in ITEMS if shard_of(item, 128) in silent]
        others = [item for item in ITEMS if item not in away]
        # More notes than a round takes at once, before that of an item of another node.
        many = [n for n in range(-3000, 0) if shard_of(n, 128) in silent]
        wrong = next(n for n in range(1000, 2000) if shard_of(n, 128) not in silent)
        votes.add_items([*many, wrong])
        sides.run(
            f"UPDATE item SET vote_count = 5 WHERE id = {wrong}",
            f"INSERT INTO vote_recount SELECT unnest(ARRAY{[*many, wrong]}), 1",
        )
        cluster.pause(0)
        cast(votes, range(3, 6))
        began = time.monotonic()
        with pytest.raises(hotcount.HotcountError, match=str(cluster.nodes[0].port)):
            worker.run_once()
        assert time.monotonic() - began < 8 + BUSY
        found = rows(sides)
        assert [found[item] for item in (*others, wrong)] == [6] * len(others) + [0]
        assert [found[item] for item in away] == [3] * len(away)
        cluster.resume(0)
        cluster.wait_ok()
        # With a deadline it waits for that node.
        eventually(lambda: worker.run_once(timeout=20).unsettled == 0)
        assert [rows(sides)[item] for item in away] == [6] * len(away)


def test_a_flush_waits_for_a_node_away(sides: BothSides, patient_cluster: RedisCluster) -> None:
    with hotcount.Redis(patient_cluster.url, timeout=10) as store:
        votes = make(sides, store)
        cast(votes, range(3))
        patient_cluster.pause(0)
        resume = threading.Timer(3, patient_cluster.resume, [0])
        resume.start()
        assert votes.flush(timeout=20).pending == 0
        resume.join()
        assert rows(sides) == dict.fromkeys(ITEMS, 3)


def test_a_round_writes_waiting_votes_of_other_nodes_and_names_the_silent_one(
    sides: BothSides, patient_cluster: RedisCluster
) -> None:
    cluster = patient_cluster
    with hotcount.Redis(cluster.url, timeout=10) as store:
        votes = hotcount.Votes(sides.database, store, "write_behind", missing_items="create")
        votes.create_tables()
        worker = votes.sync_worker()
        cast(votes, range(1))
        worker.run_once()
        names = cluster.nodes[0].client.keys("waiting:*}")
        silent = {int(name.rpartition(b":")[2][:-1]) for name in names}
        others = [item for item in ITEMS if shard_of(item, 16) not in silent]
        cast(votes, range(1, 3))
        cluster.pause(0)
        began = time.monotonic()
        with pytest.raises(hotcount.HotcountError, match=str(cluster.nodes[0].port)):
            worker.run_once()
        assert time.monotonic() - began < 8 + BUSY
        written = dict(sides.run("SELECT item_id, count(*) FROM vote GROUP BY 1"))
        assert [written[item] for item in others] == [3] * len(others)
        cluster.resume(0)
        cluster.wait_ok()
        # It has taken pages whose replies did not come.
        worker.run_once(timeout=20)
        assert votes.flush(timeout=30).at_risk == 0
        assert sides.run("SELECT count(*) FROM vote") == [(3 * len(ITEMS),)]
