"""A rebuild of a set whose builder, keys, connection or scripts are taken away."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import hotcount
import pytest
from hotcount import LiveSets, Redis, Upsert, aio

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.servers import RedisServer, calls_of
from tests.support.together import in_child

COMPANION = "{k}:versions.1"
BUILD, HASH = f"{COMPANION}:build", f"{COMPANION}:next"


@pytest.fixture
def sets(direct: hotcount.Redis) -> hotcount.LiveSets:
    sets = hotcount.LiveSets(direct)
    sets.create("k", 600, {"old": 1})
    return sets


def without_ttl(direct: hotcount.Redis) -> list[bytes]:
    return [key for key in direct.execute("KEYS", "*") if direct.execute("PTTL", key) == -1]


def begun(sets: hotcount.LiveSets, **options: float) -> hotcount.Rebuild:
    build = sets.rebuild("k", ttl=60, **options)
    build.__enter__()
    build.add_many((f"m{n}", n) for n in range(300))
    return build


# -- keys that go ---------------------------------------------------------------


@pytest.mark.parametrize("key", [BUILD, HASH, COMPANION])
@pytest.mark.parametrize("command", ["DEL", "PEXPIRE"])
def test_a_build_that_lost_a_key(sets: LiveSets, direct: Redis, key: str, command: str) -> None:
    build = begun(sets)
    direct.execute(command, key, *([1] if command == "PEXPIRE" else []))
    eventually(lambda: direct.execute("EXISTS", key) == 0)
    # Makes a new key, in a build that is there in part.
    sets.upsert("k", "meanwhile", 5)
    with pytest.raises(hotcount.LeaseLostError):
        build.publish()
    assert sets.range("k", 0, -1) == [("meanwhile", 5.0), ("old", 1.0)]
    assert without_ttl(direct) == []
    with sets.rebuild("k", ttl=60) as again:
        again.add("new", 1)
    assert sets.range("k", 0, -1) == [("new", 1.0)]


def test_a_server_that_evicts_a_build(sets: hotcount.LiveSets, direct: hotcount.Redis) -> None:
    build = begun(sets)
    direct.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    direct.execute("CONFIG", "SET", "maxmemory", 1)
    eventually(lambda: direct.execute("DBSIZE") == 0)
    fired("evicted")
    direct.execute("CONFIG", "SET", "maxmemory", 0)
    with pytest.raises(hotcount.LeaseLostError, match="maxmemory-policy is allkeys-random"):
        build.publish()
    assert sets.range("k", 0, -1) == []


# Upserts that name no build went past it while the companion was gone.
def test_a_build_whose_companion_is_new(sets: hotcount.LiveSets, direct: hotcount.Redis) -> None:
    build = begun(sets)
    direct.execute("DEL", COMPANION)
    assert sets.upsert("k", "alone", 5) is Upsert.APPLIED
    sets.create("k", 600, {"old": 1, "alone": 5})
    with pytest.raises(hotcount.LeaseLostError):
        build.publish()
    assert sets.range("k", 0, -1) == [("alone", 5.0), ("old", 1.0)]


@pytest.mark.parametrize("last", [False, True])
def test_a_set_made_meanwhile_tells_of_its_build(sets: hotcount.LiveSets, last: bool) -> None:
    with sets.rebuild("k", ttl=60) as build:
        if last:
            assert sets.remove("k", "old") is Upsert.APPLIED
        else:
            sets.create("k", 600, {"other": 1})
        assert sets.upsert("k", "new", 5) is Upsert.APPLIED
        assert sets.upsert("k", "newer", 6) is Upsert.APPLIED
        build.add("a", 1)
    assert sets.range("k", 0, -1) == [("newer", 6.0), ("new", 5.0), ("a", 1.0)]


def test_upserts_ask_for_a_dead_build_once(sets: hotcount.LiveSets, direct: hotcount.Redis) -> None:
    begun(sets)
    direct.execute("DEL", BUILD, HASH)
    before = calls_of(direct, "evalsha")
    for n in range(3):
        assert sets.upsert("k", "a", n) is Upsert.APPLIED
    assert calls_of(direct, "evalsha") == before + 4
    assert direct.execute("HGET", COMPANION, "") == b"0"


def test_a_batch_reaches_sets_that_are_built_and_others(sets: hotcount.LiveSets) -> None:
    sets.create("other", 60, {"old": 1})
    rows = [(key, f"m{n}", n, n % 3 or None) for n in range(8) for key in ("k", "other", "absent")]
    with sets.rebuild("k", ttl=60), sets.rebuild("absent", ttl=60):
        states = [str(state) for state in sets.upsert_many(rows)]
    assert states == ["APPLIED", "APPLIED", "ABSENT"] * 8
    written = {f"m{n}": float(n) for n in range(8)}
    assert dict(sets.range("k", 0, -1)) == dict(sets.range("absent", 0, -1)) == written
    assert dict(sets.range("other", 0, -1)) == {"old": 1.0, **written}


def test_a_set_is_deleted_meanwhile(sets: hotcount.LiveSets, direct: hotcount.Redis) -> None:
    with sets.rebuild("k", ttl=60) as build:
        build.add("a", 1)
        build.renew()
        direct.execute("DEL", "k")
        assert sets.upsert("k", "b", 2) is Upsert.ABSENT
    assert sets.range("k", 0, -1) == [("b", 2.0), ("a", 1.0)]


def test_every_key_of_a_build_has_a_ttl(sets: hotcount.LiveSets, direct: hotcount.Redis) -> None:
    def check(keys: int) -> None:
        assert without_ttl(direct) == []
        assert direct.execute("DBSIZE") == keys

    build = sets.rebuild("k", ttl=60, lease=1)
    build.__enter__()
    check(3)
    sets.upsert("k", "first", 1)  # The first member makes the build's key.
    check(4)
    sets.remove("k", "first")
    check(3)
    sets.upsert("k", "first", 1, version=1)
    check(5)
    build.add_many((f"m{n}", n, n) for n in range(300))
    check(5)
    build.renew()
    check(5)
    build.publish()
    check(3)


# -- builders that die ------------------------------------------------------------


PROGRAM = """
import sys, time, hotcount
sets = hotcount.LiveSets(sys.argv[1])
with sets.rebuild("k", ttl=60, lease=float(sys.argv[2])) as build:
    for n in range(300):
        build.add("dead%d" % n, n)
    print("built", flush=True)
    time.sleep(600)
