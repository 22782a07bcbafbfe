"""The connection to a Redis: its options, how it is made, how it fails, what stats() says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hotcount
import pytest

from tests.support.servers import RedisServer, calls_of, free_port
from tests.support.together import together

pytestmark = pytest.mark.server

CANARY = "s3cr3t-canary"


@pytest.fixture(scope="module")
def guarded_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis with a password, a user of its own rights, and a loopback port."""
    rights = ("on", f">{CANARY}", "~count:*", "+incr", "+incrby", "+get", "+ping")
    config = ("--requirepass", CANARY, "--user", "counter", *rights)
    folder = tmp_path_factory.mktemp("guarded")
    with RedisServer(folder, port=free_port(), config=config).started() as server:
        yield server


def test_a_unix_socket_and_a_port_reach_the_same_server(guarded_redis: RedisServer) -> None:
    by_socket = hotcount.Redis(guarded_redis.login("", CANARY))
    by_port = hotcount.Redis(f"redis://:{CANARY}@127.0.0.1:{guarded_redis.port}")
    by_name = hotcount.Redis(f"valkey://:{CANARY}@localhost:{guarded_redis.port}/0")
    by_socket.execute("SET", "both", 5)
    assert by_port.execute("GET", "both") == b"5"
    assert by_name.ping() is True
    short = hotcount.Redis(f"unix://:{CANARY}@{guarded_redis.socket}")
    assert short.execute("GET", "both") == b"5"


def test_it_connects_when_first_used(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    redis = hotcount.Redis(server.url)
    assert redis.stats()["connects"] == 0
    with server.started():
        assert redis.ping() is True
        assert redis.stats()["connects"] == 1


@pytest.mark.parametrize("user", ["", "default", "counter"])
def test_the_right_credentials_are_let_in(guarded_redis: RedisServer, user: str) -> None:
    with hotcount.Redis(guarded_redis.login(user, CANARY)) as redis:
        assert redis.ping() is True


@pytest.mark.parametrize(
    ("user", "password"),
    [("", ""), ("", "wrong-canary"), ("counter", "wrong-canary"), ("nobody", "wrong-canary")],
)
def test_wrong_or_missing_credentials_are_an_auth_error_that_does_not_show_them(
    guarded_redis: RedisServer, user: str, password: str
) -> None:
    url = guarded_redis.login(user, password) if password else guarded_redis.url
    with hotcount.Redis(url) as redis, pytest.raises(hotcount.AuthError) as caught:
        redis.ping()
    assert isinstance(caught.value, PermissionError)
    assert caught.value.code in ("WRONGPASS", "NOAUTH")
    assert "canary" not in repr(caught.value)


def test_a_password_where_none_is_set_is_an_auth_error(redis_server: RedisServer) -> None:
    with hotcount.Redis(redis_server.login("", "needless-canary")) as redis:
        with pytest.raises(hotcount.AuthError) as caught:
            redis.ping()
        assert "canary" not in repr(caught.value)


def test_a_user_may_do_what_the_acl_grants_and_no_more(guarded_redis: RedisServer) -> None:
    redis = hotcount.Redis(guarded_redis.login("counter", CANARY))
    counter = hotcount.Counter(redis)
    assert counter.add("acl") == 1
    assert counter.get("acl") == 1
    with pytest.raises(hotcount.PermissionDeniedError) as caught:
        counter.reset("acl")
    assert isinstance(caught.value, PermissionError)
    assert caught.value.code == "NOPERM"
    with pytest.raises(hotcount.PermissionDeniedError):
        hotcount.Counter(redis, prefix="elsewhere").add("acl")
    assert counter.get("acl") == 1


@pytest.mark.parametrize(
    "password", ["p@ss/w:rd?&#%+ ", "größe", "'\"\\"], ids=["delimiters", "utf8", "quotes"]
)
def test_a_password_with_delimiters_is_percent_encoded(
    own_redis: RedisServer, password: str
) -> None:
    own_redis.redis().execute("CONFIG", "SET", "requirepass", password)
    with hotcount.Redis(own_redis.login("", quote(password, safe=""))) as redis:
        assert redis.ping() is True


def test_databases_are_apart(redis_server: RedisServer) -> None:
    redises = [hotcount.Redis(f"{redis_server.url}?db={number}") for number in (0, 1, 15)]
    for number, redis in enumerate(redises, 1):
        hotcount.Counter(redis, prefix="db").add("k", number)
    assert [hotcount.Counter(redis, prefix="db").get("k") for redis in redises] == [1, 2, 3]


def test_a_database_that_does_not_exist_is_a_config_error(redis_server: RedisServer) -> None:
    with pytest.raises(hotcount.ConfigError, match="DB index"):
        hotcount.Redis(f"{redis_server.url}?db=16").ping()


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(lambda folder: f"redis://127.0.0.1:{free_port()}", id="port"),
        pytest.param(lambda folder: f"unix://{folder}/no.sock", id="socket"),
        pytest.param(lambda folder: "redis://no-such-host.invalid", id="host"),
    ],
)
def test_a_refused_connection_says_that_nothing_was_applied(url: Any, tmp_path: Path) -> None:
    redis = hotcount.Redis(url(tmp_path), timeout=5)
    with pytest.raises(hotcount.UnavailableError) as caught:
        hotcount.Counter(redis).add("k")
    assert isinstance(caught.value, ConnectionError)


