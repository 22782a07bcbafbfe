"""A Redis that has INCREX, or something like it, in front of a real one that has not.

Every command but INCREX goes to the real server, over a connection for each client, and INCREX is a
script there: so what INCREX wrote and what limiters' scripts read is the same data.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tests.support.listener import end
from tests.support.resp_server import RespServer, Words, bulk

# Runs a command on the real server; returns the reply's bytes.
Run = Callable[[Words], bytes]
Dialect = Callable[[Words, Run], bytes]

# As Redis 8.8 and Valkey 9.2 document it, for integers.
INCREX = """
local value = redis.call('GET', KEYS[1])
if value and not string.match(value, '^-?%d+$') then
    return {err = 'ERR value is not an integer or out of range'}
end
value = tonumber(value or 0)
local after = value + ARGV[1]
if ARGV[2] ~= '' and after > tonumber(ARGV[2]) then
    after = ARGV[3] == '1' and tonumber(ARGV[2]) or value
end
if after == value then return {value, 0} end
redis.call('SET', KEYS[1], string.format('%d', after), 'KEEPTTL')
if ARGV[4] ~= '' and (ARGV[5] ~= '1' or redis.call('PTTL', KEYS[1]) < 0) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return {after, after - value}
"""
SYNTAX = b"-ERR syntax error\r\n"


def increx(words: Words, run: Run, known: tuple[bytes, ...], *, resets: bool = False) -> bytes:
    """INCREX of a server that knows these options."""
    values = {b"BYINT": b"1", b"UBOUND": b"", b"PX": b""}
    flags = set()
    rest = iter(words[2:])
    for word in rest:
        if word not in known:
            return SYNTAX
        if word in values:
            values[word] = next(rest)
        else:
            flags.add(word)
    keeps = b"ENX" in flags and not resets
    arguments = [
        values[b"BYINT"],
        values[b"UBOUND"],
        b"1" if b"SATURATE" in flags else b"0",
        values[b"PX"],
        b"1" if keeps else b"0",
    ]
    return run([b"EVAL", INCREX.encode(), b"1", words[1], *arguments])


REDIS = (b"BYINT", b"LBOUND", b"UBOUND", b"SATURATE", b"EX", b"PX", b"PERSIST", b"ENX")


def redis_8_8(words: Words, run: Run) -> bytes:
    return increx(words, run, REDIS)


def valkey_9_2(words: Words, run: Run) -> bytes:
    return increx(words, run, (b"NX", b"XX", *REDIS))


def without_bounds(words: Words, run: Run) -> bytes:
    return increx(words, run, (b"NX", b"XX", b"BYINT", b"EX", b"PX"))


def without_saturate(words: Words, run: Run) -> bytes:
    return increx(words, run, tuple(word for word in REDIS if word != b"SATURATE"))


def that_extends(words: Words, run: Run) -> bytes:
    """ENX means nothing to it."""
    return increx(words, run, REDIS, resets=True)


def with_one_number(words: Words, run: Run) -> bytes:
    return redis_8_8(words, run).split(b"\r\n")[1] + b"\r\n"


def with_text(words: Words, run: Run) -> bytes:
    """Numbers as text, as BYFLOAT answers."""
    _, value, taken, _ = redis_8_8(words, run).split(b"\r\n")
    return b"*2\r\n" + bulk(value[1:]) + bulk(taken[1:])


def unknown(words: Words, run: Run) -> bytes:
    """The real server's own answer."""
    return run(words)


def without_right(words: Words, run: Run) -> bytes:
    return b"-NOPERM this user has no permissions to run the 'increx' command\r\n"


HAVE_IT: tuple[Dialect, ...] = (redis_8_8, valkey_9_2)
LACK_IT: tuple[Dialect, ...] = (
    *(without_bounds, without_saturate, that_extends, with_one_number, with_text),
    *(unknown, without_right),
)


class IncrexServer(RespServer):
    """`dialect` may be changed at any time. `hits` are the INCREX commands of limiters' keys.

    `instead` answers a command before the server would; None leaves it to the server, and an
    OSError ends the connection.
    """

    def __init__(self, server: Path, dialect: Dialect) -> None:
        self.server = server
        self.dialect = dialect
        self.hits: list[Words] = []
        self.questions = 0
        self.instead: Callable[[Words], bytes | None] = lambda words: None
        self._upstream: dict[int, tuple[socket.socket, BinaryIO]] = {}
        super().__init__(self._answer)
        self.answers_ping = False

    def close(self) -> None:
        super().close()
        for upstream, replies in self._upstream.values():
            replies.close()
            upstream.close()

    def end_connections(self) -> None:
        for connection in list(self._open):
            end(connection)

    def _answer(self, number: int, client: socket.socket, words: Words) -> None:
        answer = self.instead(words)
        if answer is not None:
            client.sendall(answer)
            return
        if words[0] != b"INCREX":
            client.sendall(self._run(number, words))
            return
        if b"increx." in words[1]:
            self.questions += 1
        else:
            self.hits.append(words)
        client.sendall(self.dialect(words, lambda other: self._run(number, other)))

    def _run(self, number: int, words: Words) -> bytes:
        if number not in self._upstream:
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(str(self.server))
            self.opened(upstream)
            self._upstream[number] = upstream, upstream.makefile("rb")
        upstream, replies = self._upstream[number]
        upstream.sendall(b"*%d\r\n" % len(words) + b"".join(map(bulk, words)))
        return read_reply(replies)


def read_reply(replies: BinaryIO) -> bytes:
    """The bytes of one reply."""
    line = replies.readline()
    if not line:
        raise ConnectionError("the real server has gone")
    size = int(line[1:]) if line[:1] in b"$*" else -1
    if line[:1] == b"$" and size >= 0:
        return line + replies.read(size + 2)
    return line + b"".join(read_reply(replies) for _ in range(size))
