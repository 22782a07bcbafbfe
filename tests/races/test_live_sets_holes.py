"""Forces the races of upserts that check and add in separate commands; the script has none.

CLIENT PAUSE ... WRITE makes the stall: the server answers EXISTS and PTTL at once and holds back
every write until the pause ends. A caller with two steps therefore checks a set that exists, and
its ZADD arrives after the set has expired. The result is a set of one member without a TTL.
"""

import threading
import time
from collections.abc import Callable
from functools import partial

import hotcount
import pytest
import redis
from hotcount import Upsert

from notebooks import ways
from tests.support.servers import RedisServer

LIFE = 0.3
STALL = 0.6


@pytest.fixture
def store(own_redis: RedisServer) -> hotcount.Redis:
    return own_redis.redis(timeout=10)


def stall(store: hotcount.Redis) -> None:
    """For STALL seconds from now on the server answers reads and holds back writes."""
    store.execute("CLIENT", "PAUSE", int(STALL * 1000), "WRITE")


def rogues(store: hotcount.Redis) -> list[str | bytes]:
    """The keys that the sweeper would delete."""
    return list(hotcount.LiveSets(store).sweep("*", dry_run=True).keys)


def through_a_stall(store: hotcount.Redis, upsert: Callable[..., object], key: str = "k") -> object:
    """Upserts a member "late" into a set that expires while the write waits."""
    hotcount.LiveSets(store).create(key, LIFE, {"a": 1, "b": 2})
    stall(store)
    began = time.monotonic()
    answer = upsert(key, "late", 3)
    assert time.monotonic() - began > LIFE, "the write was not held back"
    return answer


@pytest.mark.parametrize(
    "way",
    [ways.exists_then_add, partial(ways.ttl_gate, gate_ms=50)],
    ids=["exists_then_add", "ttl_gate"],
)
def test_a_stall_between_the_two_steps_revives_an_expired_set(
    store: hotcount.Redis, plain: redis.Redis, way: Callable[..., bool]
) -> None:
    assert through_a_stall(store, partial(way, plain)) is True
    assert rogues(store) == ["k"]
    assert hotcount.LiveSets(store).range("k", 0, -1) == [("late", 3.0)]


def test_live_sets_with_ttl_gate_have_the_hole_of_the_gate(store: hotcount.Redis) -> None:
    sets = hotcount.LiveSets(store, method="ttl_gate", gate=0.05)
    assert through_a_stall(store, sets.upsert) is Upsert.APPLIED
    assert rogues(store) == ["k"]


def test_ttl_gate_is_right_while_the_gate_outlives_the_stall(store: hotcount.Redis) -> None:
    sets = hotcount.LiveSets(store, method="ttl_gate", gate=STALL + 1)
    sets.create("k", STALL + 5, {"a": 1})
    stall(store)
    assert sets.upsert("k", "b", 2) is Upsert.APPLIED
    assert rogues(store) == []
    assert store.execute("PTTL", "k") > 0


def test_unguarded_pipeline_makes_the_set(store: hotcount.Redis, plain: redis.Redis) -> None:
    assert ways.unguarded_pipeline(plain, "k", "a", 1) is False
    assert rogues(store) == ["k"]


def test_exists_then_add_writes_without_a_ttl(store: hotcount.Redis, plain: redis.Redis) -> None:
    store.execute("ZADD", "rogue", 1, "a")
    assert ways.exists_then_add(plain, "rogue", "b", 2)
    assert hotcount.LiveSets(store).upsert("rogue", "c", 3) is Upsert.NO_TTL
    assert store.execute("ZCARD", "rogue") == 2


def test_watch_leaves_an_expired_set_alone(store: hotcount.Redis, plain: redis.Redis) -> None:
    # Before Redis 6.2.5 EXEC ran although the watched key had expired.
    assert through_a_stall(store, partial(ways.watch, plain)) is False
    assert store.execute("EXISTS", "k") == 0


@pytest.mark.parametrize("version", [None, 7])
def test_the_script_leaves_an_expired_set_alone(store: hotcount.Redis, version: int | None) -> None:
    sets = hotcount.LiveSets(store)
    sets.create("k", LIFE, {"a": 1, "b": 2})
    stall(store)
    assert sets.upsert("k", "late", 3, version=version) is Upsert.ABSENT
    assert store.execute("EXISTS", "k") == 0
    assert store.execute("KEYS", "*") == [b"{k}:versions.1"]


def test_a_batch_of_the_script_decides_each_set_when_it_runs(store: hotcount.Redis) -> None:
    sets = hotcount.LiveSets(store)
    sets.create("short", LIFE, {"a": 1})
    sets.create("long", 60, {"a": 1})
    stall(store)
    answers = sets.upsert_many([("short", "b", 2), ("long", "b", 2), ("short", "c", 3)])
    assert answers == [Upsert.ABSENT, Upsert.APPLIED, Upsert.ABSENT]
    assert rogues(store) == []


def test_the_sweeper_finds_what_was_left(store: hotcount.Redis, plain: redis.Redis) -> None:
    assert through_a_stall(store, partial(ways.exists_then_add, plain), "exists_then_add:k")
    assert through_a_stall(store, partial(ways.ttl_gate, plain, gate_ms=50), "ttl_gate:k")
    ways.unguarded_pipeline(plain, "unguarded_pipeline:k", "late", 1)
    right = hotcount.LiveSets(store, prefix="script")
    right.create("dead", LIFE, {"a": 1})
    right.create("live", 60, {"a": 1})
    stall(store)
    right.upsert_many([("dead", "late", 1, 1), ("live", "late", 1, 1)])
    for name, command in (
        ("string", ("SET", "string", "x")),
        ("hash", ("HSET", "hash", "f", "v")),
        ("list", ("LPUSH", "list", "x")),
    ):
        assert store.execute(*command) is not None, name

    report = hotcount.LiveSets(store).sweep("*")
    assert sorted(report.keys) == ["exists_then_add:k", "ttl_gate:k", "unguarded_pipeline:k"]
    assert (report.found, report.deleted) == (3, 3)
    assert store.execute("EXISTS", "string", "hash", "list", "script:live") == 4
    assert right.top("live", 2) == [("late", 1.0), ("a", 1.0)]


def test_a_set_that_gets_a_ttl_is_kept(own_redis: RedisServer, store: hotcount.Redis) -> None:
    for key in ("healed", "leak"):
        store.execute("ZADD", key, 1, "a")
    # Another timeout gives the store a connection of its own. On a shared one the waiting PEXPIRE
    # would delay the commands behind it.
    with own_redis.redis(timeout=9) as other:
        stall(store)
        healer = threading.Thread(target=lambda: other.execute("PEXPIRE", "healed", 60_000))
        healer.start()
        time.sleep(0.2)  # PEXPIRE waits in the pause now, ahead of the sweeper's script.
        report = hotcount.LiveSets(store).sweep("*")
        healer.join()
    assert (report.found, report.deleted) == (2, 1)
    assert store.execute("EXISTS", "leak") == 0
    assert store.execute("PTTL", "healed") > 0