def test_a_counter_is_a_plain_integer_that_others_may_use(redis_server: RedisServer) -> None:
    redis = hotcount.Redis(redis_server.url, prefix="app:")
    counter = hotcount.Counter(redis, prefix="likes")
    redis.execute("SET", "app:likes:k", "10")
    assert counter.add("k") == 11
    assert redis.execute("GET", "app:likes:k") == b"11"
    assert redis.execute("OBJECT", "ENCODING", "app:likes:k") == b"int"
    redis.execute("INCR", "app:likes:k")
    assert counter.get("k") == 12


@pytest.mark.parametrize("command", [("RPUSH", "x"), ("SET", "no number"), ("HSET", "f", "1")])
def test_a_key_of_another_type_is_left_alone(redis_server: RedisServer, command: Any) -> None:
    redis = hotcount.Redis(redis_server.url)
    counter = hotcount.Counter(redis, prefix="wrong")
    name, *arguments = command
    redis.execute("DEL", "wrong:k")
    redis.execute(name, "wrong:k", *arguments)
    with pytest.raises(hotcount.WrongTypeError, match="k"):
        counter.add("k")
    with pytest.raises(hotcount.WrongTypeError, match="k"):
        counter.get("k")
    with pytest.raises(hotcount.WrongTypeError, match=r"^ZADD: "):
        redis.execute("zadd", "wrong:k", "1", "m")
    result = counter.add_many(["before", "k", "after"], errors="return")
    assert isinstance(result.errors[1], hotcount.WrongTypeError)
    assert result[0] == result[2] > 0


def test_a_key_that_lost_its_expiry_is_healed_by_the_next_add(redis_server: RedisServer) -> None:
    redis = hotcount.Redis(redis_server.url, prefix="heal:")
    counter = hotcount.Counter(redis, ttl=60)
    counter.add("k")
    redis.execute("PERSIST", "heal:count:k")
    assert counter.ttl("k") is None
    assert counter.add("k") == 2
    left = counter.ttl("k")
    assert left is not None
    assert 59 < left <= 60


def test_execute_returns_python_values(redis_server: RedisServer) -> None:
    redis = hotcount.Redis(redis_server.url)
    assert redis.execute("PING") == b"PONG"
    assert redis.execute("SET", "e", b"\0\r\n\xff") == b"OK"
    assert redis.execute("get", "e") == b"\0\r\n\xff"
    assert redis.execute("GET", "absent") is None
    assert redis.execute("INCRBY", "n", 2**63 - 1) == 2**63 - 1
    assert redis.execute("SET", "f", 1.5) == b"OK"
    assert redis.execute("INCRBYFLOAT", "f", 0.25) == b"1.75"
    assert redis.execute("MGET", "e", "absent") == [b"\0\r\n\xff", None]
    assert redis.execute("EVAL", "return {1, 'a', false, {2, {}}}", 0) == [1, b"a", None, [2, []]]
    assert redis.execute("DEL", "e", "n", "f") == 3


