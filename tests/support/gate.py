"""A proxy that holds a command back until the test says: what happens before it is then certain."""

import socket
import threading
from pathlib import Path
from urllib.parse import quote

from tests.support.listener import Proxy


class Gate(Proxy):
    """A command with the word that it holds waits at the gate; everything else passes.

    Everything before that command has reached the server and was answered, for a client that
    waits for each answer; the test then does what it wants to happen in between, and opens.
    """

    def __init__(self, server: Path, listen: Path) -> None:
        self.path = listen
        self._word: bytes | None = None
        self._arrived = threading.Event()
        self._passage = threading.Event()
        super().__init__(server, listen)

    def url(self, user: str = "", password: str = "") -> str:
        login = f"{quote(user)}:{quote(password)}@" if user else ""
        return f"redis+unix://{login}{self.path}"

    def hold(self, word: str) -> None:
        """The next command with the word waits."""
        self._arrived.clear()
        self._passage.clear()
        self._word = word.encode()

    def wait(self) -> None:
        """Until that command is here."""
        assert self._arrived.wait(30), "no such command came"

    def open(self) -> None:
        self._passage.set()

    def close(self) -> None:
        self.open()
        super().close()

    def from_client(self, client: socket.socket, upstream: socket.socket, data: bytes) -> None:
        if self._word is not None and self._word in data:
            self._word = None
            self._arrived.set()
            self._passage.wait(30)
        upstream.sendall(data)
