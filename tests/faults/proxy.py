"""A proxy on loopback that does to a connection what networks do.

One for all fault tests. It counts what it did, so that a scenario whose fault never fired is void:
assert on `fired`.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support import fired

CLIENT_TO_SERVER, SERVER_TO_CLIENT = 0, 1


class FaultProxy:
    """Passes bytes between clients and one server on a unix socket, until told otherwise.

    Faults are armed for the bytes that pass from then on, in one direction, on any connection:
    cut_after, reset_after, black_hole, forget, hold, before_each, delay,
    slices. heal() takes all of them back.
    """

    def __init__(self, server: Path) -> None:
        self.server = server
        self.connections = 0
        self.refused = 0
        self.fired = 0
        # Pieces of data that were passed on, by direction.
        self.passed = [0, 0]
        self._lock = threading.Condition()
        # Connections whose last bytes passed and that are not closed yet.
        self._ending = 0
        self._left: list[int | None] = [None, None]
        self._again: list[int] = []
        self._reset = False
        self._hole = [False, False]
        self._open = [threading.Event(), threading.Event()]
        for passage in self._open:
            passage.set()
        self._before: Callable[[], object] | None = None
        self._delay = (0.0, 0.0)
        self._slice = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._forgotten: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._closing = False
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    # -- faults -----------------------------------------------------------------

    def cut_after(self, passed: int, direction: int = CLIENT_TO_SERVER, times: int = 1) -> None:
        """Lets `passed` more bytes pass in the direction, then closes the connection; does so
        `times` times, one after the other."""
        with self._lock:
            self._left[direction] = passed
            self._again = [passed] * (times - 1)
            self._reset = False

    def reset_after(self, passed: int, direction: int = CLIENT_TO_SERVER) -> None:
        """The same, with a reset (RST) instead of an orderly end."""
        with self._lock:
            self._left[direction] = passed
            self._again = []
            self._reset = True

    def black_hole(self, direction: int = SERVER_TO_CLIENT) -> None:
        """Swallows everything in the direction; the connection stays open. One that has lost bytes
        so is lost for good, as TCP would have it: heal() is for those that are made afterwards."""
        self._hole[direction] = True

    def forget(self) -> None:
        """As a firewall forgets: what is said on the connections of now is swallowed both ways, and
        they never end; those that are made later pass."""
        with self._lock:
            self._forgotten.update(self._pairs)

    def cut(self) -> None:
        """Closes the connections of now, at once."""
        self._fire("cut")
        for pair in self._pairs:
            self._end(pair)

    def hold(self, direction: int = SERVER_TO_CLIENT) -> None:
        """Keeps everything in the direction back until heal(), which lets it pass."""
        self._open[direction].clear()

    def before_each(self, call: Callable[[], object]) -> None:
        """Calls it before each piece of data from the server passes."""
        self._before = call

    def delay(self, seconds: float, spread: float = 0.0) -> None:
        """Holds every piece of data for `seconds`, more or less by a time drawn within `spread`."""
        self._delay = (seconds - spread, seconds + spread)

    def slices(self, size: int) -> None:
        """Passes at most `size` bytes at a time."""
        self._slice = size

    def heal(self) -> None:
        with self._lock:
            # A cut that has fired has also closed its connection when this returns: the next call
            # would be sent over a connection that is closed a moment later.
            self._lock.wait_for(lambda: not self._ending, timeout=10)
            self._left = [None, None]
            self._again = []
            self._hole = [False, False]
            self._before = None
            self._delay = (0.0, 0.0)
            self._slice = 0
            for passage in self._open:
                passage.set()

    # -- machinery --------------------------------------------------------------

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing = True
        self.heal()
        # Wakes accept(), which closing the listener alone would not.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            pass
        self._acceptor.join()
        self._listener.close()
        for pair in self._pairs:
            self._end(pair)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._closing:
                client.close()
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            upstream = socket.socket(socket.AF_UNIX)
            try:
                upstream.connect(str(self.server))
            except OSError:
                client.close()
                upstream.close()
                self.refused += 1
                continue
            self.connections += 1
            pair = (client, upstream)
            self._pairs.append(pair)
            for direction in (CLIENT_TO_SERVER, SERVER_TO_CLIENT):
                threading.Thread(target=self._pump, args=(pair, direction), daemon=True).start()

    def _pump(self, pair: tuple[socket.socket, socket.socket], direction: int) -> None:
        source, target = pair if direction == CLIENT_TO_SERVER else pair[::-1]
        swallowed = False
        try:
            while data := source.recv(self._slice or 65536):
                if not self._open[direction].is_set():
                    self._fire("hold")
                    self._open[direction].wait()
                if direction == SERVER_TO_CLIENT and (before := self._before) is not None:
                    before()
                if self._delay[1]:
                    fired.fired("proxy delay")
                    time.sleep(random.uniform(*self._delay))
                if self._slice:
                    fired.fired("proxy slice")
                if self._hole[direction] or swallowed or pair in self._forgotten:
                    swallowed = True
                    self._fire("hole")
                    continue
                passed, cut = self._allowance(data, direction)
                try:
                    if passed:
                        target.sendall(passed)
                        self.passed[direction] += 1
                    if cut:
                        self._end(pair, reset=self._reset)
                        return
                finally:
                    if cut:
                        with self._lock:
                            self._ending -= 1
                            self._lock.notify_all()
        except OSError:
            pass
        self._end(pair)

    def _fire(self, fault: str) -> None:
        self.fired += 1
        fired.fired(f"proxy {fault}")

    def _allowance(self, data: bytes, direction: int) -> tuple[bytes, bool]:
        with self._lock:
            left = self._left[direction]
            if left is None:
                return data, False
            if left > len(data):
                self._left[direction] = left - len(data)
                return data, False
            self._left[direction] = self._again.pop() if self._again else None
            self._fire("reset" if self._reset else "cut")
            self._ending += 1
            return data[:left], True

    @staticmethod
    def _end(pair: tuple[socket.socket, socket.socket], *, reset: bool = False) -> None:
        for end in pair:
            with contextlib.suppress(OSError):
                if reset:
                    # Lingering for zero seconds is how a socket is closed with a reset.
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                end.close()