def test_an_error_reply_is_raised_and_one_inside_a_list_stands_in_it(
    redis_server: RedisServer,
) -> None:
    redis = hotcount.Redis(redis_server.url)
    with pytest.raises(hotcount.ReplyError) as caught:
        redis.execute("NOSUCHCOMMAND")
    assert caught.value.code == "ERR"
    first, inside = redis.execute("EVAL", "return {1, redis.error_reply('MINE oops')}", 0)
    assert first == 1
    assert isinstance(inside, hotcount.ReplyError)
    assert inside.code == "MINE"
    assert redis.ping() is True


@pytest.mark.parametrize("bad", [None, True, ["a"], {"a": 1}, bytearray(b"a")])
def test_a_command_part_of_another_type_is_named_with_its_index(
    redis_server: RedisServer, bad: Any
) -> None:
    redis = hotcount.Redis(redis_server.url)
    with pytest.raises(TypeError, match=rf"command\[2\].*{type(bad).__name__}"):
        redis.execute("SET", "k", bad)
    with pytest.raises(TypeError, match="missing the command"):
        redis.execute()


@pytest.mark.parametrize("by", ["socket", "port"])
def test_an_idle_connection_that_the_server_dropped_is_replaced_without_an_error(
    tmp_path: Path, by: str
) -> None:
    with RedisServer(tmp_path, port=free_port()).started() as server:
        redis = hotcount.Redis(server.url if by == "socket" else f"redis://127.0.0.1:{server.port}")
        counter = hotcount.Counter(redis)
        counter.add("k")
        other = server.redis(prefix="other:")
        assert other.execute("CLIENT", "KILL", "ID", redis.execute("CLIENT", "ID")) == 1
        assert counter.add("k") == 2
        server.kill()
        server.start()
        assert counter.add("k") == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("silence_limit", -0.001),
        ("max_queue", 0),
        ("client_name", "two words"),
        ("client_name", "a\r\nline"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(option: str, value: Any) -> None:
    with pytest.raises(hotcount.ConfigError, match=option):
        hotcount.Redis("redis://127.0.0.1", **{option: value})
    with pytest.raises(hotcount.ConfigError, match=option):
        hotcount.connect("redis://127.0.0.1", **{option: value})


def test_a_connection_has_a_name_and_the_scripts_that_are_used(own_redis: RedisServer) -> None:
    with own_redis.redis() as direct, own_redis.redis(client_name="votes:web1") as redis:
        counter = hotcount.Counter(redis, ttl=60)
        redis.ping()
        clients = direct.execute("CLIENT", "LIST").decode()
        assert "name=votes:web1 " in clients
        assert "name=hotcount " in clients
        calls = calls_of(direct, "script\\|load")
        assert calls > 0, "loaded with the connection"
        assert counter.add("k") == 1
        assert calls_of(direct, "eval") == 0, "so its first call found it there"
        # Only where the server lost it does its text travel, once.
        direct.execute("SCRIPT", "FLUSH")
        assert [counter.add("k"), counter.add("k")] == [2, 3]
        assert calls_of(direct, "eval") == 1


def test_stats_say_what_was_sent_and_how_long_it_took(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=20) as redis:
        counter = hotcount.Counter(redis)
        together(lambda index: [counter.add("k") for _ in range(50)], 32)
        stats = redis.stats()
        assert stats["commands"] == 32 * 50
        assert 0 < stats["combined"] < stats["commands"]
        assert 0 < stats["sends"] < stats["commands"]
        assert stats["bytes_sent"] > stats["sends"]
        assert stats["bytes_received"] > 0
        assert (stats["connects"], stats["reconnects"]) == (1, 0)
        assert 0 < stats["latency_us_p50"] <= stats["latency_us_p99"] <= stats["latency_us_max"]
        with own_redis.redis() as direct:
            direct.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        counter.get("k")
        stats = redis.stats()
        assert (stats["connects"], stats["reconnects"]) == (2, 1)
