"""Counters of periods beside outages: each add is counted once, in the period that it was made in.

Every key has an expiry, at every instant that was looked at.

The period is a second, so that many end while Redis is away. Two counters, as of two processes, add
to a few keys; one asks through a proxy that is cut and held. Redis is paused, killed and emptied of
scripts meanwhile. An add is known by when it was called and when it returned: the seconds up to one
that has passed hold at least the adds that had returned by then, and at most those that were called
by then.
"""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Queued, RetryQueue

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.faults.test_retry_queue import accepted
from tests.faults.test_retry_windows import disturb
from tests.support.eventually import eventually
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

KEYS = [f"k{number}" for number in range(5)]
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
SECOND = timedelta(seconds=1)
# Half of the longest trip that Redis' clock is asked in, its client's timeout, and some more.
SLACK = 0.15
LOOK = """
local without = {}
local names = redis.call('KEYS', '*')
for _, key in ipairs(names) do
    if redis.call('PTTL', key) == -1 then without[#without + 1] = key end
end
return {#names, without}
"""


def now() -> datetime:
    return datetime.now(timezone.utc)


def drained(counter: Any) -> None:
    eventually(lambda: counter.retry_stats().waiting == 0, 30)


def after_the_second_of(at: datetime) -> None:
    time.sleep(max(0.0, (at.replace(microsecond=0) + SECOND - now()).total_seconds()))


def test_an_add_is_counted_in_the_period_that_it_was_made_in(own_redis: RedisServer) -> None:
    counter = hotcount.PeriodCounter(own_redis.redis(timeout=0.2), "second", retry=RetryQueue())
    began = now()
    counter.get("k")
    own_redis.send_signal(signal.SIGSTOP)
    # The paused server has the bytes of this one, and comes to them when its second is over.
    assert isinstance(counter.add("k"), Queued)
    assert isinstance(counter.add("k", 10), Queued)
    ended = now()
    after_the_second_of(ended)
    own_redis.send_signal(signal.SIGCONT)
    drained(counter)
    counts = counter.series("k", began, ended.replace(microsecond=0) + SECOND)
    assert sum(count for _, count in counts) == 11
    assert counter.retry_stats().replayed == 2
    later = counter.series("k", ended.replace(microsecond=0) + SECOND, now() + SECOND)
    assert [count for _, count in later if count] == []


def test_an_add_whose_period_is_over_is_counted_nowhere(own_redis: RedisServer) -> None:
    counter = hotcount.PeriodCounter(
        own_redis.redis(timeout=0.2), "second", keep=1, retry=RetryQueue()
    )
    own_redis.send_signal(signal.SIGSTOP)
    for _ in range(3):
        assert isinstance(counter.add("k"), Queued)
    after_the_second_of(now())
    own_redis.send_signal(signal.SIGCONT)
    drained(counter)
    assert (counter.retry_stats().expired, counter.retry_stats().replayed) == (3, 0)
    store = own_redis.redis()
    assert [key for key in store.execute("KEYS", "*") if store.execute("GET", key) != b"3"] == []


@pytest.mark.parametrize("direction", [CLIENT_TO_SERVER, SERVER_TO_CLIENT], ids=["sent", "answer"])
def test_a_cut_at_any_byte_counts_every_add_once(own_redis: RedisServer, direction: int) -> None:
    with FaultProxy(own_redis.socket) as proxy:
        store = hotcount.Redis(proxy.url, timeout=20)
        counter = hotcount.PeriodCounter(store, "month", retry=RetryQueue())
        at = now()
        # An EVALSHA of one call is about 330 bytes, its answer about 8.
        cuts = range(0, 350, 25) if direction == CLIENT_TO_SERVER else range(10)
        for done, cut in enumerate(cuts):
            drained(counter)
            assert counter.get("k", at=at) == done
            proxy.cut_after(cut, direction)
            answer: object = counter.add("k", at=at)
            assert isinstance(answer, Queued) or answer == done + 1
            proxy.heal()
        drained(counter)
        assert counter.get("k", at=at) == len(cuts)
        assert counter.retry_stats().replayed == counter.retry_stats().queued > 0


def test_a_user_without_expiries_counts_nothing(own_redis: RedisServer) -> None:
    admin = own_redis.redis()
    admin.execute("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all", "-pexpireat")
    counter = hotcount.PeriodCounter(
        hotcount.Redis(own_redis.login("half", "pw"), timeout=0.2), "month", retry=RetryQueue()
    )
    at = now()
    assert counter.add("k", at=at) == 1
    (key,) = (name for name in admin.execute("KEYS", "period:*"))
    admin.execute("PERSIST", key)
    with pytest.raises(hotcount.PermissionDeniedError):
        counter.add("k", at=at)
    own_redis.send_signal(signal.SIGSTOP)
    assert isinstance(counter.add("k", 10, at=at), Queued)
    own_redis.send_signal(signal.SIGCONT)
    eventually(lambda: not counter.retry_stats().is_away)
    assert (counter.get("k", at=at), counter.retry_stats().waiting) == (1, 1)
    admin.execute("ACL", "SETUSER", "half", "+@all")
    drained(counter)
    assert counter.get("k", at=at) == 11
    assert admin.execute("PTTL", key) > 0


