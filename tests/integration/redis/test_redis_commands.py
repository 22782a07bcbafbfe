"""Where execute() sends each command of a real server, and that it is right to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.resp_server import RespServer, Words, bulk
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

# Arguments that would change the server for the commands after it.
GIVEN = {"replicaof": ["NO", "ONE"], "slaveof": ["NO", "ONE"]}

ANSWERS = (
    hotcount.UnavailableError,  # NOSCRIPT. A connection that was lost would show in stats().
    hotcount.ReplyError,
    hotcount.WrongTypeError,
    hotcount.CounterOverflowError,
    hotcount.PermissionDeniedError,
    hotcount.ConfigError,
)

TYPED_KEYS = ["string", "list", "hash", "set", "zset", "stream", "number"]

REFUSED = """
MULTI; EXEC; DISCARD; WATCH; UNWATCH; SUBSCRIBE; PSUBSCRIBE; SSUBSCRIBE; UNSUBSCRIBE;
PUNSUBSCRIBE; SUNSUBSCRIBE; MONITOR; SELECT; AUTH; HELLO; QUIT; RESET; BLPOP; BRPOP; BLMOVE;
BRPOPLPUSH; BLMPOP; BZPOPMIN; BZPOPMAX; BZMPOP; WAIT; WAITAOF; SYNC; PSYNC; SHUTDOWN; REPLCONF;
ASKING; READONLY; READWRITE; CLIENT REPLY; CLIENT TRACKING; CLIENT SETNAME; CLIENT SETINFO;
CLIENT NO-EVICT; CLIENT NO-TOUCH; CLIENT CACHING; CLIENT CAPA; SCRIPT DEBUG;
XREAD BLOCK 0 STREAMS k $; XREADGROUP GROUP g c BLOCK 0 STREAMS k >"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(
        tmp_path_factory.mktemp("commands"), config=("--enable-debug-command", "yes")
    ).started() as own:
        yield own


def leaves(server: RedisServer) -> list[tuple[list[str], int]]:
    """Every command and subcommand that the server has, with its arity."""
    found = []
    with server.redis(timeout=20) as redis:
        for command in redis.execute("COMMAND"):
            for one in command[9] or [command]:
                found.append((one[0].decode().split("|"), int(one[1])))
    assert len(found) > 300
    return found


def drawn_arguments(words: list[str], arity: int) -> list[list[str]]:
    """Calls of a command: some that it takes, some that it does not."""
    if words[0] in GIVEN:
        return [[*words, *GIVEN[words[0]]]]
    least = max(abs(arity) - len(words), 0)
    calls = [
        [*words, *["1"] * least],
        [*words, *["x"] * (least + 1)],
        [*words, *["1"] * max(least - 1, 0)],
    ]
    for key in TYPED_KEYS if least else []:
        calls.append([*words, key, *["1"] * (least - 1)])
        calls.append([*words, key, *["1"] * least])
    return calls


def places(server: RedisServer) -> dict[str, str]:
    """Where execute() sends each of them: "shared", "alone" or "refused"."""
    connection_of: dict[bytes, int] = {}

    def respond(number: int, client: socket.socket, words: Words) -> None:
        connection_of[b" ".join(words)] = number
        echo = words[0] == b"ECHO"
        client.sendall(bulk(words[1]) if echo else b"-ERR none\r\n")

    found = {}
    with RespServer(respond) as recorder, hotcount.Redis(recorder.url, timeout=20) as redis:
        with pytest.raises(hotcount.ReplyError):
            redis.execute("GET", "k")
        shared = connection_of[b"GET k"]
        for words, _ in leaves(server):
            name = " ".join(words)
            try:
                redis.execute(*words, "some-key")
            except hotcount.ConfigError:
                found[name] = "refused"
            except hotcount.ReplyError:
                one = connection_of[f"{name} some-key".encode()]
                found[name] = "shared" if one == shared else "alone"
    return found


class Raw:
    """A connection of RESP3, and how many replies come by it."""

    def __init__(self, server: RedisServer) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(str(server.socket))
        self._stream = self._socket.makefile("rb")
        self.send("HELLO", "3")
        self.reply()

    def send(self, *words: str) -> None:
        parts = [bulk(word.encode()) for word in words]
        self._socket.sendall(b"*%d\r\n" % len(parts) + b"".join(parts))

    def reply(self) -> tuple[bytes, Any]:
        """The type and value of what comes next; a push is one too."""
        line = self._stream.readline()
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=!" and int(rest) >= 0:
            return kind, self._stream.read(int(rest) + 2)[:-2]
        if kind in b"*~%>|" and int(rest) >= 0:
            size = int(rest) * (2 if kind in b"%|" else 1)
            return kind, [self.reply() for _ in range(size)]
        return kind, rest

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def fill(redis: hotcount.Redis) -> None:
    redis.execute("DEL", *TYPED_KEYS)
    redis.execute("SET", "string", "text")
    redis.execute("SET", "number", "1")
    redis.execute("RPUSH", "list", "1", "2")
    redis.execute("HSET", "hash", "1", "1")
    redis.execute("SADD", "set", "1", "2")
    redis.execute("ZADD", "zset", 1, "1", 2, "2")
    redis.execute("XADD", "stream", "1-1", "a", "b")


