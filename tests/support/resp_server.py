"""Fake Redis servers that answer what a test tells them to, which no real one can be made to do."""

import hashlib
import itertools
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from tests.support.fired import fired
from tests.support.listener import Listener

Words = list[bytes]
# Called with the connection's number, its socket and each command that is not answered here.
Respond = Callable[[int, socket.socket, Words], None]
# Called with a command; returns the bytes to send.
Answer = Callable[[Words], bytes]


class RespServer(Listener):
    """On a loopback port, or the unix socket that is named; `respond` has each command.

    HELLO (refused as by Redis 5, so the client speaks RESP2), SCRIPT LOAD and PING are answered
    as Redis does.
    """

    def __init__(
        self,
        respond: Respond,
        *,
        greeting: bytes = b"-ERR unknown command 'HELLO'\r\n",
        unix: Path | None = None,
    ) -> None:
        self.respond = respond
        self.greeting = greeting
        self.greet: Callable[[socket.socket], None] = lambda client: client.sendall(self.greeting)
        self.answers_ping = True
        self.closing = threading.Event()
        self._numbers = itertools.count()
        super().__init__(unix)
        self.url = f"redis+unix://{unix}" if unix else f"redis://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.closing.set()
        super().close()

    def serve(self, client: socket.socket) -> None:
        number = next(self._numbers)
        with client.makefile("rb") as stream:
            while header := stream.readline():
                words = []
                for _ in range(int(header[1:])):
                    size = int(stream.readline()[1:])
                    words.append(stream.read(size))
                    stream.readline()
                if words[0] == b"HELLO":
                    self.greet(client)
                elif words[:2] == [b"SCRIPT", b"LOAD"]:
                    client.sendall(bulk(hashlib.sha1(words[2]).hexdigest().encode()))
                elif words[0] == b"PING" and self.answers_ping:
                    client.sendall(b"+PONG\r\n")
                else:
                    fired("fake reply")
                    self.respond(number, client, words)


class ScriptedServer(RespServer):
    """On a unix socket in a folder; `answer` has each command, PING too, and gives the reply.

    `commands` are those that it had, in order.
    """

    def __init__(self, folder: Path, answer: Answer) -> None:
        self.commands: list[Words] = []

        def respond(_: int, client: socket.socket, words: Words) -> None:
            self.commands.append(words)
            client.sendall(answer(words))

        super().__init__(respond, unix=folder / "scripted.sock")
        self.answers_ping = False


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


def hello(version: str) -> bytes:
    """What a server of that version answers to HELLO 3."""
    fields = (b"server", b"redis", b"version", version.encode())
    return b"%3\r\n" + b"".join(map(bulk, fields)) + bulk(b"proto") + b":3\r\n"
