"""Which set is there: one that lost its last member is, one that lost its versions is not."""

import asyncio
import time
from collections.abc import Callable

import hotcount
import hotcount.aio
import pytest
from hotcount import LiveSets, Redis, Upsert

from tests.support.errors import kinds
from tests.support.servers import RedisServer
from tests.support.stores import Store


@pytest.mark.parametrize("version", [None, 1])
def test_a_set_that_loses_its_last_member_lives_on(sets: LiveSets, version: int | None) -> None:
    sets.create("k", 60, {"a": 1})
    assert sets.remove("k", "a", version) is Upsert.APPLIED
    assert sets.top("k", 10) == []
    assert sets.rank("k", "a") is None
    assert sets.sweep("*").scanned == 0
    assert sets.upsert("k", "b", 2) is Upsert.APPLIED
    assert sets.upsert("k", "c", 3) is Upsert.APPLIED
    assert sets.top("k", 10) == [("c", 3.0), ("b", 2.0)]
    assert sets.sweep("*", dry_run=True).found == 0, "it has the rest of its TTL"


def test_versions_go_on_while_a_set_is_empty(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 1})
    assert sets.remove("k", "a", version=5) is Upsert.APPLIED
    assert sets.remove("k", "a", version=5) is Upsert.STALE
    assert sets.remove("k", "b", version=7) is Upsert.APPLIED, "before its upsert"
    assert sets.remove("k", "a") is Upsert.ABSENT
    rows = [("k", "a", 1, 5), ("k", "b", 1, 7), ("k", "a", 2, 6), ("k", "b", 2, 6)]
    assert sets.upsert_many(rows) == [Upsert.STALE, Upsert.STALE, Upsert.APPLIED, Upsert.STALE]
    assert sets.top("k", 10) == [("a", 2.0)]


def test_an_empty_set_ends_when_it_would_have_ended(sets: LiveSets) -> None:
    sets.create("k", 0.3, {"a": 1})
    sets.create("j", 0.3, {"a": 1})
    assert sets.remove("k", "a")
    assert sets.remove("j", "a")
    assert sets.upsert("j", "b", 1)  # Lives again, and no longer than that.
    time.sleep(0.35)
    for key in ("k", "j"):
        assert sets.upsert(key, "c", 1) is Upsert.ABSENT
        assert sets.upsert(key, "c", 1, version=1) is Upsert.ABSENT
        assert sets.remove(key, "c", version=2) is Upsert.ABSENT
        assert sets.top(key, 1) == []


def test_the_gate_holds_for_an_empty_set_too(counter_store: Store) -> None:
    sets = LiveSets(counter_store, gate=30)
    sets.create("short", 20, {"a": 1})
    sets.create("long", 60, {"a": 1})
    for key, answer in (("short", Upsert.EXPIRING), ("long", Upsert.APPLIED)):
        assert sets.remove(key, "a")
        assert sets.upsert(key, "b", 1) is answer
        assert sets.upsert(key, "b", 2, version=1) is answer


def test_an_empty_set_is_filled_again_by_a_batch_and_one_by_one(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 1})
    sets.remove("k", "a")
    answers = sets.upsert_many([("k", f"m{number}", number) for number in range(600)])
    assert answers == [Upsert.APPLIED] * 600
    assert len(sets.range("k", 0, -1)) == 600
    sets.create("j", 60, {"m0": 1})
    for number in range(20):
        assert sets.remove("j", f"m{number}") is Upsert.APPLIED
        assert sets.upsert("j", f"m{number + 1}", 1) is Upsert.APPLIED
    assert sets.top("j", 9) == [("m20", 1.0)]


def test_a_create_takes_an_empty_sets_place(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 1})
    sets.remove("k", "a")
    sets.create("k", 0.2, {"b": 1})
    time.sleep(0.25)
    assert sets.upsert("k", "c", 1) is Upsert.ABSENT, "of the first set nothing is left"


def test_ttl_gate_sees_a_server_that_has_no_such_key(counter_store: Store, sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 1})
    sets.remove("k", "a")
    other = LiveSets(counter_store, method="ttl_gate")
    assert other.upsert("k", "b", 1) is Upsert.ABSENT
    assert sets.upsert("k", "b", 1) is Upsert.APPLIED
    assert other.remove("k", "b") is Upsert.APPLIED
    assert sets.upsert("k", "b", 1) is Upsert.ABSENT, "its remove is ZREM, and no more"


