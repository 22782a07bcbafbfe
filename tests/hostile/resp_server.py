"""A server that speaks RESP as long as a test wants it to."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import socket
import threading
from collections.abc import Callable

Words = list[bytes]
# Called with the connection's number, its socket and each command that is not answered here.
Respond = Callable[[int, socket.socket, Words], None]


class RespServer:
    """Listens on a loopback port; a thread for each connection.

    A connection's HELLO (refused, so RESP2), SCRIPT LOAD and PING are answered as Redis does.
    """

    def __init__(self, respond: Respond, *, greeting: bytes = b"-ERR unknown command\r\n") -> None:
        self.respond = respond
        self.greeting = greeting
        self.greet: Callable[[socket.socket], None] = lambda client: client.sendall(self.greeting)
        self.closing = threading.Event()
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self) -> RespServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing.set()
        # Wakes accept(), which closing the listener alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        number = next(self._numbers)
        with client, contextlib.suppress(OSError), client.makefile("rb") as stream:
            while header := stream.readline():
                words = []
                for _ in range(int(header[1:])):
                    size = int(stream.readline()[1:])
                    words.append(stream.read(size))
                    stream.readline()
                if words[0] == b"HELLO":
                    self.greet(client)
                elif words[:2] == [b"SCRIPT", b"LOAD"]:
                    sha1 = hashlib.sha1(words[2]).hexdigest().encode()
                    client.sendall(b"$40\r\n%s\r\n" % sha1)
                elif words[0] == b"PING":
                    client.sendall(b"+PONG\r\n")
                else:
                    self.respond(number, client, words)


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)
