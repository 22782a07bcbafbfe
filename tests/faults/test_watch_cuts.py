"""A transaction with WATCH that breaks anywhere: what its caller was told is what is in the set."""

from __future__ import annotations

import time
from collections.abc import Iterator

import hotcount
import pytest
from hotcount import Upsert

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import BUSY, eventually
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

LIFE = 600  # Seconds: PTTL is six digits.


@pytest.fixture
def direct(own_redis: RedisServer) -> Iterator[hotcount.Redis]:
    with own_redis.redis(timeout=20) as direct:
        yield direct


@pytest.fixture
def proxy(own_redis: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(own_redis.socket) as proxy:
        yield proxy


def length(*commands: str) -> int:
    return sum(
        len(f"*{len(words)}\r\n") + sum(len(f"${len(word)}\r\n{word}\r\n") for word in words)
        for words in (command.split() for command in commands)
    )


def has(direct: hotcount.Redis, member: str) -> bool:
    return direct.execute("ZSCORE", "k", member) is not None


def cut(
    proxy: FaultProxy, sets: hotcount.LiveSets, member: str, after: int, direction: int
) -> Upsert | hotcount.HotcountError:
    sets.upsert("absent", "a", 1)  # Leaves an idle connection: the cut is in the transaction.
    fired = proxy.fired
    proxy.cut_after(after, direction)
    try:
        return sets.upsert("k", member, 7)
    except hotcount.HotcountError as error:
        return error
    finally:
        assert proxy.fired == fired + 1, "void: the cut did not happen"


def test_a_transaction_cut_on_its_way_is_what_its_caller_was_told(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    hotcount.LiveSets(direct).create("k", LIFE, {"a": 1})
    looks = length("WATCH k", "TYPE k", "PTTL k", "MULTI")
    whole = looks + length("ZADD k 7 m100", "EXEC")
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        for after in range(whole + 1):
            member = f"m{100 + after}"
            told = cut(proxy, sets, member, after, CLIENT_TO_SERVER)
            # The answers to what passed may overtake the end of the connection. Behind the looks'
            # EXEC has left, or has not; behind EXEC's own its caller knows.
            if after < looks:
                assert told is Upsert.APPLIED, "nothing counts yet: once more, on a new connection"
            elif after not in (looks, whole) or told is not Upsert.APPLIED:
                assert isinstance(told, hotcount.OutcomeUnknownError), after
            if told is Upsert.APPLIED or after == whole:
                eventually(lambda member=member: has(direct, member))  # type: ignore[misc]
            else:
                assert not has(direct, member), "without all of EXEC nothing is run"


def test_a_transaction_whose_answers_are_cut_is_what_its_caller_was_told(
    proxy: FaultProxy, direct: hotcount.Redis
) -> None:
    hotcount.LiveSets(direct).create("k", LIFE, {"a": 1})
    looks = len("+OK\r\n+zset\r\n:599999\r\n+OK\r\n")
    whole = looks + len("+QUEUED\r\n*1\r\n:1\r\n")
    with hotcount.Redis(proxy.url, timeout=20) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        for after in range(whole):
            member = f"m{100 + after}"
            told = cut(proxy, sets, member, after, SERVER_TO_CLIENT)
            # Behind the last byte of the looks' answers both may be: EXEC has left, or has not.
            if after < looks:
                assert told is Upsert.APPLIED
            elif after > looks:
                assert isinstance(told, hotcount.OutcomeUnknownError)
            if told is Upsert.APPLIED or after > looks:
                eventually(lambda member=member: has(direct, member))  # type: ignore[misc]


@pytest.mark.parametrize("direction", [CLIENT_TO_SERVER, SERVER_TO_CLIENT])
def test_a_black_hole_costs_the_deadline_and_applies_nothing(
    proxy: FaultProxy, direct: hotcount.Redis, direction: int
) -> None:
    hotcount.LiveSets(direct).create("k", LIFE, {"a": 1})
    with hotcount.Redis(proxy.url, timeout=0.3) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        sets.upsert("absent", "a", 1, timeout=20)
        proxy.black_hole(direction)
        started = time.monotonic()
        with pytest.raises(hotcount.DeadlineError, match="nothing was applied"):
            sets.upsert("k", "late", 1)
        assert 0.29 <= time.monotonic() - started <= 0.3 + BUSY
        proxy.heal()
        assert not has(direct, "late")
        assert sets.upsert("k", "b", 1, timeout=20) is Upsert.APPLIED


def test_a_server_that_went_away_is_named_and_found_again(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=5) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        sets.upsert("absent", "a", 1)
        own_redis.kill()
        with pytest.raises(hotcount.UnavailableError, match=r"redis\.sock"):
            sets.upsert("k", "a", 1)
        own_redis.start()
        sets.create("k", LIFE, {"a": 1})
        assert sets.upsert("k", "b", 2) is Upsert.APPLIED


def test_a_server_without_scripts_is_what_watch_is_for(
    own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    direct.execute("ZADD", "k", 1, "a")
    direct.execute("EXPIRE", "k", LIFE)
    direct.execute("ACL", "SETUSER", "plain", "on", ">pw", "~k", "+@all", "-@scripting")
    with hotcount.Redis(own_redis.login("plain", "pw"), timeout=20) as redis:
        assert hotcount.LiveSets(redis, method="watch").upsert("k", "b", 2) is Upsert.APPLIED
        with pytest.raises(hotcount.PermissionDeniedError):
            hotcount.LiveSets(redis).upsert("k", "c", 3)


@pytest.mark.parametrize("denied", ["watch", "multi", "exec", "zadd", "pttl", "type"])
def test_a_step_that_the_acl_denies_is_a_typed_error_and_applies_nothing(
    own_redis: RedisServer, direct: hotcount.Redis, denied: str
) -> None:
    hotcount.LiveSets(direct).create("k", LIFE, {"a": 1})
    direct.execute("ACL", "SETUSER", "less", "on", ">pw", "~*", "+@all", f"-{denied}")
    with hotcount.Redis(own_redis.login("less", "pw"), timeout=20) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        for _ in range(2):
            with pytest.raises(hotcount.PermissionDeniedError, match=denied):
                sets.upsert("k", "b", 2)
    assert not has(direct, "b")


def test_a_connection_that_may_not_discard_serves_nobody_else(
    own_redis: RedisServer, direct: hotcount.Redis
) -> None:
    hotcount.LiveSets(direct).create("k", LIFE, {"a": 1})
    direct.execute("ACL", "SETUSER", "less", "on", ">pw", "~*", "+@all", "-discard")
    with hotcount.Redis(own_redis.login("less", "pw"), timeout=20) as redis:
        sets = hotcount.LiveSets(redis, method="watch")
        for score in range(3):
            assert sets.upsert("absent", "b", score) is Upsert.ABSENT
            assert sets.upsert("k", "b", score) is Upsert.APPLIED
