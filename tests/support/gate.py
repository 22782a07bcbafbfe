"""A door between a client and its server that a test opens: calls stop where the test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from urllib.parse import quote


class Gate:
    """Passes a unix socket's bytes on; a command with the word that it holds waits at the gate.

    Everything before that command has reached the server and was answered, for a client that
    waits for each answer; the test then does what it wants to happen in between, and opens.
    """

    def __init__(self, server: Path, listen: Path) -> None:
        self.server = server
        self.path = listen
        self._word: bytes | None = None
        self._arrived = threading.Event()
        self._open = threading.Event()
        self._ends: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(listen))
        self._listener.listen()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def url(self, user: str = "", password: str = "") -> str:
        login = f"{quote(user)}:{quote(password)}@" if user else ""
        return f"redis+unix://{login}{self.path}"

    def hold(self, word: str) -> None:
        """The next command with the word waits."""
        self._arrived.clear()
        self._open.clear()
        self._word = word.encode()

    def wait(self) -> None:
        """Until that command is here."""
        assert self._arrived.wait(30), "no such command came"

    def open(self) -> None:
        self._open.set()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *exc: object) -> None:
        self.open()
        # Wakes accept(), which closing the listener alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(str(self.server))
            self._ends += [client, upstream]
            for source, target, gated in ((client, upstream, True), (upstream, client, False)):
                threading.Thread(
                    target=self._pump, args=(source, target, gated), daemon=True
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, gated: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if gated and self._word is not None and self._word in data:
                    self._word = None
                    self._arrived.set()
                    self._open.wait(30)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
