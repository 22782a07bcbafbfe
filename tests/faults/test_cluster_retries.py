"""Retry queues on a cluster: adds wait for their own primary, and are counted once."""

import logging
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.redis_cluster import RedisCluster, SpareCluster
from tests.support.together import beside

pytestmark = [pytest.mark.server, pytest.mark.timed]

KEYS = [f"k{number}" for number in range(60)]
TIMEOUT = 0.5


@pytest.fixture
def cluster(spare_cluster: SpareCluster) -> Iterator[RedisCluster]:
    with spare_cluster.taken(config=("--cluster-require-full-coverage", "no")) as running:
        yield running


def test_adds_wait_for_the_primary_that_is_away_alone(
    cluster: RedisCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hotcount")
    queue = hotcount.RetryQueue(path=tmp_path / "adds")
    with hotcount.Redis(cluster.url, timeout=TIMEOUT) as store:
        counter = hotcount.Counter(store, retry=queue)
        assert [counter.add(key) for key in KEYS] == [1] * len(KEYS)
        node = {key: cluster.nodes[0].run("CLUSTER", "KEYSLOT", f"count:{key}") for key in KEYS}
        owners = cluster.owners()
        away = [key for key in KEYS if owners[node[key]] == cluster.nodes[0].port]
        here = [key for key in KEYS if key not in away]
        assert len(away) > 5
        cluster.wait_replicas()
        cluster.kill(0)
        assert isinstance(counter.add(away[0]), hotcount.Queued)
        began = time.monotonic()
        assert [counter.add(key) for key in here] == [2] * len(here)
        queued = [counter.add(key) for key in away[1:]]
        assert all(isinstance(one, hotcount.Queued) for one in queued)
        assert time.monotonic() - began < TIMEOUT, "a known outage makes nobody wait"
        stats = counter.retry_stats()
        assert stats.is_away
        assert stats.waiting == len(away)
        # Behind those that wait, in order.
        assert all(isinstance(counter.add(key, 10), hotcount.Queued) for key in away)
        eventually(lambda: counter.retry_stats().waiting == 0, seconds=20)
        stats = counter.retry_stats()
        assert not stats.is_away
        assert stats.replayed == 2 * len(away)
        assert counter.get_many(away).tolist() == [12] * len(away)
        assert counter.get_many(here).tolist() == [2] * len(here)
        assert [counter.add(key) for key in away] == [13] * len(away)
        counter.close()
    said = [record.getMessage() for record in caplog.records]
    silent = f"redis 127.0.0.1:{cluster.nodes[0].port}"
    name = f"redis+cluster 127.0.0.1:{cluster.nodes[0].port}"
    assert [text for text in said if "adds wait in the retry queue" in text] == [
        f"{silent} does not answer: adds wait in the retry queue"
    ]
    assert len([text for text in said if text.startswith(f"{name} answers: no add waits")]) == 1


def test_close_waits_for_the_primaries_that_answer(cluster: RedisCluster) -> None:
    # That another one is away does not make it vain. Without a file, what still waits is lost: here
    # at most the add for the primary that is away.
    with hotcount.Redis(cluster.url, timeout=20) as store:
        counter = hotcount.Counter(store, retry=hotcount.RetryQueue())
        assert [counter.add(key) for key in KEYS] == [1] * len(KEYS)
        stored = [set(node.client.keys("count:*")) for node in cluster.nodes[:2]]
        away, back = ([key for key in KEYS if f"count:{key}".encode() in one] for one in stored)
        cluster.pause(0)
        cluster.pause(1)
        for key in (away[0], back[0]):
            assert isinstance(counter.add(key, timeout=TIMEOUT), hotcount.Queued)
        more = counter.add_many(back * 200)
        assert all(isinstance(one, hotcount.Queued) for one in more)
        cluster.resume(1)
        eventually(lambda: counter.retry_stats().replayed > 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            counter.close()
        expected = [202 if key == back[0] else 201 for key in back]
        assert hotcount.Counter(store).get_many(back).tolist() == expected


@pytest.mark.parametrize(
    ("fault", "ttl"),
    [
        ("reshard", None),
        ("failover", 600),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in [("reshard", 600), ("failover", None), ("pause", None), ("pause", 600)]
        ),
    ],
)
def test_adds_are_counted_once_while_slots_move(
    cluster: RedisCluster, tmp_path: Path, fault: str, ttl: float | None
) -> None:
    def strike() -> None:
        own = [slot for slot, port in enumerate(cluster.owners()) if port == cluster.nodes[0].port]
        if fault == "reshard":
            cluster.reshard(0, 1, range(own[0], own[0] + 1000))
            cluster.reshard(1, 2, range(own[0], own[0] + 300))
        elif fault == "failover":
            cluster.fail_over(3)
        else:
            # Shorter than the node timeout: what was sent is run when it goes on, and not again.
            cluster.pause(0)
            time.sleep(1.2)
            cluster.resume(0)

    added: Counter[str] = Counter()
    last: dict[str, int] = {}
    failed: list[Any] = []
    with hotcount.Redis(cluster.url, timeout=TIMEOUT) as store:
        counter = hotcount.Counter(store, ttl=ttl, retry=hotcount.RetryQueue(path=tmp_path / "a"))

        def run(keys: list[str], stop: threading.Event) -> None:
            while not stop.is_set():
                for key in keys:
                    try:
                        value = counter.add(key)
                    except hotcount.HotcountError as error:
                        failed.append(error)
                        continue
                    added[key] += 1
                    if isinstance(value, int):
                        if value != added[key]:
                            failed.append((key, value, added[key]))
                        last[key] = value

        # A key has one writer, who knows each value after its add.
        with beside(*(partial(run, KEYS[i::4]) for i in range(4))):
            time.sleep(0.5)
            strike()
            time.sleep(0.5)
        eventually(lambda: counter.retry_stats().waiting == 0, seconds=20)
        stored = dict(zip(KEYS, counter.get_many(KEYS).tolist(), strict=True))
        counter.close()
    assert not failed[:5]
    assert min(added.values()) > 5
    assert stored == added


def make_counter(store: hotcount.Redis, queue: Any) -> Any:
    return hotcount.Counter(store, retry=queue)


def make_periods(store: hotcount.Redis, queue: Any) -> Any:
    return hotcount.PeriodCounter(store, period="month", retry=queue)


@pytest.mark.parametrize("make", [make_counter, make_periods])
def test_a_later_process_replays_the_journal(
    cluster: RedisCluster, tmp_path: Path, make: Callable[[hotcount.Redis, Any], Any]
) -> None:
    queue = hotcount.RetryQueue(path=tmp_path / "adds", max_age=600)
    with hotcount.Redis(cluster.url, timeout=TIMEOUT) as store:
        counter = make(store, queue)
        month = datetime.now(timezone.utc).month
        assert all(counter.add(key) == 1 for key in KEYS)
        for index in (0, 3):
            cluster.pause(index)
        told = [counter.add(key) for key in KEYS]
        queued = [key for key, one in zip(KEYS, told, strict=True) if one != 2]
        assert 5 < len(queued) < len(KEYS)
        with pytest.warns(RuntimeWarning, match=f"{len(queued)} adds still wait"):
            counter.close()
    for index in (0, 3):
        cluster.resume(index)
    cluster.wait_ok()
    with hotcount.Redis(cluster.url, timeout=5) as store:
        counter = make(store, queue)
        eventually(lambda: counter.retry_stats().waiting == 0, seconds=20)
        assert datetime.now(timezone.utc).month == month
        assert counter.get_many(KEYS).tolist() == [2] * len(KEYS)
        counter.close()
