"""The process of a private server: signals, its start and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.support import fired
from tests.support.eventually import stand_still, states_of

AnyServer = TypeVar("AnyServer", bound="ServerProcess")


class ServerProcess:
    """A server's process, which its start() has made: signals, and its end."""

    patience = 30.0
    start: Callable[..., Any]
    _process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def started(self: AnyServer, *config: str) -> Iterator[AnyServer]:
        """Runs for the block, and leaves nothing behind."""
        try:
            self.start(*config)
            yield self
        finally:
            self.remove()

    def remove(self) -> None:
        self.end()

    def send_signal(self, number: signal.Signals) -> None:
        """After SIGSTOP it returns once every thread has stopped: none answers any more."""
        assert self._process is not None
        if number == signal.SIGSTOP and self._process.poll() is None:
            stand_still(self._process.pid)
        else:
            self._process.send_signal(number)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It stands still until the end of the block."""
        self.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As kill -9; returns when it is gone."""
        self.send_signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(10)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Asks it to end; kills it if it has not ended in time."""
        if self._process is None or self._process.poll() is not None:
            return
        # A stopped process sees no other signal before it goes on.
        self.send_signal(signal.SIGCONT)
        fired.ask(self)
        self.send_signal(how)
        try:
            self._process.wait(self.patience)
        except subprocess.TimeoutExpired:
            self.kill()

    def end(self) -> None:
        """Ends it at once, by a signal that counts as no fault: nobody needs its data, and Redis
        takes up to 100 ms to notice another signal."""
        if self._process is None or self._process.poll() is not None:
            return
        fired.ask(self)
        opened = os.pidfd_open(self._process.pid)
        try:
            signal.pidfd_send_signal(opened, signal.SIGKILL)
        finally:
            os.close(opened)
        self._process.wait(10)

    def await_start(self, log: Path, seconds: float = 30) -> None:
        """Until the server lets clients in; a RuntimeError with its log if it does not."""
        deadline = time.monotonic() + seconds
        while not self.accepts():
            if self.has_ended() or time.monotonic() > deadline:
                said = log.read_text() if log.exists() else "nothing"
                raise RuntimeError(f"{type(self).__name__} did not start; it said: {said}")
            time.sleep(0.01)
        fired.watch(self)

    def has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def accepts(self) -> bool:
        raise NotImplementedError

    def faults(self) -> Counter[str]:
        """The errors that it has given since it started; none of one that does not answer."""
        # Not has_ended(), which starts a killed PostgreSQL again.
        if self._process is None or self._process.poll() is not None:
            return Counter()
        if states_of(self._process.pid) <= {"T"}:
            return Counter()
        try:
            return self.errors_given()
        except OSError:
            return Counter()

    def errors_given(self) -> Counter[str]:
        return Counter()