def test_a_key_that_can_have_no_companion_goes_with_its_last_member() -> None:
    with hotcount.Memory() as memory:
        sets = LiveSets(memory)
        sets.create("a}b", 60, {"a": 1})
        assert sets.remove("a}b", "a") is Upsert.APPLIED
        assert sets.upsert("a}b", "a", 1) is Upsert.ABSENT


@pytest.fixture
def redis(own_redis: RedisServer) -> hotcount.Redis:
    return own_redis.redis(timeout=20)


def make_feed(redis: hotcount.Redis, key: str = "feed") -> None:
    """As another program makes one."""
    redis.execute("ZADD", key, 1, "a")
    redis.execute("EXPIRE", key, 60)


def test_a_set_whose_versions_were_lost_is_absent_rather_than_wrong(redis: hotcount.Redis) -> None:
    sets = LiveSets(redis)
    sets.create("k", 60, {"a": 1})
    assert sets.upsert("k", "a", 9, version=9) is Upsert.APPLIED
    assert redis.execute("DEL", "{k}:versions.1") == 1
    assert sets.upsert("k", "a", 5, version=5) is Upsert.ABSENT
    assert sets.upsert("k", "a", 10, version=10) is Upsert.ABSENT
    assert sets.remove("k", "a", version=11) is Upsert.ABSENT
    assert sets.top("k", 9) == [("a", 9.0)]
    assert redis.execute("EXISTS", "{k}:versions.1") == 0

    assert sets.upsert("k", "b", 1) is Upsert.APPLIED, "without a version there is nothing to lose"
    sets.create("k", 60, {"a": 9})
    assert sets.upsert("k", "a", 10, version=10) is Upsert.APPLIED


def test_a_set_that_others_made_gets_versions_with_its_first(redis: hotcount.Redis) -> None:
    sets = LiveSets(redis)
    make_feed(redis)
    assert sets.upsert("feed", "b", 2) is Upsert.APPLIED
    assert redis.execute("DBSIZE") == 1, "without a version it needs nothing beside it"
    assert sets.upsert("feed", "b", 3, version=7) is Upsert.APPLIED
    assert sets.upsert("feed", "b", 4, version=6) is Upsert.STALE
    for key in ("{feed}:versions.1", "{feed}:versions.1:used"):
        assert redis.execute("PTTL", key) > 60_000, "and it outlives the set"
    assert redis.execute("DEL", "{feed}:versions.1") == 1
    assert sets.upsert("feed", "b", 4, version=6) is Upsert.ABSENT, "lost, from then on"


def test_a_tombstone_is_left_in_a_set_that_others_made(redis: hotcount.Redis) -> None:
    sets = LiveSets(redis)
    make_feed(redis)
    assert sets.remove("feed", "a", version=7) is Upsert.APPLIED
    assert sets.upsert("feed", "a", 4, version=6) is Upsert.STALE
    assert sets.upsert("feed", "b", 1) is Upsert.APPLIED, "it is empty, and lives"
    assert redis.execute("PTTL", "feed") > 50_000
    assert sets.remove("gone", "a", version=1) is Upsert.ABSENT
    assert redis.execute("KEYS", "*gone*") == []


def test_a_set_without_members_that_others_emptied_is_absent(redis: hotcount.Redis) -> None:
    sets = LiveSets(redis)
    make_feed(redis)
    assert sets.remove("feed", "a") is Upsert.APPLIED
    assert sets.upsert("feed", "c", 1) is Upsert.ABSENT
    assert redis.execute("DBSIZE") == 0


def test_a_deleted_set_is_absent_though_its_companion_key_is_left(redis: hotcount.Redis) -> None:
    sets = LiveSets(redis)
    for command in (("DEL", "k"), ("ZREM", "k", "a"), ("PEXPIRE", "k", 0)):
        sets.create("k", 60, {"a": 1})
        assert redis.execute(*command) == 1
        assert redis.execute("EXISTS", "{k}:versions.1") == 1
        assert sets.upsert("k", "b", 1) is Upsert.ABSENT
        assert sets.upsert("k", "b", 1, version=1) is Upsert.ABSENT
        assert redis.execute("EXISTS", "k") == 0


