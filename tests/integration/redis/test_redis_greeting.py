"""What a server says to a newcomer: each refusal reported as what it is, or answered by RESP2."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.support.resp_server import RespServer, Words
from tests.support.servers import RedisServer, free_port

pytestmark = pytest.mark.server


@pytest.fixture(params=["socket", "port"])
def full_redis(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[RedisServer, str]]:
    """A Redis that takes one client, and its URL."""
    with RedisServer(tmp_path, port=free_port(), config=("--maxclients", "1")).started() as server:
        socket = request.param == "socket"
        yield server, server.url if socket else f"redis://127.0.0.1:{server.port}"


def test_a_full_server_is_unavailable_and_taken_again_once_it_has_a_place(
    full_redis: tuple[RedisServer, str],
) -> None:
    server, url = full_redis
    first = server.redis()
    first.ping()
    second = hotcount.Redis(url, prefix="second:", timeout=20)
    with pytest.raises(hotcount.UnavailableError, match=r"max number of clients.*nothing was"):
        hotcount.Counter(second).add("k", timeout=0.5)

    async def in_a_loop() -> None:
        async with hotcount.aio.Redis(url, prefix="third:") as third:
            await hotcount.aio.Counter(third).add("k", timeout=0.5)

    with pytest.raises(hotcount.UnavailableError, match=r"max number of clients.*nothing was"):
        asyncio.run(in_a_loop())
    # It waits for a place, which the first leaves meanwhile.
    leaves = threading.Timer(0.3, first.close)
    leaves.start()
    assert hotcount.Counter(second).add("k") == 1
    leaves.join()


def hello_of(redis: hotcount.Redis) -> bool:
    """Whether the connection speaks RESP3."""
    own = redis.execute("CLIENT", "ID")
    lines = redis.execute("CLIENT", "LIST", "ID", own).decode()
    return "resp=3" in lines


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("how", ["keyword", "url", "connect"])
def test_the_protocol_is_chosen_and_values_are_the_same(
    redis_server: RedisServer, protocol: Any, how: str
) -> None:
    url = redis_server.url
    if how == "keyword":
        redis = hotcount.Redis(url, protocol=protocol)
    elif how == "url":
        redis = hotcount.Redis(f"{url}?protocol={protocol}")
    else:
        redis = hotcount.connect(url, protocol=protocol)  # type: ignore[assignment]
    assert hello_of(redis) is (protocol == 3)
    redis.execute("HSET", "greeting:h", "f", "v")
    assert redis.execute("HGETALL", "greeting:h") == [b"f", b"v"]
    assert redis.execute("ZADD", "greeting:z", 1.5, "m") in (0, 1)
    assert float(redis.execute("ZSCORE", "greeting:z", "m")) == 1.5


@pytest.mark.parametrize("protocol", [0, 1, 4, -2])
def test_another_protocol_is_a_config_error(protocol: Any) -> None:
    with pytest.raises((hotcount.ConfigError, ValueError), match="protocol"):
        hotcount.Redis("redis://127.0.0.1", protocol=protocol)
    with pytest.raises(hotcount.ConfigError, match="protocol"):
        hotcount.Redis(f"redis://127.0.0.1?protocol={protocol}")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "1s", ""])
def test_a_connect_timeout_that_is_none_is_a_config_error(seconds: str) -> None:
    with pytest.raises(hotcount.ConfigError, match="connect_timeout"):
        hotcount.Redis(f"redis://127.0.0.1?connect_timeout={seconds}")


@pytest.mark.parametrize(
    ("user", "password"), [("default", ""), ("default", "pw"), ("counter", "pw")]
)
def test_a_server_without_hello_is_spoken_to_in_resp2(
    tmp_path: Path, user: str, password: str
) -> None:
    users = ("--user", "counter", "on", ">pw", "~*", "+@all")
    guard = ("--requirepass", "pw") if password else ()
    config = ("--rename-command", "HELLO", "", *users, *guard)
    with RedisServer(tmp_path, config=config).started() as server:
        url = server.login(user, password) if password else server.url
        with hotcount.Redis(url) as redis:
            assert hotcount.Counter(redis).add("k") == 1
            assert redis.execute("ACL", "WHOAMI") == user.encode()
            assert hello_of(redis) is False
        if password:
            wrong = hotcount.Redis(server.login(user, "wrong"))
            with wrong, pytest.raises(hotcount.AuthError):
                wrong.ping()


def test_an_acl_without_hello_is_no_reason_to_be_refused(own_redis: RedisServer) -> None:
    with own_redis.redis() as direct:
        direct.execute("ACL", "SETUSER", "plain", "on", ">pw", "~*", "+@all", "-hello")
        direct.execute("ACL", "SETUSER", "default", "-hello")
    with hotcount.Redis(own_redis.login("plain", "pw")) as redis:
        assert hotcount.Counter(redis).add("k") == 1
        assert redis.execute("ACL", "WHOAMI") == b"plain"
    with own_redis.redis(prefix="again:") as redis:
        assert hotcount.Counter(redis).add("k") == 1


@pytest.mark.parametrize(
    "refusal",
    [
        b"-ERR unknown command 'HELLO'",
        b"-ERR unknown command `HELLO`, with args beginning with: `3`, ",
        b"-NOPROTO unsupported protocol version",
        b"-NOPERM this user has no permissions to run the 'hello' command",
        b"-ERR This command is not supported by the proxy",
        b"-ERR internal error",
    ],
)
def test_whatever_a_proxy_answers_to_hello_it_is_spoken_to_in_resp2(refusal: bytes) -> None:
    commands: list[bytes] = []

    def respond(_: int, client: socket.socket, words: Words) -> None:
        commands.append(words[0])
        client.sendall(b"+OK\r\n")

    with RespServer(respond, greeting=refusal + b"\r\n") as proxy:
        with hotcount.Redis(proxy.url) as redis:
            assert redis.execute("SET", "k", 1) == b"OK"
        assert (commands, proxy.connections) == ([b"SET"], 1)


@pytest.mark.parametrize(
    ("refusal", "kind", "code"),
    [
        (b"-ERR max number of clients reached", hotcount.UnavailableError, "ERR"),
        (b"-LOADING Redis is loading the dataset in memory", hotcount.UnavailableError, "LOADING"),
        (b"-NOAUTH HELLO must be called with AUTH", hotcount.AuthError, "NOAUTH"),
        (b"-WRONGPASS invalid username-password pair", hotcount.AuthError, "WRONGPASS"),
        (b"-DENIED Redis is running in protected mode", hotcount.PermissionDeniedError, "DENIED"),
        (b"-CUSTOM no", hotcount.ReplyError, "CUSTOM"),
    ],
    ids=lambda value: value.decode().split()[0][1:] if isinstance(value, bytes) else "",
)
def test_any_other_refusal_is_reported_as_what_it_is(
    refusal: bytes, kind: type[hotcount.HotcountError], code: str
) -> None:
    with (
        RespServer(lambda *_: None, greeting=refusal + b"\r\n") as server,
        hotcount.Redis(server.url, timeout=0.4) as redis,
        pytest.raises(kind) as caught,
    ):
        redis.ping()
    assert type(caught.value) is kind
    assert caught.value.code == code
