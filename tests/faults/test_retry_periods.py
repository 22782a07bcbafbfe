"""Counters of periods beside outages: each add is counted once, in the period that it was made in.

Every key has an expiry, at every instant that was looked at.

The period is a second, so that many end while Redis is away. The seconds up to one that has passed
hold at least the adds that had returned by then, and at most those that were called by then.
"""

import random
import signal
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import hotcount
import pytest
from hotcount import Queued, RetryQueue

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT, FaultProxy
from tests.faults.retry_storm import DURABLE, KEYS, Observer, drained, killed_programs, weathered
from tests.support.eventually import eventually
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

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


class Immortals(Observer):
    """Keys without an expiry."""

    pause = 0.001

    def look(self, redis: hotcount.Redis) -> None:
        count, without = redis.execute("EVAL", LOOK, "0")
        self.looks += count > 0
        self.immortal.update(without)


def counter_of(store: hotcount.Redis) -> hotcount.PeriodCounter[int | Queued]:
    return hotcount.PeriodCounter(store, "second", retry=RetryQueue())


def storm(folder: Path, seconds: float, rate: float, seed: int) -> None:
    start = now()
    outages = weathered(folder, counter_of, Immortals, seconds=seconds, rate=rate, seed=seed)
    with outages as (adders, observer, counters):
        stats = [counter.retry_stats() for counter in counters]
        counts = {key: counters[0].series(key, start, now() + SECOND) for key in KEYS}
    assert not observer.immortal, seed
    assert observer.looks > 10
    assert adders.queued > 0
    for each in stats:
        assert each.replayed == each.queued, (seed, each)
    for key, seconds_of in counts.items():
        made, unknown = adders.made[key], len(adders.unknown[key])
        total = 0
        for second, count in seconds_of:
            total += count
            ends = (second + SECOND).timestamp()
            least = sum(ended < ends - SLACK for _, ended in made)
            most = sum(began < ends + SLACK for began, _ in made) + unknown
            assert least <= total <= most, (seed, key, second)
        assert len(made) <= total <= len(made) + unknown
    replayed = sum(each.replayed for each in stats)
    print(f"{adders.figures()}; {replayed} counted later; {observer.looks} looks")


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_a_minute_of_outages_counts_each_add_in_its_second(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, seconds=60, rate=600, seed=seed)


def kills(folder: Path, runs: int, rate: int, seed: int) -> None:
    """Kills Redis and the program at random; the periods must have what returned."""
    server = RedisServer(folder, config=DURABLE)
    start = now()
    with server.started():
        restarts = [run % 2 == 1 for run in range(runs)]
        least, most = killed_programs(
            *(server, folder, random.Random(seed), restarts, str(rate), "4", "second"),
            before=(0.1, 0.5),
            away=(0.3, 0.6),
            after=(0, 0.2),
        )
        # A program knows Redis' clock to within half of the trip that it asked in, so an add that
        # waits may be in the second before or after its own.
        first, last = start - SECOND, now() + SECOND
        queue = RetryQueue(path=folder / "adds")
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


def test_a_killed_program_and_a_killed_server_count_each_add_in_its_second(tmp_path: Path) -> None:
    kills(tmp_path, runs=2, rate=1000, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10))
def test_many_kills_count_each_add_in_its_second(tmp_path: Path, seed: int) -> None:
    kills(tmp_path, runs=10, rate=2000, seed=seed)
