"""Counters with short lives beside outages: each add is counted in its own life.

Every key has an expiry, at every instant that was looked at.

An observer reads each key's value, expiry and window in one step, all the time. A life may not hold
more than the adds that overlap it.
"""

from collections import defaultdict
from pathlib import Path

import hotcount
import pytest
from hotcount import Queued, RetryQueue

from tests.faults.retry_storm import KEYS, Observer, weathered
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server

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


class Lives(Observer):
    """The most that each life of a key held."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.most: dict[tuple[str, float, float], int] = defaultdict(int)

    def look(self, redis: hotcount.Redis) -> None:
        names = [f"c:{key}" for key in KEYS]
        seen = redis.execute("EVAL", LOOK, str(len(names)), *names)
        self.looks += 1
        for key, (left, value, window) in zip(KEYS, seen, strict=True):
            if left == -1:
                self.immortal.add(key)
            if left > 0:
                begin, end, _ = (int(word) / 1000 for word in window.split())
                self.most[key, begin, end] = max(self.most[key, begin, end], int(value))


def counter_of(store: hotcount.Redis) -> hotcount.Counter[int | Queued]:
    return hotcount.Counter(store, prefix="c", ttl=TTL, retry=RetryQueue())


def storm(folder: Path, seconds: float, rate: float, seed: int) -> None:
    outages = weathered(folder, counter_of, Lives, seconds=seconds, rate=rate, seed=seed)
    with outages as (adders, observer, counters):
        stats = [counter.retry_stats() for counter in counters]
    assert not observer.immortal, seed
    assert observer.looks > 10 * seconds
    assert adders.queued > 0
    assert sum(each.queued for each in stats) >= adders.queued
    for each in stats:
        assert each.replayed + each.expired == each.queued, (seed, each)
    for (key, begin, end), value in observer.most.items():
        overlap = [
            began
            for began, ended in adders.made[key] + adders.unknown[key]
            if began <= end + SLACK and ended >= begin - SLACK
        ]
        assert value <= len(overlap), (seed, key, begin, end)
        assert end - begin <= TTL + SLACK, (seed, key)
    print(
        f"{adders.figures()}; {sum(each.replayed for each in stats)} counted later,",
        f"{sum(each.expired for each in stats)} expired; {len(observer.most)} lives,",
        f"{observer.looks} looks",
    )


def test_each_add_is_counted_in_its_life_and_no_key_is_without_an_expiry(tmp_path: Path) -> None:
    storm(tmp_path, seconds=3, rate=300, seed=1)


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_a_minute_of_outages_counts_each_add_in_its_life(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, seconds=60, rate=600, seed=seed)