def test_a_shared_command_answers_exactly_once_whatever_its_arguments(server: RedisServer) -> None:
    where = places(server)
    assert len([name for name, place in where.items() if place == "shared"]) > 250
    raw = Raw(server)
    with server.redis(timeout=20) as redis:
        for words, arity in leaves(server):
            if where[" ".join(words)] != "shared":
                continue
            for call in drawn_arguments(words, arity):
                fill(redis)
                for line in (("INCR", "between"), tuple(call), ("INCR", "between")):
                    raw.send(*line)
                raw.send("ECHO", "end")
                got = [raw.reply() for _ in range(4)]
                assert [kind for kind, _ in got[::2]] == [b":", b":"], (call, got)
                assert got[1][0] not in b">|", (call, got)
                assert got[3] == (b"$", b"end"), (call, got)
    raw.close()


def test_a_shared_command_has_the_shape_that_is_known_of_it(server: RedisServer) -> None:
    # What is of another shape ends the connection, which would show.
    where = places(server)
    answered = 0
    for protocol in ("3", "2"):
        name = f"resp{protocol}"  # Or both would share one client.
        with (
            server.redis(timeout=20) as direct,
            server.redis(timeout=20, client_name=name) as redis,
        ):
            if protocol == "2":
                direct.execute("ACL", "SETUSER", "default", "-hello")
            fill(direct)
            redis.ping()
            for words, arity in leaves(server):
                if where[" ".join(words)] != "shared":
                    continue
                for call in drawn_arguments(words, arity):
                    fill(direct)
                    # Any error reply will do; an outcome that is unknown is none of them.
                    with contextlib.suppress(*ANSWERS):
                        redis.execute(*call)
                        answered += 1
            assert redis.stats()["connects"] == 1
            direct.execute("ACL", "SETUSER", "default", "+hello")
    assert answered > 1000


def test_commands_that_the_client_does_not_know_get_a_dedicated_connection(
    server: RedisServer,
) -> None:
    where = places(server)
    alone = {name for name, place in where.items() if place == "alone"}
    assert {"debug", "migrate", "client kill", "failover", "acl setuser"} <= alone
    assert len(alone) < 25


@pytest.mark.parametrize("line", [line.strip() for line in REFUSED.split(";")])
def test_what_would_change_or_hold_a_connection_is_refused(server: RedisServer, line: str) -> None:
    with server.redis(timeout=20) as redis:
        for words in (line.split(), line.lower().split(), [*line.split(), "more"]):
            with pytest.raises(hotcount.ConfigError, match="is refused"):
                redis.execute(*words)

        async def awaited() -> None:
            async with aio.Redis(server.url, timeout=20) as awaiting:
                with pytest.raises(hotcount.ConfigError, match="is refused"):
                    await awaiting.execute(*line.split())

        asyncio.run(awaited())
        assert hotcount.Counter(redis).add(f"after {line}") == 1


def test_attributes_and_pushes_around_a_reply_are_read_over(server: RedisServer) -> None:
    with server.redis(timeout=20) as redis:
        for kind in ("attrib", "push"):
            assert b"Some real reply" in redis.execute("DEBUG", "PROTOCOL", kind)
            assert redis.execute("ECHO", kind) == kind.encode()


async def test_aio_sends_what_is_not_known_over_a_second_connection_of_the_loop(
    server: RedisServer,
) -> None:
    async with aio.Redis(server.url, timeout=20) as redis:
        counter = aio.Counter(redis)
        ids = [await redis.execute("CLIENT", "ID") for _ in range(2)]
        assert ids[0] == ids[1]
        calls = [redis.execute("DEBUG", "PROTOCOL", "attrib") for _ in range(5)]
        sums = [counter.add("aio") for _ in range(5)]
        assert all(b"Some real reply" in reply for reply in await asyncio.gather(*calls))
        assert await asyncio.gather(*sums) == [1, 2, 3, 4, 5]
        with pytest.raises(hotcount.ReplyError):
            await redis.execute("NO.SUCH", "command")
        # CLIENT KILL of the connection it goes by ends that, and no other.
        own = await redis.execute("CLIENT", "KILL", "ID", str(ids[0] + 10_000))
        assert own == 0
        assert await redis.execute("CLIENT", "ID") == ids[0]


def test_a_command_that_answers_never_or_twice_is_unknown_and_harms_no_other(
    tmp_path: Path,
) -> None:
    def respond(_: int, client: socket.socket, words: Words) -> None:
        answers = {b"M.NEVER": b"", b"M.TWICE": b":1\r\n:2\r\n", b"M.ONCE": b":7\r\n"}
        client.sendall(answers.get(words[0], bulk(words[-1])))

    with RespServer(respond) as server, hotcount.Redis(server.url, timeout=20) as redis:
        for _ in range(3):
            for name, why in (("M.NEVER", "no reply"), ("M.TWICE", "more than one reply")):
                with pytest.raises(hotcount.OutcomeUnknownError, match=why):
                    redis.execute(name)
            assert redis.execute("M.ONCE") == 7
            assert redis.execute("GET", "k") == b"k"

        async def awaited() -> None:
            async with aio.Redis(server.url, timeout=20) as awaiting:
                for _ in range(3):
                    for name in ("M.NEVER", "M.TWICE"):
                        with pytest.raises(hotcount.OutcomeUnknownError):
                            await awaiting.execute(name)
                    assert await awaiting.execute("M.ONCE") == 7
                    assert await awaiting.execute("GET", "k") == b"k"

        asyncio.run(awaited())
