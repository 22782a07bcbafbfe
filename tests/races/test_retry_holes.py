"""The queue of the unsafe methods, which only catches errors: its holes, each forced.

tests/contract/test_counter_retry.py and tests/faults/test_retry_queue.py show the same situations
with method 'script', which has none of them.
"""

from __future__ import annotations

import signal
import time
from typing import Any

import hotcount
import pytest
from hotcount import Queued, RetryQueue

from tests.support.eventually import eventually
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server


def catching(redis: hotcount.Redis, method: Any, ttl: float) -> hotcount.Counter[int | Queued]:
    return hotcount.Counter(redis, ttl=ttl, method=method, retry=RetryQueue())


def drained(counter: hotcount.Counter[int | Queued]) -> None:
    eventually(lambda: counter.retry_stats().waiting == 0)


def test_an_add_whose_expiry_failed_is_counted_twice(own_redis: RedisServer) -> None:
    own_redis.redis().execute("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all", "-pexpire")
    counter = catching(hotcount.Redis(own_redis.login("half", "pw"), timeout=5), "incr", 600)
    answer: object = counter.add("k")
    assert isinstance(answer, Queued)
    drained(counter)
    assert counter.get("k") == 2
    assert counter.ttl("k") is None
    assert counter.retry_stats().replayed == 1


def test_an_add_that_waited_is_counted_in_a_later_life_of_its_key(own_redis: RedisServer) -> None:
    counter = catching(own_redis.redis(timeout=0.2), "set_nx_incr", 0.5)
    assert counter.add("k") == 1
    own_redis.send_signal(signal.SIGSTOP)
    accepted = time.monotonic()
    answer: object = counter.add("k", 10)
    assert isinstance(answer, Queued)
    time.sleep(max(0.0, accepted + 0.7 - time.monotonic()))
    # The life that it came in is over, and so is one that had begun with it.
    own_redis.send_signal(signal.SIGCONT)
    eventually(lambda: counter.get("k") >= 10)
    drained(counter)


def test_what_waits_is_lost_with_its_process(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=0.2) as redis:
        counter = catching(redis, "set_nx_incr", 600)
        own_redis.kill()
        answer: object = counter.add("k")
        assert answer == Queued(waiting=1, durable=False)
        with pytest.warns(RuntimeWarning, match="1 adds still wait: they are lost"):
            counter.close()
    own_redis.start()
    assert hotcount.Counter(own_redis.redis()).get("k") == 0
