"""Servers that refuse, for now or for good: LiveSets and Limiter say the same of it as Counter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Redis, Upsert

from tests.support.servers import RedisServer, free_port
from tests.support.together import flushing_scripts, together

pytestmark = pytest.mark.server

Call = Callable[[hotcount.Redis], object]

CALLS: list[Any] = [
    pytest.param(lambda redis: hotcount.Limiter(redis, "5/minute").hit("k"), id="gcra"),
    pytest.param(
        lambda redis: hotcount.Limiter(redis, "5/minute", algorithm="fixed_window").hit("k"),
        id="fixed_window",
    ),
    pytest.param(
        lambda redis: hotcount.Limiter(redis, "5/minute", algorithm="sliding_log").hit("k"),
        id="sliding_log",
    ),
    pytest.param(lambda redis: hotcount.LiveSets(redis).upsert("k", "b", 2), id="upsert"),
    pytest.param(
        lambda redis: hotcount.LiveSets(redis).upsert("k", "b", 2, version=1), id="versioned"
    ),
    pytest.param(
        lambda redis: hotcount.LiveSets(redis, method="ttl_gate").upsert("k", "b", 2), id="ttl_gate"
    ),
    pytest.param(lambda redis: hotcount.LiveSets(redis).remove("k", "a"), id="remove"),
    pytest.param(lambda redis: hotcount.LiveSets(redis).create("k", 60, {"z": 1}), id="create"),
]


# Asked again until the deadline; the last time the answer may come too late.
NOT_NOW = (hotcount.UnavailableError, hotcount.DeadlineError, hotcount.OutcomeUnknownError)


def dump(direct: hotcount.Redis) -> list[object]:
    """All that the server holds."""
    keys = sorted(direct.execute("KEYS", "*"))
    return [(key, direct.execute("DUMP", key)) for key in keys]


def error_of(call: Call, redis: hotcount.Redis) -> hotcount.HotcountError | None:
    try:
        call(redis)
    except hotcount.HotcountError as error:
        return error
    return None


@pytest.mark.parametrize("call", CALLS)
def test_a_replica_has_applied_nothing(own_redis: RedisServer, direct: Redis, call: Call) -> None:
    hotcount.LiveSets(direct).create("k", 600, {"a": 1})
    before = dump(direct)
    direct.execute("REPLICAOF", "127.0.0.1", free_port())
    # It is asked again until the deadline: the name may stand for another by then.
    with own_redis.redis(timeout=0.3) as redis, pytest.raises(hotcount.UnavailableError) as caught:
        call(redis)
    assert caught.value.code == "READONLY"
    direct.execute("REPLICAOF", "NO", "ONE")
    assert dump(direct) == before
    assert call(direct) is not False


@pytest.mark.parametrize("call", CALLS)
def test_a_server_out_of_memory_has_applied_nothing(
    request: pytest.FixtureRequest, direct: hotcount.Redis, call: Call
) -> None:
    hotcount.LiveSets(direct).create("k", 600, {"a": 1, "b": 1})
    before = dump(direct)
    direct.execute("CONFIG", "SET", "maxmemory", 1)
    error = error_of(call, direct)
    direct.execute("CONFIG", "SET", "maxmemory", 0)
    if error is None:
        assert request.node.callspec.id == "remove", "only that needs no memory"
    else:
        assert (type(error), error.code) == (hotcount.CapacityError, "OOM")
        assert dump(direct) == before


def test_a_server_that_loads_is_waited_for_inside_the_deadline(tmp_path: Path) -> None:
    slow = ("--key-load-delay", "400", "--loading-process-events-interval-bytes", "1024")
    server = RedisServer(tmp_path, config=slow)
    server.start()
    try:
        with server.redis(timeout=20) as redis:
            hotcount.LiveSets(redis).create("k", 600, {"a": 1})
            for first in range(0, 10_000, 500):
                words = [part for n in range(first, first + 500) for part in (f"key{n}", "x" * 50)]
                redis.execute("MSET", *words)
            redis.execute("SAVE")
            server.kill()
            server.start()  # 0.4 ms a key: seconds of LOADING.
            sets = hotcount.LiveSets(redis)
            with pytest.raises(NOT_NOW):
                sets.upsert("k", "late", 2, timeout=0.3)
            assert b"loading:1" in redis.execute("INFO", "persistence")
            assert sets.upsert("k", "d", 4) is Upsert.APPLIED
            assert hotcount.Limiter(redis, "5/minute").hit("k").remaining == 4
            assert sets.top("k", 9) == [("d", 4.0), ("a", 1.0)]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("call", "rights"),
    [
        pytest.param(call.values[0], rights, id=f"{call.id} {rights}")
        for rights, calls in (("~* +@all -evalsha", CALLS[:4]), ("~mine:* +@all", CALLS))
        for call in calls
    ],
)
def test_a_user_who_may_run_no_script_or_has_no_right_to_the_key(
    own_redis: RedisServer, direct: Redis, call: Call, rights: str
) -> None:
    hotcount.LiveSets(direct).create("k", 600, {"a": 1})
    before = dump(direct)
    direct.execute("ACL", "SETUSER", "less", "on", ">pw", *rights.split())
    with hotcount.Redis(own_redis.login("less", "pw"), timeout=20) as less:
        error = error_of(call, less)
    assert isinstance(error, hotcount.PermissionDeniedError)
    assert error.code == "NOPERM"
    assert dump(direct) == before


def test_scripts_flushed_ten_times_a_second_are_met(own_redis: RedisServer, direct: Redis) -> None:
    with own_redis.redis(timeout=60) as redis, flushing_scripts(direct) as flushes:
        windows = hotcount.Limiter(redis, "1000000/day", algorithm="fixed_window")
        bucket = hotcount.Limiter(redis, "100/366 days")
        sets = hotcount.LiveSets(redis)
        sets.create("k", 600, {"first": -1})

        def work(index: int) -> tuple[int, int, int]:
            hits = admitted = upserts = 0
            while flushes() < 12:
                hits += windows.hit("hot").allowed
                admitted += bucket.hit("few").allowed
                assert sets.upsert("k", f"{index}-{upserts}", 1) is Upsert.APPLIED
                upserts += 1
            return hits, admitted, upserts

        done = together(work, 8)
        assert windows.peek("hot").remaining == 1_000_000 - sum(hits for hits, _, _ in done)
        assert sum(admitted for _, admitted, _ in done) == 100
        assert len(sets.range("k", 0, -1)) == 1 + sum(upserts for _, _, upserts in done)
