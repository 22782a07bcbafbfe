"""The retry queue of description 4, which only catches errors: its holes, each forced.

tests/contract/test_counter_retry.py and tests/faults/test_retry_queue.py show the same situations
with RetryQueue, which has none of them.
"""

import signal
import time
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from notebooks import ways
from tests.support.servers import RedisServer

TTL_MS = 600_000


@pytest.fixture
def plain(own_redis: RedisServer) -> Iterator[redis.Redis]:
    # The description's client does not repeat a command by itself.
    once = Retry(NoBackoff(), 0)
    with redis.Redis(
        unix_socket_path=str(own_redis.socket), socket_timeout=0.2, retry=once
    ) as client:
        yield client


def replay(client: redis.Redis, ttl_ms: int, queue: list[str]) -> None:
    for key in list(queue):
        ways.set_nx_incr(client, key, ttl_ms)


def test_an_add_without_expiry_counts_twice(own_redis: RedisServer, plain: redis.Redis) -> None:
    plain.execute_command(
        "ACL", "SETUSER", "half", "on", ">pw", "~*", "&*", "+@all", "-pexpire", "-pttl"
    )
    queue: list[str] = []
    with redis.Redis(
        unix_socket_path=str(own_redis.socket), username="half", password="pw"
    ) as half:
        assert ways.add_one(half, "k", TTL_MS, queue) == 1
    assert queue == ["k"]
    replay(plain, TTL_MS, queue)
    assert plain.get("k") == b"2"


def test_an_add_counts_in_a_later_life(own_redis: RedisServer, plain: redis.Redis) -> None:
    queue: list[str] = []
    assert ways.add_one(plain, "k", 500, queue) == 1
    own_redis.send_signal(signal.SIGSTOP)
    assert ways.add_one(plain, "k", 500, queue) == 1, "whatever is told, it is no count"
    time.sleep(0.6)
    # The life that it came in is over.
    own_redis.send_signal(signal.SIGCONT)
    assert queue == ["k"]
    replay(plain, TTL_MS, queue)
    assert int(plain.get("k") or 0) >= 1


def test_every_caller_is_told_1_meanwhile(own_redis: RedisServer, plain: redis.Redis) -> None:
    own_redis.kill()
    queue: list[str] = []
    assert [ways.add_one(plain, "k", TTL_MS, queue) for _ in range(3)] == [1, 1, 1]
    assert queue == ["k"] * 3, "in memory: lost with the process"
