"""add_many and get_many of a PeriodCounter: many keys of one period, on every store."""

import pathlib
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from itertools import chain
from typing import Any

import hotcount
import numpy as np
import pytest
from hotcount import PeriodCounter, Queued, RetryQueue, aio

from tests.support.servers import RedisServer
from tests.support.stores import Store
from tests.support.together import together

UTC = timezone.utc
HOUR = timedelta(hours=1)
# A time in next year: no period that contains it has expired, whatever its length.
AT = datetime(date.today().year + 1, 3, 14, 15, tzinfo=UTC)
INT64_MAX = 2**63 - 1


@pytest.fixture
def hourly(counter_store: Store) -> PeriodCounter:
    return PeriodCounter(counter_store, "hour")


@pytest.mark.parametrize(
    ("keys", "n", "values"),
    [
        (["a", "b", "a"], 1, [1, 1, 2]),
        (["a", b"a", "b"], [5, -2, 0], [5, 3, 0]),
        (np.array(["a", "b"]), np.array([2**53 + 1, INT64_MAX]), [2**53 + 1, INT64_MAX]),
        ([], 1, []),
        ([f"k{i % 700}" for i in range(2000)], 1, [1 + i // 700 for i in range(2000)]),
    ],
    ids=["repeated", "amounts", "arrays", "empty", "several scripts"],
)
def test_each_add_returns_its_value_and_reads_agree(
    hourly: PeriodCounter, keys: Any, n: Any, values: list[int]
) -> None:
    assert hourly.add_many(keys, n, AT).tolist() == values
    names = [key if isinstance(key, bytes) else str(key).encode() for key in keys]
    last = dict(zip(names, values, strict=True))
    assert hourly.get_many(list(last), AT).tolist() == list(last.values())
    assert {key: hourly.get(key, AT) for key in list(last)[:3]} == dict(list(last.items())[:3])
    assert hourly.get_many(list(last), AT + HOUR).tolist() == [0] * len(last)


def test_a_mapping_is_key_to_amount(hourly: PeriodCounter) -> None:
    assert hourly.add_many({"a": 3, "b": -4}, at=AT).tolist() == [3, -4]
    with pytest.raises(TypeError, match="mapping"):
        hourly.add_many({"a": 3}, 2)


def test_without_at_the_present_period_counts(counter_store: Store) -> None:
    # The month may change once during the test.
    counter = PeriodCounter(counter_store, "month", keep=3)
    start = datetime.now(UTC)
    assert counter.add_many(["a", "b", "a"], [1, 2, 3]).tolist() == [1, 2, 4]
    end = datetime.now(UTC) + timedelta(seconds=1)
    assert [sum(n for _, n in counter.series(key, start, end)) for key in "ab"] == [4, 2]
    if datetime.now(UTC).month == start.month:
        assert counter.get_many(["b", "a", "c"]).tolist() == [2, 4, 0]


def test_periods_that_end_meanwhile_lose_nothing(counter_store: Store) -> None:
    counter = PeriodCounter(counter_store, "second", keep=60)
    start = datetime.now(UTC)
    keys = [f"k{i}" for i in range(600)]
    rounds = 0
    while datetime.now(UTC) - start < timedelta(seconds=2.5):
        counter.add_many(keys)
        rounds += 1
    end = datetime.now(UTC) + timedelta(seconds=2)
    for key in keys[::100]:
        assert sum(n for _, n in counter.series(key, start, end)) == rounds


def test_threads_add_to_one_count(hourly: PeriodCounter) -> None:
    def add(_: int) -> list[int]:
        return [value for _ in range(20) for value in hourly.add_many(["k", "k"], at=AT)]

    assert sorted(chain.from_iterable(together(add, 8))) == list(range(1, 321))


def test_a_failed_element_stops_no_other(hourly: PeriodCounter) -> None:
    hourly.add("most", INT64_MAX, AT)
    keys = ["a", "most", "", "b"]
    with pytest.raises(hotcount.BatchError) as caught:
        hourly.add_many(keys, at=AT)
    errors = {i: type(error) for i, error in caught.value.errors.items()}
    assert errors == {1: hotcount.CounterOverflowError, 2: hotcount.ConfigError}
    batch = hourly.get_many(keys, AT, errors="return")
    assert ([batch[0], batch[1], batch[3]], list(batch.errors)) == ([1, INT64_MAX, 1], [2])


@pytest.mark.parametrize(
    ("at", "says"),
    [(timedelta(days=-3), "not kept any more"), (timedelta(days=37_000), "100 years ahead")],
)
def test_a_period_not_kept_fails_each_key(counter_store: Store, at: timedelta, says: str) -> None:
    counter = PeriodCounter(counter_store, "hour", keep=2)
    batch = counter.add_many(["a", "b"], at=datetime.now(UTC) + at, errors="return")
    assert sorted(batch.errors) == [0, 1]
    for error in batch.errors.values():
        assert isinstance(error, hotcount.ConfigError)
        assert says in str(error)


@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        (
            lambda c: c.add_many(["a"], 1, datetime(2026, 1, 1)),
            hotcount.ConfigError,
            "at is a naive",
        ),
        (lambda c: c.get_many(["a"], "now"), TypeError, "at must be datetime"),
        (
            lambda c: c.get_many(["a"], datetime.min.replace(tzinfo=UTC)),
            hotcount.ConfigError,
            "^at ",
        ),
        (lambda c: c.add_many(["a", 1]), TypeError, r"keys\[1\]"),
        (lambda c: c.add_many(["a", "b"], [1]), hotcount.ConfigError, "n"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_added(
    hourly: PeriodCounter, bad: Callable[[Any], object], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        bad(hourly)
    assert hourly.get("a") == 0


async def test_aio_has_the_same_batches(counter_store: Store) -> None:
    counter = aio.PeriodCounter(counter_store, "hour", "Europe/Berlin")
    assert (await counter.add_many(["a", "b", "a"], at=AT)).tolist() == [1, 1, 2]
    assert (await counter.get_many(["a", "b"], AT)).tolist() == [2, 1]
    assert len(await counter.add_many(["a", "b"])) == len(await counter.get_many(["a", "b"])) == 2
    batch = await counter.add_many(["a", ""], at=AT, errors="return")
    assert (batch[0], list(batch.errors)) == (3, [1])


def test_with_a_queue_over_memory_elements_are_numbers() -> None:
    counter = PeriodCounter("memory://", retry=RetryQueue())
    batch = counter.add_many(["a", "a"], 2, AT)
    assert isinstance(batch, hotcount.AddedBatch)
    assert list(batch) == [2, 4]


def test_queued_adds_are_counted_once(own_redis: RedisServer, tmp_path: pathlib.Path) -> None:
    with own_redis.redis(timeout=0.5) as redis:
        queue = RetryQueue(path=tmp_path / "adds")
        with PeriodCounter(redis, "hour", retry=queue) as counter:
            assert list(counter.add_many(["a", "b", "a"], [1, 2, 3], AT)) == [1, 2, 4]
            bad = counter.add_many(["a", "", "a}b"], at=AT, errors="return")
            assert (bad[0], sorted(bad.errors)) == (5, [1, 2])
            with pytest.raises(hotcount.ConfigError, match=r"^at "):
                counter.add_many(["a"], at=datetime.min.replace(tzinfo=UTC))
            own_redis.kill()
            waiting = counter.add_many(["a", "c"], [10, 20], AT)
            assert all(isinstance(each, Queued) for each in waiting)
            own_redis.start()
            deadline = time.monotonic() + 20
            while counter.retry_stats().waiting > 0 and time.monotonic() < deadline:
                time.sleep(0.05)
            # The restarted server is empty: these are the adds that waited.
            assert counter.get_many(["a", "c"], AT).tolist() == [10, 20]


async def test_aio_adds_through_the_queue_too(own_redis: RedisServer) -> None:
    async with aio.Redis(own_redis.url, timeout=0.5) as redis:
        counter = aio.PeriodCounter(redis, "hour", retry=RetryQueue())
        assert list(await counter.add_many(["a", "a"], at=AT)) == [1, 2]
        assert (await counter.get_many(["a"], AT)).tolist() == [2]
