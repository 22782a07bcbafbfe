"""Private servers for tests: started in a temporary folder, stopped by their pid."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import hotcount


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """One redis-server on a unix socket, and on a loopback port where asked for.

    A missing redis-server is an error, not a reason to skip: scripts/setup installs it.
    """

    def __init__(self, folder: Path, *, port: int = 0, config: tuple[str, ...] = ()) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is not installed; run scripts/setup")
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.port = port
        self._command = [
            program,
            *("--port", str(port)),
            *("--bind", "127.0.0.1"),
            *("--unixsocket", str(self.socket)),
            *("--dir", str(folder)),
            *("--save", ""),
            *("--appendonly", "no"),
            *("--daemonize", "no"),
            *("--logfile", str(folder / "redis.log")),
            *config,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis+unix://{self.socket}"

    def login(self, user: str, password: str) -> str:
        """The URL with credentials."""
        return f"redis+unix://{user}:{password}@{self.socket}"

    def start(self) -> RedisServer:
        self.socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + 10
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self.folder / "redis.log"
                said = log.read_text() if log.exists() else "nothing"
                raise RuntimeError(f"redis-server did not start; it said: {said}")
            time.sleep(0.005)
        return self

    def _accepts(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
            return True

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As kill -9; returns when it is gone."""
        self.send_signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(10)

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        # A stopped process does not see SIGTERM before it goes on.
        self.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def redis(self, **options: object) -> hotcount.Redis:
        return hotcount.Redis(self.url, **options)  # type: ignore[arg-type]
