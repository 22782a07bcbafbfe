"""Programs that are interrupted while they wait in a call of the library."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.eventually import eventually
from tests.support.servers import RedisServer

# From the signal to the exception. Allowed: what a busy machine adds to a wake-up.
AT_ONCE = 0.5

PRELUDE = """
import signal, sys, threading, time
import hotcount

url = sys.argv[1]
caught = []

def say(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()

def interrupted(call):
    # How long after the signal the exception came; the signal's time is what the test says next.
    say("calls")
    try:
        outcome = call()
    except KeyboardInterrupt:
        came = time.monotonic()
        return came - float(hear())
    raise SystemExit(f"not interrupted: {outcome}")

signal.signal(signal.SIGINT, signal.default_int_handler)
redis = hotcount.Redis(url, timeout=30)
counter = hotcount.Counter(redis)
"""


class Program:
    def __init__(self, text: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + text, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def expect(self, word: str) -> list[str]:
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        assert words[:1] == [word], words
        return words[1:]

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    def interrupt(self) -> float:
        at = time.monotonic()
        self._process.send_signal(signal.SIGINT)
        self.tell(at)
        return at

    def end_the_wait(self, word: str = "took") -> None:
        """Interrupts a call of interrupted() while it waits."""
        self.expect("calls")
        waits(self.pid)
        self.interrupt()
        assert float(self.expect(word)[0]) < AT_ONCE

    def end(self) -> None:
        assert self._process.wait(60) == 0

    def kill(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextmanager
def running(text: str, *arguments: str) -> Iterator[Program]:
    program = Program(text, *arguments)
    try:
        yield program
    finally:
        program.kill()


@contextmanager
def stopped(server: RedisServer, text: str) -> Iterator[Program]:
    """The program, connected and with `k` at 1, begins once the server has stopped."""
    ready = 'counter.add("k")\nsay("ready")\nhear()\n'
    with running(ready + text, server.url) as program:
        program.expect("ready")
        server.send_signal(signal.SIGSTOP)
        program.tell("stopped")
        yield program


def sleeps(stat: Path) -> bool:
    return stat.read_text().rpartition(")")[2].split()[0] == "S"


def waits(pid: int) -> None:
    """Returns once the process's first thread sleeps: in poll, on a futex."""
    stat = Path(f"/proc/{pid}/task/{pid}/stat")
    # Three looks in a row: on its way there it may sleep for the GIL.
    eventually(lambda: all(sleeps(stat) for _ in range(3)))


def all_wait(pid: int, threads: int) -> None:
    """Waits until the process has `threads` threads and all of them sleep."""

    def sleeping() -> bool:
        stats = list(Path(f"/proc/{pid}/task").glob("*/stat"))
        return len(stats) == threads and all(sleeps(stat) for stat in stats)

    eventually(lambda: all(sleeping() for _ in range(3)))