def test_the_companion_outlives_a_set_whose_life_was_made_longer(redis: hotcount.Redis) -> None:
    sets = LiveSets(redis)
    sets.create("k", 1, {"a": 1})
    redis.execute("PEXPIRE", "k", 60_000)
    sets.remove("k", "a")
    assert redis.execute("PTTL", "{k}:versions.1") > 3_655_000
    assert sets.upsert("k", "b", 1) is Upsert.APPLIED
    assert 50_000 < redis.execute("PTTL", "k") <= 60_000


def test_a_companion_of_another_type_is_named_where_it_is_needed(redis: hotcount.Redis) -> None:
    sets = LiveSets(redis)
    sets.create("k", 60, {"a": 1})
    redis.execute("SET", "{k}:versions.1", "mine")
    assert sets.upsert("k", "b", 2) is Upsert.APPLIED
    for call in (
        lambda: sets.upsert("k", "b", 3, version=1),
        lambda: sets.remove("k", "b", version=1),
        lambda: sets.create("k", 60, {"z": 1}),
    ):
        with pytest.raises(hotcount.WrongTypeError):
            call()
    assert sets.remove("k", "a") is Upsert.APPLIED
    assert sets.remove("k", "b") is Upsert.APPLIED
    assert sets.upsert("k", "c", 1) is Upsert.ABSENT
    assert redis.execute("GET", "{k}:versions.1") == b"mine"


@pytest.mark.parametrize("batch", [1, 3])
def test_a_user_without_companion_keys(own_redis: RedisServer, redis: Redis, batch: int) -> None:
    for key in ("feed:1", "feed:2"):
        make_feed(redis, key)
    redis.execute("ACL", "SETUSER", "feeds", "on", ">pw", "~feed:*", "+@all")
    with hotcount.Redis(own_redis.login("feeds", "pw"), timeout=20) as theirs:
        sets = LiveSets(theirs)
        rows = [("feed:1", "b", 2), ("secret", "b", 2), ("feed:2", "b", 2)]
        result = sets.upsert_many(rows, batch=batch, errors="return")
        assert list(result) == [Upsert.APPLIED, Upsert.FAILED, Upsert.APPLIED]
        assert kinds(result.errors) == {1: "PermissionDeniedError"}
        assert sets.remove("feed:1", "b") is Upsert.APPLIED
        calls: list[Callable[[], Upsert]] = [
            lambda: sets.upsert("feed:1", "b", 2, version=1),
            lambda: sets.remove("feed:1", "a", version=1),
            lambda: sets.upsert("secret", "b", 2),
        ]
        for call in calls:
            with pytest.raises(hotcount.PermissionDeniedError):
                call()


@pytest.mark.parametrize("awaited", [False, True], ids=["threads", "asyncio"])
def test_the_last_upsert_stands(own_redis: RedisServer, redis: Redis, awaited: bool) -> None:
    make_feed(redis, "feed:1")
    redis.execute("ACL", "SETUSER", "feeds", "on", ">pw", "~feed:*", "~{feed:*", "+@all")
    url = own_redis.login("feeds", "pw")
    # Of each two batches the server refuses the first, for the key "secret", and runs the second.
    rows = [
        (key, "m", n) for n in range(1, 21) for key in ("feed:1", "secret" if n % 2 else "feed:1")
    ]

    async def awaiting() -> list[Upsert]:
        async with hotcount.aio.Redis(url, timeout=20) as store:
            return list(await hotcount.aio.LiveSets(store).upsert_many(rows, 2, errors="return"))

    if awaited:
        states = asyncio.run(awaiting())
    else:
        with hotcount.Redis(url, timeout=20) as store:
            states = list(LiveSets(store).upsert_many(rows, 2, errors="return"))
    assert states == [Upsert.FAILED if key == "secret" else Upsert.APPLIED for key, _, _ in rows]
    assert float(redis.execute("ZSCORE", "feed:1", "m")) == 20


def test_a_member_without_a_ttl_is_undone(own_redis: RedisServer, redis: hotcount.Redis) -> None:
    sets = LiveSets(redis)
    sets.create("k", 60, {"a": 1})
    sets.remove("k", "a")
    redis.execute("ACL", "SETUSER", "less", "on", ">pw", "~*", "+@all", "-pexpire")
    with hotcount.Redis(own_redis.login("less", "pw"), timeout=20) as less:
        result = LiveSets(less).upsert_many([("k", "b", 1)], errors="return")
    assert result.errors.keys() == {0}
    assert redis.execute("EXISTS", "k") == 0
    assert sets.upsert("k", "b", 1) is Upsert.APPLIED
