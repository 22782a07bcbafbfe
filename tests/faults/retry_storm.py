"""Outages around retry queues: two counters, as of two processes, that add while Redis is paused,
killed and emptied of scripts; and programs that are killed together with it.

One of the counters asks through a proxy that is cut and held. An add is known by when it was called
and when it returned.
"""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import hotcount
from hotcount import Queued

from tests.faults.proxy import CLIENT_TO_SERVER, FaultProxy
from tests.support.eventually import eventually
from tests.support.servers import RedisServer

KEYS = [f"k{number}" for number in range(5)]
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
LONGEST_S = 1.0
Span = tuple[float, float]


def drained(*counters: Any, seconds: float = 30) -> None:
    eventually(lambda: all(each.retry_stats().waiting == 0 for each in counters), seconds)


class Observer(threading.Thread):
    """Looks until it is told to stop; a server that is away is not looked at."""

    pause = 0.0

    def __init__(self, server: RedisServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.stops = threading.Event()
        self.looks = 0
        self.immortal: set[Any] = set()

    def run(self) -> None:
        while not self.stops.is_set():
            try:
                with self.server.redis(timeout=0.2) as redis:
                    while not self.stops.wait(self.pause):
                        self.look(redis)
            except hotcount.HotcountError:
                self.stops.wait(0.01)

    def look(self, redis: hotcount.Redis) -> None:
        raise NotImplementedError


AnyObserver = TypeVar("AnyObserver", bound=Observer)


class Adders:
    """Threads that add 1 to the keys in turn, and when each add was called and returned."""

    def __init__(self, counters: list[Any], rate: float) -> None:
        self.stops = threading.Event()
        self.made: dict[str, list[Span]] = defaultdict(list)
        self.unknown: dict[str, list[Span]] = defaultdict(list)
        self.queued = 0
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self.run, args=(counter, 2 / rate), daemon=True)
            for counter in counters
            for _ in range(2)
        ]

    def run(self, counter: Any, pause: float) -> None:
        turn = 0
        while not self.stops.wait(pause):
            key = KEYS[turn % len(KEYS)]
            turn += 1
            began = time.time()
            answer: object = None
            with suppress(hotcount.OutcomeUnknownError):
                answer = counter.add(key)
            ended = time.time()
            with self.lock:
                told = self.unknown if answer is None else self.made
                told[key].append((began, ended))
                self.queued += isinstance(answer, Queued)

    def stop(self) -> None:
        self.stops.set()
        for thread in self.threads:
            thread.join()

    def figures(self) -> str:
        adds, unknown = (sum(map(len, each.values())) for each in (self.made, self.unknown))
        return f"{adds} adds, {self.queued} queued, {unknown} unknown"


def disturb(server: RedisServer, proxy: FaultProxy, draw: random.Random) -> None:
    what = draw.choice(["pause", "kill", "cut", "hold", "flush"])
    if what == "pause":
        server.send_signal(signal.SIGSTOP)
        time.sleep(draw.uniform(0.1, LONGEST_S))
        server.send_signal(signal.SIGCONT)
    elif what == "kill":
        server.kill()
        time.sleep(draw.uniform(0.1, LONGEST_S))
        server.start()
    elif what == "cut":
        proxy.cut_after(draw.randrange(2000), CLIENT_TO_SERVER)
    elif what == "hold":
        proxy.hold(CLIENT_TO_SERVER)
        time.sleep(draw.uniform(0.1, LONGEST_S))
    else:
        server.redis(timeout=20).execute("SCRIPT", "FLUSH")
    proxy.heal()
    time.sleep(draw.uniform(0, LONGEST_S / 2))


@contextmanager
def weathered(
    folder: Path, make: Callable[[hotcount.Redis], Any], look: type[AnyObserver], *,
    seconds: float, rate: float, seed: int,
) -> Iterator[tuple[Adders, AnyObserver, list[Any]]]:  # fmt: skip
    """Yields adders, observer and both counters after `seconds` of outages, with empty queues.

    The server runs for the block.
    """
    draw = random.Random(seed)
    server = RedisServer(folder, config=DURABLE)
    with server.started(), FaultProxy(server.socket) as proxy:
        urls = (server.url, proxy.url)
        counters = [make(hotcount.Redis(url, timeout=0.2)) for url in urls]
        adders, observer = Adders(counters, rate), look(server)
        observer.start()
        for thread in adders.threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            disturb(server, proxy, draw)
        adders.stop()
        drained(*counters)
        observer.stops.set()
        observer.join()
        yield adders, observer, counters


def accepted(log: Path) -> tuple[int, int]:
    """The adds that returned, and the threads."""
    done: dict[str, int] = defaultdict(int)
    for line in log.read_text().splitlines() if log.exists() else []:
        thread, number = line.split()
        done[thread] = max(done[thread], int(number))
    return sum(done.values()), len(done)


def killed_programs(
    server: RedisServer, folder: Path, draw: random.Random, restarts: list[bool], *words: str,
    before: Span, away: Span, after: Span,
) -> tuple[int, int]:  # fmt: skip
    """Kills Redis and a program that adds, each at random; once for each of `restarts`, which says
    whether Redis comes back first. Returns how many adds are counted at the least and the most."""
    least = most = 0
    for run, restart in enumerate(restarts):
        log = folder / f"log{run}"
        command = [sys.executable, "-m", "tests.support.retrying_program", server.url]
        command += [str(folder / "adds"), str(log), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
            try:
                assert program.stdout is not None
                assert program.stdout.readline() == b"ready\n"
                time.sleep(draw.uniform(*before))
                server.kill()
                time.sleep(draw.uniform(*away))
                if restart:
                    server.start()
                    time.sleep(draw.uniform(*after))
                assert program.poll() is None, program.stdout.read()
            finally:
                program.kill()
        if server.has_ended():
            server.start()
        returned, threads = accepted(log)
        least += returned
        most += returned + max(threads, 4)
    return least, most
