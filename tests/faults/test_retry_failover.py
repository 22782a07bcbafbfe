"""A retry queue whose Redis fails over to a replica that is behind."""

from collections.abc import Iterator
from pathlib import Path

import hotcount
import pytest
from hotcount import Queued, RetryQueue

from tests.faults.proxy import SERVER_TO_CLIENT
from tests.support.eventually import eventually
from tests.support.redis_pair import RedisPair

pytestmark = pytest.mark.server

TTLS = pytest.mark.parametrize("ttl", [None, 600.0], ids=["immortal", "ttl"])


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[RedisPair]:
    made = RedisPair(tmp_path)
    yield made
    made.stop()


def has_replicated(pair: RedisPair, value: bytes) -> bool:
    return bool(pair.standby.execute("GET", "c:k") == value)


@TTLS
def test_an_add_that_was_replicated_is_counted_once(pair: RedisPair, ttl: float | None) -> None:
    store = hotcount.Redis(pair.proxy.url, timeout=0.5)
    counter = hotcount.Counter(store, ttl=ttl, retry=RetryQueue(), prefix="c")
    assert counter.add("k", 5) == 5
    pair.proxy.hold(SERVER_TO_CLIENT)
    assert isinstance(counter.add("k", 100), Queued)
    eventually(lambda: has_replicated(pair, b"105"), 20)
    pair.promote()
    pair.fail_over()
    eventually(lambda: counter.retry_stats().waiting == 0, 20)
    assert counter.get("k") == 105
    assert counter.retry_stats().replayed == 1


@TTLS
def test_a_failover_loses_what_was_not_replicated(pair: RedisPair, ttl: float | None) -> None:
    store = hotcount.Redis(pair.proxy.url, timeout=0.5)
    counter = hotcount.Counter(store, ttl=ttl, retry=RetryQueue(), prefix="c")
    assert counter.add("k", 5) == 5
    eventually(lambda: has_replicated(pair, b"5"), 20)
    pair.promote()
    assert counter.add("k", 3) == 8
    pair.primary.kill()
    waiting: object = counter.add("k", 10)
    assert isinstance(waiting, Queued)
    pair.fail_over()
    eventually(lambda: counter.retry_stats().waiting == 0, 20)
    assert counter.get("k") == 5 + 10
    assert counter.add("k") == 16
