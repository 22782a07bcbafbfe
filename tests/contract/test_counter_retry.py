"""A counter whose adds wait while Redis does not answer: what each call says of it."""

import asyncio
import dataclasses
import logging
import os
import pathlib
import pickle
from typing import Any

import hotcount
import pytest
from hotcount import Queued, RetryQueue, aio

from tests.support.errors import kinds
from tests.support.eventually import eventually
from tests.support.servers import RedisServer

INT64_MAX = 2**63 - 1
BOTH = pytest.mark.parametrize("kind", [hotcount.Counter, hotcount.PeriodCounter])
TTLS = pytest.mark.parametrize("ttl", [None, 600], ids=["immortal", "ttl"])


@BOTH
def test_over_memory_nothing_ever_waits(kind: type[Any], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "adds"
    counter = kind("memory://", retry=RetryQueue(path=path))
    assert [counter.add("k"), counter.add("k", 4)] == [1, 5]
    assert counter.retry_stats() == hotcount.RetryStats(0, 0, 0, 0, 0, 0, 0, 0.0, 0, False)
    if kind is hotcount.Counter:
        batch = counter.add_many(["a", "b", "a"])
        assert isinstance(batch, hotcount.AddedBatch)
        assert batch == [1, 1, 2]
        assert list(batch.waiting) == [0, 0, 0]
    assert not path.exists()


@BOTH
def test_options_are_attributes(kind: type[Any], tmp_path: pathlib.Path) -> None:
    queue = RetryQueue(path=str(tmp_path / "adds"), max_items=5, max_age=60.0, fsync="off")
    counter = kind("memory://", retry=queue)
    assert counter.retry == queue
    assert "retry=RetryQueue(path=" in repr(counter)
    assert kind("memory://").retry is None
    with pytest.raises(hotcount.ConfigError, match="retry queue"):
        kind("memory://").retry_stats()
    bad: list[tuple[type[Exception], str, Any]] = [
        (hotcount.ConfigError, "path", ""),
        (hotcount.ConfigError, "max_items", 0),
        (hotcount.ConfigError, "max_age", 0),
        (hotcount.ConfigError, "max_age", 1e9),
        (hotcount.ConfigError, "when_full", "wait"),
        (hotcount.ConfigError, "fsync", "never"),
        *((TypeError, "max_items", "many"), (TypeError, "path", 5), (TypeError, "max_age", "long")),
    ]
    for error, name, value in bad:
        with pytest.raises(error, match=name):
            kind("memory://", retry=dataclasses.replace(queue, **{name: value}))
    with pytest.raises(TypeError, match="RetryQueue"):
        kind("memory://", retry="adds")


pytestmark = pytest.mark.server


@pytest.fixture
def redis(own_redis: RedisServer) -> hotcount.Redis:
    return own_redis.redis(timeout=20)


@TTLS
def test_while_redis_answers_an_add_is_its_value(redis: hotcount.Redis, ttl: float | None) -> None:
    counter = hotcount.Counter(redis, ttl=ttl, retry=RetryQueue())
    assert [counter.add("k"), counter.add("k", 4), counter.add("k", -2)] == [1, 5, 3]
    assert counter.get("k") == 3
    left = counter.ttl("k")
    assert left is None if ttl is None else left is not None and 500 < left <= 600
    assert counter.add("k", INT64_MAX - 3) == INT64_MAX
    with pytest.raises(hotcount.CounterOverflowError, match="count:k"):
        counter.add("k")
    assert counter.add("k", -5) == INT64_MAX - 5
    assert counter.reset("k") == INT64_MAX - 5
    redis.execute("LPUSH", "count:list", "x")
    with pytest.raises(hotcount.WrongTypeError):
        counter.add("list")
    with pytest.raises(hotcount.ConfigError, match="brace"):
        counter.add("a}b")
    assert counter.add("{a}b") == 1
    assert counter.retry_stats().queued == 0


def test_what_a_queue_does_not_take_is_a_config_error(redis: hotcount.Redis) -> None:
    counter = hotcount.Counter(redis, retry=RetryQueue())
    assert counter.try_add("k", 2, max=3).applied
    assert counter.add("k", op_id="once") == counter.add("k", op_id="once") == 3


@TTLS
def test_adds_wait_while_redis_is_away_and_are_counted_once(
    own_redis: RedisServer, ttl: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hotcount")
    redis = own_redis.redis(timeout=1)
    counter = hotcount.Counter(redis, ttl=ttl, retry=RetryQueue())
    assert counter.add("k") == 1
    own_redis.kill()
    answers: list[object] = [counter.add("k", n) for n in range(1, 6)]
    assert answers == [Queued(waiting=n, durable=False) for n in range(1, 6)]
    with pytest.raises((hotcount.UnavailableError, hotcount.DeadlineError)):
        counter.try_add("k", max=5)
    with pytest.raises((hotcount.UnavailableError, hotcount.DeadlineError)):
        counter.get("k")
    stats = counter.retry_stats()
    assert (stats.waiting, stats.queued, stats.is_away, stats.outages) == (5, 5, True, 1)
    assert stats.oldest_age > 0
    own_redis.start()
    eventually(lambda: counter.retry_stats().waiting == 0)
    # The server kept nothing.
    assert counter.get("k") == 15
    assert counter.add("k") == 16
    assert counter.retry_stats().replayed == 5
    # Beside what the client logs of the server.
    of_queue = [each.levelname for each in caplog.records if " add" in each.getMessage()]
    assert of_queue == ["WARNING", "INFO"]
    if ttl is not None:
        assert 0 < (counter.ttl("k") or 0) <= ttl


@TTLS
async def test_an_event_loop_gets_the_same(own_redis: RedisServer, ttl: float | None) -> None:
    async with aio.Counter(own_redis.url, ttl=ttl, retry=RetryQueue()) as counter:
        answers = await asyncio.gather(*(counter.add("k") for _ in range(50)))
        assert set(answers) == set(range(1, 51))
        batch = await counter.add_many(["a", "b", "a"], [1, 2, 3])
        assert isinstance(batch, hotcount.AddedBatch)
        assert batch == [1, 2, 4]
        own_redis.kill()
        batch = await counter.add_many(["m"] * 20)
        assert list(batch.waiting) == list(range(1, 21))
        waiting: list[object] = list(
            await asyncio.gather(*(counter.add(f"k{n % 7}") for n in range(500)))
        )
        assert all(isinstance(answer, Queued) for answer in waiting)
        own_redis.start()
        for _ in range(2000):
            if counter.retry_stats().waiting == 0:
                break
            await asyncio.sleep(0.01)
        assert sum([await counter.get(f"k{n}") for n in range(7)]) == 500
        assert await counter.get("m") == 20


@TTLS
def test_a_batch_has_numbers_and_what_waits(own_redis: RedisServer, ttl: float | None) -> None:
    counter = hotcount.Counter(own_redis.redis(timeout=1), ttl=ttl, retry=RetryQueue())
    own_redis.redis().execute("LPUSH", "count:list", "x")
    batch = counter.add_many(["a", "b", "list", "a", "a}b"], [1, 2, 3, 4, 5], errors="return")
    assert list(batch.value) == [1, 2, 0, 5, 0]
    assert kinds(batch.errors) == {2: "WrongTypeError", 4: "ConfigError"}
    # More than the queue is given at once.
    many = counter.add_many([f"k{n % 3}" for n in range(3000)])
    assert [many[0], many[-1]] == [1, 1000]
    assert many.to_dict()["waiting"] == [0] * 3000
    own_redis.kill()
    waiting = counter.add_many({"a": 10, "new": 7})
    assert waiting == [Queued(1, False), Queued(2, False)]
    assert (list(waiting.value), list(waiting.durable)) == ([0, 0], [False, False])
    assert pickle.loads(pickle.dumps(waiting)) == waiting
    assert counter.add_many(["k0"] * 3000)[-1] == Queued(3002, False)
    own_redis.start()
    eventually(lambda: counter.retry_stats().waiting == 0)
    # The server kept nothing.
    assert counter.get_many(["a", "new", "k0"]) == [10, 7, 3000]
    assert counter.retry_stats().replayed == 3002


def test_a_batch_that_finds_the_queue_full_says_so_of_each_element(own_redis: RedisServer) -> None:
    counter = hotcount.Counter(own_redis.redis(timeout=0.3), retry=RetryQueue(max_items=3))
    own_redis.kill()
    with pytest.raises(hotcount.BatchError) as failed:
        counter.add_many(["k"] * 5)
    assert list(failed.value.result.waiting) == [1, 2, 3, 0, 0]
    for index in (3, 4):
        assert isinstance(failed.value.errors[index], hotcount.CapacityError)
        assert "nothing was applied" in str(failed.value.errors[index])
    own_redis.start()
    eventually(lambda: counter.retry_stats().waiting == 0)
    assert counter.get("k") == 3


def test_a_full_queue_refuses_or_drops_the_oldest(own_redis: RedisServer) -> None:
    own_redis.kill()
    full = hotcount.Counter(own_redis.redis(timeout=0.3), retry=RetryQueue(max_items=3))
    dropping = hotcount.Counter(
        own_redis.redis(timeout=0.3),
        prefix="d",
        retry=RetryQueue(max_items=3, when_full="drop_oldest"),
    )
    for _ in range(3):
        assert isinstance(full.add("k"), Queued)
    with pytest.raises(hotcount.CapacityError, match=r"max_items.*nothing was applied"):
        full.add("k")
    for n in range(5):
        assert isinstance(dropping.add("k", 10**n), Queued)
    assert dropping.retry_stats().dropped == 2
    own_redis.start()
    eventually(lambda: full.retry_stats().waiting == dropping.retry_stats().waiting == 0)
    assert full.get("k") == 3
    assert dropping.get("k") == 11100


def test_what_is_older_than_max_age_is_counted_nowhere(own_redis: RedisServer) -> None:
    counter = hotcount.Counter(own_redis.redis(timeout=0.3), retry=RetryQueue(max_age=0.2))
    own_redis.kill()
    assert isinstance(counter.add("k"), Queued)
    eventually(lambda: counter.retry_stats().expired == 1)
    own_redis.start()
    told: list[object] = []

    def answered() -> bool:
        told.append(counter.add("k"))
        return isinstance(told[-1], int)

    eventually(answered)
    eventually(lambda: counter.retry_stats().waiting == 0)
    # Of those that waited meanwhile some may have expired, too.
    assert counter.get("k") == 1 + len(told) - counter.retry_stats().expired


def test_an_add_that_can_never_be_counted_is_refused_alone(own_redis: RedisServer) -> None:
    counter = hotcount.Counter(own_redis.redis(timeout=0.3), retry=RetryQueue())
    own_redis.kill()
    for key, n in [("max", INT64_MAX), ("max", 1), ("k", 2), ("max", -1)]:
        assert isinstance(counter.add(key, n), Queued)
    own_redis.start()
    eventually(lambda: counter.retry_stats().waiting == 0)
    assert (counter.get("k"), counter.get("max")) == (2, INT64_MAX - 1)
    assert (counter.retry_stats().refused, counter.retry_stats().replayed) == (1, 3)


def test_closing_says_how_many_wait_after_the_store_was_closed(own_redis: RedisServer) -> None:
    redis = own_redis.redis(timeout=0.3)
    counter = hotcount.Counter(redis, retry=RetryQueue())
    own_redis.kill()
    assert isinstance(counter.add("k"), Queued)
    redis.close()
    with pytest.raises(hotcount.ClosedError):
        counter.add("k")
    with pytest.warns(RuntimeWarning, match="1 adds still wait: they are lost"):
        counter.close()
    counter.close()


def test_a_file_keeps_what_waits_at_the_end(own_redis: RedisServer, tmp_path: pathlib.Path) -> None:
    queue = RetryQueue(path=tmp_path / "adds")
    counter = hotcount.Counter(own_redis.url, retry=queue)
    assert counter.add("k") == 1
    with pytest.raises(hotcount.ConfigError, match=f"process {os.getpid()}"):
        hotcount.Counter(own_redis.url, retry=queue)
    own_redis.kill()
    answers: list[object] = [counter.add("k"), counter.add("k", 10)]
    assert answers == [Queued(1, True), Queued(2, True)]
    assert counter.retry_stats().journal_bytes > 24
    with pytest.warns(RuntimeWarning, match=r"2 adds still wait: they stay in .*adds"):
        counter.close()
    own_redis.start()
    with hotcount.Counter(own_redis.url, retry=queue) as again:
        eventually(lambda: again.retry_stats().waiting == 0)
        assert again.get("k") == 11
        assert again.retry_stats().journal_bytes == 24
