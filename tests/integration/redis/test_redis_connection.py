"""The connection to a Redis: how it is made, how it fails, and that replies are never swapped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hotcount
import pytest

from tests.support.eventually import BUSY
from tests.support.servers import RedisServer, free_port
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


def test_the_password_appears_nowhere(guarded_redis: RedisServer) -> None:
    url = guarded_redis.login("counter", CANARY)
    redis = hotcount.Redis(url)
    counter = hotcount.Counter(redis)
    counter.add("k")
    shown = [repr(redis), str(redis), repr(counter), repr(redis.stats())]
    for call in (
        lambda: hotcount.Redis(url, bogus=1),  # type: ignore[call-arg]
        lambda: hotcount.Redis(url, timeout=-1),
        lambda: hotcount.Redis(url, 5),  # type: ignore[call-arg]
        lambda: hotcount.connect(url, bogus=1),
        lambda: hotcount.connect(url, 5),  # type: ignore[call-arg]
        lambda: hotcount.connect(url + "?bogus=1"),
        lambda: hotcount.connect(url.replace("redis+unix", "mongodb")),
        lambda: hotcount.connect(url.replace("redis+unix", "rediss")),
        lambda: hotcount.Votes(url),
        lambda: redis.execute("CONFIG", "GET", "requirepass"),
        lambda: counter.reset("k"),
    ):
        with pytest.raises((hotcount.HotcountError, TypeError)) as caught:
            call()
        shown.append(repr(caught.value))
    redis.close()
    shown.append(repr(redis))
    assert [text for text in shown if "canary" in text] == []
    assert "counter:***@" in repr(redis)


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


def test_an_add_that_was_sent_and_not_answered_is_unknown_and_its_late_reply_is_never_seen(
    own_redis: RedisServer,
) -> None:
    redis = own_redis.redis()
    counter = hotcount.Counter(redis)
    counter.add("k", 100)
    with own_redis.stopped():
        started = time.monotonic()
        with pytest.raises(hotcount.OutcomeUnknownError):
            counter.add("k", timeout=0.2)
        assert 0.19 <= time.monotonic() - started < 0.2 + BUSY
        # A read changes nothing, so nothing about it is unknown.
        with pytest.raises(hotcount.DeadlineError):
            counter.get("k", timeout=0.1)
    # It was never sent again: applied once, or not at all.
    assert redis.execute("ECHO", "mine") == b"mine"
    assert counter.get("k") in (100, 101)
    assert counter.add("other", 7) == 7


def test_callers_that_wait_for_the_connection_leave_by_their_deadline_with_nothing_applied(
    own_redis: RedisServer,
) -> None:
    counter = hotcount.Counter(own_redis.redis())
    counter.add("k")
    with own_redis.stopped():

        def add(_: int) -> tuple[type[BaseException], float]:
            started = time.monotonic()
            with pytest.raises(hotcount.HotcountError) as caught:
                counter.add("k", timeout=0.3)
            return type(caught.value), time.monotonic() - started

        ends = together(add, 8)
    kinds = [kind for kind, _ in ends]
    assert set(kinds) <= {hotcount.OutcomeUnknownError, hotcount.DeadlineError}
    assert all(waited < 0.8 for _, waited in ends)
    # One was on the wire; of the others it is certain that they were not applied.
    sent = kinds.count(hotcount.OutcomeUnknownError)
    assert sent >= 1
    assert 1 <= counter.get("k") <= 1 + sent


def test_while_the_server_is_down_nothing_is_applied_and_afterwards_it_goes_on(
    own_redis: RedisServer,
) -> None:
    counter = hotcount.Counter(own_redis.redis())
    assert counter.add("k") == 1
    own_redis.kill()
    for _ in range(3):
        with pytest.raises(hotcount.UnavailableError):
            counter.add("k")
    own_redis.start()
    assert counter.add("k") == 1, "it came back empty, and nobody counted twice"


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


def test_threads_count_exactly_while_their_connection_is_killed(own_redis: RedisServer) -> None:
    """Acknowledged adds are there, unknown ones may be; what was not sent goes once more."""
    counter = hotcount.Counter(own_redis.redis(timeout=5))

    def add(index: int) -> tuple[int, int]:
        acknowledged = unknown = 0
        for number in range(60):
            try:
                counter.add("k")
                acknowledged += 1
            except hotcount.OutcomeUnknownError:
                unknown += 1
            if index == 0 and number in (10, 20, 30):
                own_redis.redis().execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        return acknowledged, unknown

    ends = together(add, 8)
    acknowledged = sum(a for a, _ in ends)
    unknown = sum(u for _, u in ends)
    assert acknowledged + unknown == 8 * 60
    assert acknowledged <= counter.get("k") <= acknowledged + unknown
