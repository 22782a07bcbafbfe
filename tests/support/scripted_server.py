"""A server that answers what a test tells it to: what no real one can be made to say."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

HELLO = b"-ERR unknown command 'HELLO'\r\n"  # As Redis 5 has it.

Answer = Callable[[list[bytes]], bytes]


class ScriptedServer:
    """Listens on a unix socket and calls `answer` with each command for the bytes to send.

    HELLO and SCRIPT LOAD, which come with a connection, are answered by themselves. `commands`
    are the others, in order.
    """

    def __init__(self, folder: Path, answer: Answer) -> None:
        self.path = folder / "scripted.sock"
        self.commands: list[list[bytes]] = []
        self._answer = answer
        self._clients: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def url(self) -> str:
        return f"redis+unix://{self.path}"

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *exc: object) -> None:
        # Wakes accept(), which closing the listener alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as stream:
            while header := stream.readline():
                command = []
                for _ in range(int(header[1:])):
                    size = int(stream.readline()[1:])
                    command.append(stream.read(size))
                    stream.readline()
                if command[0] == b"HELLO":
                    client.sendall(HELLO)
                    continue
                if command[:2] == [b"SCRIPT", b"LOAD"]:
                    client.sendall(b"$40\r\n%s\r\n" % hashlib.sha1(command[2]).hexdigest().encode())
                    continue
                self.commands.append(command)
                client.sendall(self._answer(command))
