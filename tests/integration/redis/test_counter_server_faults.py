"""Counters before a Redis that refuses, misleads or is not there: a typed error that says what is
known, and the same for every call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.resp_server import ScriptedServer
from tests.support.servers import RedisServer, free_port

AT = datetime.now(timezone.utc)

Calls = dict[str, Callable[[], object]]


def writes(store: Any) -> Calls:
    plain = hotcount.Counter(store)
    living = hotcount.Counter(store, ttl=60)
    period = hotcount.PeriodCounter(store)
    return {
        "add": lambda: plain.add("k"),
        "add with a ttl": lambda: living.add("k"),
        "try_add": lambda: plain.try_add("k", max=10**6),
        "reset": lambda: plain.reset("k"),
        "period add": lambda: period.add("k"),
        "period add at": lambda: period.add("k", 1, AT),
    }


def reads(store: Any) -> Calls:
    plain = hotcount.Counter(store)
    period = hotcount.PeriodCounter(store)
    return {
        "get": lambda: plain.get("k"),
        "ttl": lambda: plain.ttl("k"),
        "period get": lambda: period.get("k"),
        "period get at": lambda: period.get("k", AT),
        "series": lambda: period.series("k", AT, AT + timedelta(days=3)),
    }


def ends(calls: Calls) -> dict[str, type[BaseException] | None]:
    """What each call raised, and of which kind."""
    found: dict[str, type[BaseException] | None] = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = None
        except hotcount.HotcountError as error:
            found[name] = type(error)
    return found


def everywhere(calls: Calls, error: type[BaseException] | None) -> dict[str, Any]:
    return dict.fromkeys(calls, error)


def test_a_replica_refuses_adds_applies_nothing_and_serves_reads(own_redis: RedisServer) -> None:
    redis = own_redis.redis(timeout=20)
    hotcount.Counter(redis).add("k", 5)
    redis.execute("REPLICAOF", "127.0.0.1", free_port())
    # Asked again until the deadline: the name may stand for another server by then.
    with own_redis.redis(timeout=0.3) as soon:
        assert ends(writes(soon)) == everywhere(writes(soon), hotcount.UnavailableError)
    redis.execute("CONFIG", "SET", "replica-serve-stale-data", "yes")
    assert ends(reads(redis)) == everywhere(reads(redis), None)
    redis.execute("REPLICAOF", "NO", "ONE")
    assert hotcount.Counter(redis).get("k") == 5
    assert redis.execute("DBSIZE") == 1


def test_a_server_without_memory_refuses_adds_and_applies_nothing(own_redis: RedisServer) -> None:
    redis = own_redis.redis(timeout=20)
    hotcount.Counter(redis).add("k", 5)
    redis.execute("CONFIG", "SET", "maxmemory", 1)
    calls = writes(redis)
    del calls["reset"]  # It gives memory back.
    assert ends(calls) == everywhere(calls, hotcount.CapacityError)
    with pytest.raises(hotcount.CapacityError) as caught:
        calls["add"]()
    assert caught.value.code == "OOM"
    redis.execute("CONFIG", "SET", "maxmemory", 0)
    assert hotcount.Counter(redis).get("k") == 5
    assert redis.execute("DBSIZE") == 1


@pytest.mark.parametrize(
    "rights",
    [
        pytest.param(("-@all", "+ping", "~*"), id="no-command"),
        pytest.param(("+@all", "~elsewhere:*"), id="no-key"),
        # What a script calls is refused inside it.
        pytest.param(
            ("+@all", "-incr", "-incrby", "-get", "-set", "-getdel", "-pttl", "~*"),
            id="not-in-scripts",
        ),
    ],
)
def test_a_command_that_the_acl_denies_is_a_permission_error_and_applies_nothing(
    own_redis: RedisServer, rights: tuple[str, ...]
) -> None:
    direct = own_redis.redis(timeout=20)
    hotcount.Counter(direct).add("k", 5)
    direct.execute("ACL", "SETUSER", "few", "on", ">pw", "resetkeys", *rights)
    with hotcount.Redis(own_redis.login("few", "pw"), timeout=20) as redis:
        calls = {**writes(redis), **reads(redis)}
        assert ends(calls) == everywhere(calls, hotcount.PermissionDeniedError)
    assert hotcount.Counter(direct).get("k") == 5
    assert direct.execute("DBSIZE") == 1


def heard_of_the_server(redis: hotcount.Redis, kind: type[hotcount.HotcountError]) -> None:
    """Who comes later, in the pause before the next dial, hears the same at its deadline."""
    with pytest.raises(kind):
        redis.ping(timeout=20)


def test_a_wrong_password_is_an_auth_error_of_every_call(own_redis: RedisServer) -> None:
    own_redis.redis().execute("CONFIG", "SET", "requirepass", "right")
    for url in (own_redis.url, own_redis.login("", "wrong-canary")):
        with hotcount.Redis(url, timeout=0.05) as redis:
            heard_of_the_server(redis, hotcount.AuthError)
            calls = {**writes(redis), **reads(redis)}
            assert ends(calls) == everywhere(calls, hotcount.AuthError)
            with pytest.raises(hotcount.AuthError) as caught:
                calls["add"]()
            assert "canary" not in str(caught.value)


@pytest.mark.parametrize("where", ["port", "socket"])
def test_every_call_is_unavailable_if_the_server_refuses_connections(
    tmp_path: Path, where: str
) -> None:
    url = f"redis://127.0.0.1:{free_port()}" if where == "port" else f"unix://{tmp_path}/no.sock"
    with hotcount.Redis(url, timeout=0.05) as redis:
        heard_of_the_server(redis, hotcount.UnavailableError)
        calls = {**writes(redis), **reads(redis)}
        assert ends(calls) == everywhere(calls, hotcount.UnavailableError)


@pytest.mark.parametrize(
    "text",
    [
        *("", " 1", "1 ", "+1", "01", "-0", "1.0", "1e3", "0x1", "one", "1\0"),
        *(str(2**63), str(-(2**63) - 1)),
    ],
    ids=repr,
)
def test_text_that_is_no_integer_of_64_bits_is_a_wrong_type_and_left_alone(
    redis_server: RedisServer, text: str
) -> None:
    redis = redis_server.redis(timeout=20, prefix="text:")
    name = f"text:period:day:UTC:{AT:%Y-%m-%d}:k"
    for key in ("text:count:k", name):
        redis.execute("SET", key, text)
    calls = {**writes(redis), **reads(redis)}
    # Of today, which may be over by now; and what lives is no matter of what it is.
    for other in ("period add", "period get", "ttl"):
        del calls[other]
    assert ends({"reset": calls.pop("reset")}) == {"reset": hotcount.WrongTypeError}
    redis.execute("SET", "text:count:k", text)
    assert ends(calls) == everywhere(calls, hotcount.WrongTypeError)
    assert redis.execute("MGET", "text:count:k", name) == [text.encode()] * 2
    assert redis.execute("PTTL", "text:count:k") == -1


def test_a_call_goes_on_when_the_server_has_loaded(tmp_path: Path) -> None:
    answers = iter([b"-LOADING Redis is loading the dataset in memory\r\n"] * 3 + [b":7\r\n"])
    with ScriptedServer(tmp_path, lambda command: next(answers)) as server:
        assert hotcount.Counter(hotcount.Redis(server.url, timeout=20)).add("k") == 7


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n", id="array"),
        pytest.param(b"$3\r\nabcdef\r\n", id="text-of-another-length"),
        pytest.param(b"$3\r\nabc\r\n", id="text"),
        pytest.param(b"+OK\r\n", id="status"),
        pytest.param(b"*0\r\n", id="empty-array"),
        pytest.param(b"*3\r\n:9\r\n$1\r\n5\r\n:5\r\n", id="unknown-answer"),
    ],
)
def test_a_reply_of_another_shape_is_an_error_and_never_a_number(
    tmp_path: Path, reply: bytes
) -> None:
    with ScriptedServer(tmp_path, lambda command: reply) as server:
        redis = hotcount.Redis(server.url, timeout=5)
        calls = {**writes(redis), **reads(redis)}
        for name, end in ends(calls).items():
            assert end is not None, name
            assert issubclass(end, (hotcount.HotcountError)), (name, end)


def test_the_present_is_the_servers_whatever_this_machines_clock_says(tmp_path: Path) -> None:
    there = AT + timedelta(days=40)

    def answer(command: list[bytes]) -> bytes:
        _, _, _, _, present, begins, ends, _, _, amount = command
        now = int(there.timestamp())
        assert present == b"1"
        if not int(begins) <= now < int(ends):
            return b"*1\r\n*3\r\n:1\r\n:0\r\n:%d\r\n" % now
        return b"*1\r\n*3\r\n:0\r\n$1\r\n%s\r\n:%d\r\n" % (amount or b"5", now)

    with ScriptedServer(tmp_path, answer) as server:
        counter = hotcount.PeriodCounter(
            hotcount.Redis(server.url, timeout=20), "day", "Asia/Tokyo"
        )
        assert counter.add("k", 3) == 3
        assert counter.get("k") == 5
        first, second, third, fourth = (command[3].decode() for command in server.commands)
    day = there.astimezone(timezone(timedelta(hours=9))).strftime("%Y-%m-%d")
    assert second == fourth == f"period:day:Asia/Tokyo:{day}:k"
    # What was asked for by this machine's clock was not added to: the server said so.
    assert first == third != second