"""


def test_a_killed_builder_leaves_the_set_and_its_lease_passes_to_another(
    own_redis: RedisServer, sets: hotcount.LiveSets, direct: hotcount.Redis
) -> None:
    builder = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, own_redis.url, "0.3"], stdout=subprocess.PIPE, text=True
    )
    assert builder.stdout is not None
    assert builder.stdout.readline() == "built\n"
    sets.upsert("k", "meanwhile", 5)
    assert without_ttl(direct) == []
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    builder.stdout.close()
    assert sets.range("k", 0, -1) == [("meanwhile", 5.0), ("old", 1.0)]

    def taken_over() -> bool:
        try:
            with sets.rebuild("k", ttl=60) as build:
                build.add("new", 1)
        except hotcount.LeaseLostError:
            return False
        return True

    eventually(taken_over)
    assert sets.range("k", 0, -1) == [("new", 1.0)]
    assert direct.execute("EXISTS", BUILD, HASH) == 0


def test_what_a_dead_builder_left_goes(sets: hotcount.LiveSets, direct: hotcount.Redis) -> None:
    begun(sets, lease=0.1)
    assert direct.execute("EXISTS", BUILD, HASH) == 2
    eventually(lambda: direct.execute("EXISTS", BUILD, HASH) == 0)
    assert sets.upsert("k", "a", 2) is Upsert.APPLIED
    assert direct.execute("EXISTS", BUILD, HASH) == 0


def test_a_forked_child_cannot_use_the_build_and_its_parent_can(sets: hotcount.LiveSets) -> None:
    with sets.rebuild("k", ttl=60) as build:
        build.add("parent", 1)

        def child() -> str:
            try:
                build.add("child", 1)
            except hotcount.LeaseLostError as error:
                return str(error)
            return "added"

        assert "process" in in_child(child)
    assert sets.range("k", 0, -1) == [("parent", 1.0)]


# -- the connection ---------------------------------------------------------------


@pytest.mark.parametrize("direction", [CLIENT_TO_SERVER, SERVER_TO_CLIENT])
@pytest.mark.parametrize("cuts", [1, 2])
def test_a_chunk_that_is_cut_on_its_way_is_in_the_build_once(
    own_redis: RedisServer, sets: hotcount.LiveSets, direction: int, cuts: int
) -> None:
    with (
        FaultProxy(own_redis.socket) as proxy,
        hotcount.Redis(proxy.url, timeout=20) as redis,
        hotcount.LiveSets(redis).rebuild("k", ttl=60) as build,
    ):
        build.add("a", 1)
        build.renew()
        proxy.cut_after(2, direction, times=cuts)
        failed = 0
        for n in range(300):
            try:
                build.add(f"m{n}", n)
            except (hotcount.OutcomeUnknownError, hotcount.UnavailableError):
                failed += 1
        assert proxy.fired == cuts
        assert failed <= 1
        sets.upsert("k", "m0", -1)  # Would be lost if the chunk came again.
    assert dict(sets.range("k", 0, -1)) == {
        "a": 1.0,
        **{f"m{n}": float(n) for n in range(1, 300)},
        "m0": -1.0,
    }


def test_a_publication_whose_answer_is_lost_stands(own_redis: RedisServer, sets: LiveSets) -> None:
    with FaultProxy(own_redis.socket) as proxy, hotcount.Redis(proxy.url, timeout=5) as redis:
        through = hotcount.LiveSets(redis)
        with through.rebuild("other", ttl=60):
            pass  # From now on the server knows the scripts: each step has one answer.
        build = through.rebuild("k", ttl=60)
        build.__enter__()
        build.add("a", 1)
        build.renew()
        watched: list[int] = []

        def cut() -> None:
            # The carrying of versions passes, the publication is answered into nothing.
            watched.append(1)
            if len(watched) == 2:
                proxy.cut_after(0, SERVER_TO_CLIENT)

        proxy.before_each(cut)
        with pytest.raises(hotcount.OutcomeUnknownError):
            build.publish()
        with pytest.raises(hotcount.ConfigError, match="it is unknown whether"):
            build.publish()
    eventually(lambda: sets.range("k", 0, -1) == [("a", 1.0)])


def test_flushed_scripts_are_loaded_again(sets: hotcount.LiveSets, direct: hotcount.Redis) -> None:
    stop = threading.Event()
    flushed = threading.Event()

    def flush() -> None:
        while not stop.is_set():
            direct.execute("SCRIPT", "FLUSH")
            flushed.set()
            stop.wait(0.002)

    flusher = threading.Thread(target=flush)
    flusher.start()
    flushed.wait(20)
    try:
        for round in range(30):
            with sets.rebuild("k", ttl=60) as build:
                sets.upsert("k", "meanwhile", round)
                build.add_many((f"m{n}", n) for n in range(310))
                sets.remove("k", "m7")
            assert len(sets.range("k", 0, -1)) == 310
    finally:
        stop.set()
        flusher.join()


def test_a_server_without_memory_refuses(sets: hotcount.LiveSets, direct: hotcount.Redis) -> None:
    build = sets.rebuild("k", ttl=60)
    direct.execute("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(hotcount.CapacityError):
        build.__enter__()
    direct.execute("CONFIG", "SET", "maxmemory", 0)
    build.__enter__()
    direct.execute("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(hotcount.CapacityError):
        build.add_many((f"m{n}", n) for n in range(300))
    assert sets.range("k", 0, -1) == [("old", 1.0)]
    direct.execute("CONFIG", "SET", "maxmemory", 0)
    build.publish()
    assert len(sets.range("k", 0, -1)) == 300


def test_a_build_refused_leaves_no_lease(sets: hotcount.LiveSets, direct: hotcount.Redis) -> None:
    build = begun(sets, lease=600)
    direct.execute("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(hotcount.CapacityError):
        build.__exit__(None, None, None)
    direct.execute("CONFIG", "SET", "maxmemory", 0)
    assert direct.execute("EXISTS", BUILD, HASH) == 0
    with pytest.raises(hotcount.ConfigError, match="given up"):
        build.publish()
    with sets.rebuild("k", ttl=60) as again:
        again.add("new", 1)
    assert sets.range("k", 0, -1) == [("new", 1.0)]


# Without a timeout each script has the store's: here 12 scripts of 50 ms, and 0.5 s.
def test_a_large_set_takes_its_chunks(own_redis: RedisServer, sets: hotcount.LiveSets) -> None:
    rows = [(f"m{n}", n, 1) for n in range(12 * 300)]
    with FaultProxy(own_redis.socket) as proxy, hotcount.Redis(proxy.url, timeout=0.5) as redis:
        through = hotcount.LiveSets(redis)
        with through.rebuild("k", ttl=60) as build:
            build.add("a", 1)
            build.renew()
            proxy.before_each(lambda: time.sleep(0.05))
            with pytest.raises((hotcount.DeadlineError, hotcount.OutcomeUnknownError)):
                build.add_many(rows, timeout=0.1)
            build.renew()
        assert len(sets.range("k", 0, -1)) == len(rows) + 1
        # Now a publication has that many versions to carry.
        with through.rebuild("k", ttl=60) as build:
            build.add("a", 1)
    assert sets.range("k", 0, -1) == [("a", 1.0)]


def test_a_lost_begin_keeps_no_lease(own_redis: RedisServer, sets: LiveSets, direct: Redis) -> None:
    with FaultProxy(own_redis.socket) as proxy, hotcount.Redis(proxy.url, timeout=0.2) as redis:
        through = hotcount.LiveSets(redis)
        with through.rebuild("other", ttl=60) as other:
            other.abandon()  # From now on the server knows both scripts.
        proxy.hold()
        direct.execute("DEL", COMPANION)
        with pytest.raises(hotcount.OutcomeUnknownError):
            through.rebuild("k", ttl=60, lease=600).__enter__()
        eventually(lambda: direct.execute("EXISTS", HASH) == 0)
        assert direct.execute("EXISTS", COMPANION) == 1  # It had begun.
        proxy.heal()
    with sets.rebuild("k", ttl=60):
        pass


def test_a_task_that_is_cancelled_while_it_begins_leaves_no_lease(
    own_redis: RedisServer, sets: hotcount.LiveSets, direct: hotcount.Redis
) -> None:
    async def program(proxy: FaultProxy, redis: hotcount.Redis) -> None:
        async def begin() -> None:
            async with aio.LiveSets(redis).rebuild("k", ttl=60, lease=600):
                raise AssertionError("it has begun")

        proxy.hold()
        task = asyncio.ensure_future(begin())
        while not direct.execute("EXISTS", HASH):
            await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.sleep(0)
        proxy.heal()
        with pytest.raises(asyncio.CancelledError):
            await task

    with FaultProxy(own_redis.socket) as proxy, hotcount.Redis(proxy.url, timeout=20) as redis:
        with hotcount.LiveSets(redis).rebuild("other", ttl=60):
            pass  # From now on the server knows the script.
        asyncio.run(program(proxy, redis))
    assert direct.execute("EXISTS", BUILD, HASH) == 0


def test_a_user_who_may_not_touch_the_helper_keys_changes_the_live_set_alone(
    own_redis: RedisServer, sets: hotcount.LiveSets, direct: hotcount.Redis
) -> None:
    direct.execute("ACL", "SETUSER", "u", "on", ">p", "+@all", "~k")
    with hotcount.Redis(own_redis.login("u", "p"), timeout=20) as redis:
        limited = hotcount.LiveSets(redis)
        with pytest.raises(hotcount.PermissionDeniedError):
            limited.rebuild("k", ttl=60).__enter__()
        with sets.rebuild("k", ttl=60) as build:
            build.add("a", 1)
            assert limited.upsert("k", "alone", 2) is Upsert.APPLIED
            assert sets.top("k", 1) == [("alone", 2.0)]
    assert sets.range("k", 0, -1) == [("a", 1.0)]
