"""What fake servers and proxies of the tests share: a listener with a thread for each client."""

import contextlib
import socket
import threading
from pathlib import Path
from typing import TypeVar

from tests.support.fired import fired

AnyListener = TypeVar("AnyListener", bound="Listener")


class Listener:
    """Listens on a loopback port, or on the unix socket that is named.

    A subclass defines serve(), and sets what serve() uses before it calls __init__() here.
    """

    def __init__(self, unix: Path | None = None) -> None:
        self.port = 0
        self.connections = 0  # So many clients have come.
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        if unix is None:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            self.port = self._listener.getsockname()[1]
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(unix))
            self._listener.listen(128)
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def serve(self, client: socket.socket) -> None:
        """Talks with one client. An OSError ends the conversation, and so does a return."""
        raise NotImplementedError

    def opened(self, connection: socket.socket) -> None:
        """close() ends this connection too."""
        self._open.append(connection)

    def close(self) -> None:
        """Ends all connections, and waits for the threads that serve them."""
        # Wakes accept(), which closing the listener alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        for connection in self._open:
            end(connection)
        for thread in self._threads:
            thread.join()

    def __enter__(self: AnyListener) -> AnyListener:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            fired("fake server")
            self.opened(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self.serve(client)


class Proxy(Listener):
    """Passes bytes between its clients and a server on a unix socket."""

    def __init__(self, server: Path, unix: Path | None = None) -> None:
        self.server = server
        super().__init__(unix)

    def from_client(self, client: socket.socket, upstream: socket.socket, data: bytes) -> None:
        """Called with each piece of data from a client; passes it on."""
        upstream.sendall(data)

    def serve(self, client: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(str(self.server))
            self.opened(upstream)
            back = threading.Thread(target=self._back, args=(client, upstream), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                while data := client.recv(1 << 20):
                    self.from_client(client, upstream, data)
            end(client)
            end(upstream)
            back.join()

    def _back(self, client: socket.socket, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := upstream.recv(1 << 20):
                client.sendall(data)
        end(client)
        end(upstream)


def end(connection: socket.socket) -> None:
    """Wakes whoever reads from it or writes to it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