class Observer(threading.Thread):
    """Looks for keys without an expiry until it is told to stop."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.stops = threading.Event()
        self.looks = 0
        self.immortal: set[bytes] = set()

    def run(self) -> None:
        while not self.stops.is_set():
            try:
                with self.server.redis(timeout=0.2) as redis:
                    while not self.stops.wait(0.001):
                        count, without = redis.execute("EVAL", LOOK, "0")
                        self.looks += count > 0
                        self.immortal.update(without)
            except hotcount.HotcountError:
                self.stops.wait(0.01)


class Adders:
    """Threads that add 1 to the keys in turn, and when each add was called and returned."""

    def __init__(self, counters: list[hotcount.PeriodCounter[int | Queued]], rate: float) -> None:
        self.stops = threading.Event()
        self.made: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.queued = 0
        self.unknown: dict[str, int] = defaultdict(int)
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self.run, args=(counter, 2 / rate), daemon=True)
            for counter in counters
            for _ in range(2)
        ]

    def run(self, counter: hotcount.PeriodCounter[int | Queued], pause: float) -> None:
        turn = 0
        while not self.stops.wait(pause):
            key = KEYS[turn % len(KEYS)]
            turn += 1
            began = time.time()
            answer: object = None
            try:
                answer = counter.add(key)
            except hotcount.OutcomeUnknownError:
                with self.lock:
                    self.unknown[key] += 1
                continue
            ended = time.time()
            with self.lock:
                self.made[key].append((began, ended))
                self.queued += isinstance(answer, Queued)


def storm(folder: Path, seconds: float, rate: float, seed: int) -> None:
    draw = random.Random(seed)
    server = RedisServer(folder, config=DURABLE).start()
    start = now()
    try:
        with FaultProxy(server.socket) as proxy:
            stores = [server.redis(timeout=0.2), hotcount.Redis(proxy.url, timeout=0.2)]
            counters = [
                hotcount.PeriodCounter(store, "second", retry=RetryQueue()) for store in stores
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
            for counter in counters:
                drained(counter)
            observer.stops.set()
            observer.join()
            stats = [counter.retry_stats() for counter in counters]
            counts = {key: counters[0].series(key, start, now() + SECOND) for key in KEYS}
    finally:
        server.stop()
    assert not observer.immortal, seed
    assert observer.looks > 10
    assert adders.queued > 0
    for each in stats:
        assert each.replayed == each.queued, (seed, each)
    for key, seconds_of in counts.items():
        total = 0
        for second, count in seconds_of:
            total += count
            ends = (second + SECOND).timestamp()
            least = sum(ended < ends - SLACK for _, ended in adders.made[key])
            most = sum(began < ends + SLACK for began, _ in adders.made[key])
            most += adders.unknown[key]
            assert least <= total <= most, (seed, key, second)
        assert len(adders.made[key]) <= total <= len(adders.made[key]) + adders.unknown[key]
    print(
        f"{sum(map(len, adders.made.values()))} adds, {adders.queued} queued,",
        f"{sum(adders.unknown.values())} unknown; {sum(each.replayed for each in stats)} counted",
        f"later; {observer.looks} looks",
    )


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_a_minute_of_outages_counts_each_add_in_its_second(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, seconds=60, rate=600, seed=seed)


def kills(folder: Path, runs: int, rate: int, seed: int) -> None:
    """Kills Redis and the program at random; the periods must have what returned."""
    draw = random.Random(seed)
    server = RedisServer(folder, config=DURABLE).start()
    path = folder / "adds"
    start = now()
    least = most = 0
    try:
        for run in range(runs):
            log = folder / f"log{run}"
            program = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.support.retrying_program", server.url),
                    *(str(path), str(log), str(rate), "4", "second"),
                ],
                stdout=subprocess.PIPE,
            )
            try:
                assert program.stdout is not None
                assert program.stdout.readline() == b"ready\n"
                time.sleep(draw.uniform(0.1, 0.5))
                server.kill()
                time.sleep(draw.uniform(0.3, 0.6))
                if run % 2:
                    server.start()
                    time.sleep(draw.uniform(0, 0.2))
                assert program.poll() is None, program.stdout.read()
            finally:
                program.kill()
                program.communicate()
            if server.has_ended():
                server.start()
            returned, _ = accepted(log)
            least += returned
            most += returned + 4
        # A program knows Redis' clock to within half of the trip that it asked in, so an add that
        # waits may be in the second before or after its own.
        first, last = start - SECOND, now() + SECOND
        queue = RetryQueue(path=path)
        with hotcount.PeriodCounter(server.redis(timeout=5), "second", retry=queue) as counter:
            drained(counter)
            stats = counter.retry_stats()
            counted = sum(
                count for n in range(10) for _, count in counter.series(f"k{n}", first, last)
            )
        store = server.redis()
        assert all(store.execute("PTTL", key) > 0 for key in store.execute("KEYS", "*"))
        assert stats.replayed == stats.queued, (seed, stats)
        assert least <= counted <= most, (seed, least, counted, most, stats)
        print(f"{least} returned, {most - least} more under way, {counted} counted, {stats}")
    finally:
        server.stop()


def test_a_killed_program_and_a_killed_server_count_each_add_in_its_second(tmp_path: Path) -> None:
    kills(tmp_path, runs=2, rate=1000, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10))
def test_many_kills_count_each_add_in_its_second(tmp_path: Path, seed: int) -> None:
    kills(tmp_path, runs=10, rate=2000, seed=seed)
