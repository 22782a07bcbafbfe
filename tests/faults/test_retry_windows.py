"""Counters with short lives beside outages: each add is counted in its own life.

Every key has an expiry, at every instant that was looked at.

Two counters, as of two processes, add to a few keys; one asks through a proxy that is cut and held.
Redis is paused, killed and emptied of scripts meanwhile. An observer reads each key's value, expiry
and window in one step, all the time. An add is known by when it was called and when it returned; a
life may not hold more than the adds that overlap it.
"""

import random
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path

import hotcount
import pytest
from hotcount import Queued, RetryQueue

from tests.faults.proxy import CLIENT_TO_SERVER, FaultProxy
from tests.support.eventually import eventually
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

KEYS = [f"k{number}" for number in range(5)]
TTL = 0.5
# What the script calls the same window, and half of a trip to a server on this machine.
SLACK = 0.15
LOOK = """
local seen = {}
for i, key in ipairs(KEYS) do
    local window = redis.call('GET', '{' .. key .. '}:window') or ''
    seen[i] = {redis.call('PTTL', key), redis.call('GET', key) or '0', window}
end
return seen
"""


class Observer(threading.Thread):
    """Looks until it is told to stop; a server that is away is not looked at."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.stops = threading.Event()
        self.looks = 0
        self.immortal: set[str] = set()
        self.most: dict[tuple[str, float, float], int] = defaultdict(int)  # By life.

    def run(self) -> None:
        names = [f"c:{key}" for key in KEYS]
        while not self.stops.is_set():
            try:
                with self.server.redis(timeout=0.2) as redis:
                    while not self.stops.is_set():
                        seen = redis.execute("EVAL", LOOK, str(len(names)), *names)
                        self.note(seen)
            except hotcount.HotcountError:
                self.stops.wait(0.01)

    def note(self, seen: object) -> None:
        assert isinstance(seen, list)
        self.looks += 1
        for key, (left, value, window) in zip(KEYS, seen, strict=True):
            if left == -1:
                self.immortal.add(key)
            if left > 0:
                begin, end, _ = (int(word) / 1000 for word in window.split())
                self.most[key, begin, end] = max(self.most[key, begin, end], int(value))


class Adders:
    """Threads that add 1 to the keys in turn, and when each add was made."""

    def __init__(self, counters: list[hotcount.Counter[int | Queued]], rate: float) -> None:
        self.stops = threading.Event()
        self.made: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.numbers = self.queued = self.unknown = 0
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self.run, args=(counter, 2 / rate), daemon=True)
            for counter in counters
            for _ in range(2)
        ]

    def run(self, counter: hotcount.Counter, pause: float) -> None:
        turn = 0
        while not self.stops.wait(pause):
            key = KEYS[turn % len(KEYS)]
            turn += 1
            began = time.time()
            answer: object
            try:
                answer = counter.add(key)
            except hotcount.OutcomeUnknownError:
                answer = None
            ended = time.time()
            with self.lock:
                self.made[key].append((began, ended))
                self.numbers += isinstance(answer, int)
                self.queued += isinstance(answer, Queued)
                self.unknown += answer is None


def disturb(server: RedisServer, proxy: FaultProxy, draw: random.Random) -> None:
    what = draw.choice(["pause", "kill", "cut", "hold", "flush"])
    if what == "pause":
        server.send_signal(signal.SIGSTOP)
        time.sleep(draw.uniform(0.1, 2 * TTL))
        server.send_signal(signal.SIGCONT)
    elif what == "kill":
        server.kill()
        time.sleep(draw.uniform(0.1, 2 * TTL))
        server.start()
    elif what == "cut":
        proxy.cut_after(draw.randrange(2000), CLIENT_TO_SERVER)
    elif what == "hold":
        proxy.hold(CLIENT_TO_SERVER)
        time.sleep(draw.uniform(0.1, 2 * TTL))
    else:
        server.redis().execute("SCRIPT", "FLUSH")
    proxy.heal()
    time.sleep(draw.uniform(0, TTL))


def storm(folder: Path, seconds: float, rate: float, seed: int) -> None:
    draw = random.Random(seed)
    config = ("--appendonly", "yes", "--appendfsync", "always")
    server = RedisServer(folder, config=config).start()
    try:
        with FaultProxy(server.socket) as proxy:
            stores = [server.redis(timeout=0.2), hotcount.Redis(proxy.url, timeout=0.2)]
            counters = [
                hotcount.Counter(store, prefix="c", ttl=TTL, retry=RetryQueue()) for store in stores
            ]
            adders = Adders(counters, rate)
            observer = Observer(server)
            observer.start()
            for thread in adders.threads:
                thread.start()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                disturb(server, proxy, draw)
            adders.stops.set()
            for thread in adders.threads:
                thread.join()
            eventually(lambda: all(each.retry_stats().waiting == 0 for each in counters))
            observer.stops.set()
            observer.join()
            stats = [counter.retry_stats() for counter in counters]
    finally:
        server.stop()
    assert not observer.immortal, seed
    assert observer.looks > 10 * seconds
    assert adders.queued > 0
    assert sum(each.queued for each in stats) >= adders.queued
    for each in stats:
        assert each.replayed + each.expired == each.queued, (seed, each)
    for (key, begin, end), value in observer.most.items():
        overlap = [
            made for made in adders.made[key] if made[0] <= end + SLACK and made[1] >= begin - SLACK
        ]
        assert value <= len(overlap), (seed, key, begin, end)
        assert end - begin <= TTL + SLACK, (seed, key)
    print(
        f"{adders.numbers} numbers, {adders.queued} queued, {adders.unknown} unknown;",
        f"{sum(each.replayed for each in stats)} counted later,",
        f"{sum(each.expired for each in stats)} expired; {len(observer.most)} lives,",
        f"{observer.looks} looks",
    )


def test_each_add_is_counted_in_its_life_and_no_key_is_without_an_expiry(tmp_path: Path) -> None:
    storm(tmp_path, seconds=3, rate=300, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_a_minute_of_outages_counts_each_add_in_its_life(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, seconds=60, rate=600, seed=seed)
