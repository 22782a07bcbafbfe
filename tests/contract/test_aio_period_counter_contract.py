"""aio.PeriodCounter answers what PeriodCounter answers, on every store."""

import asyncio
from datetime import datetime, timedelta, timezone

import hotcount
import pytest
from hotcount import aio

from tests.support.stores import Store


async def test_many_tasks_get_a_number_each_and_sync_calls_go_on(counter_store: Store) -> None:
    counter = aio.PeriodCounter(counter_store, "month", "Europe/Berlin")
    noon = datetime.now(timezone.utc) - timedelta(days=40)
    numbers = await asyncio.gather(*(counter.add("k", 1, noon) for _ in range(100)))
    assert sorted(numbers) == list(range(1, 101))
    assert await counter.get("k", noon) == 100
    assert hotcount.PeriodCounter(counter_store, "month", "Europe/Berlin").get("k", noon) == 100


async def test_the_present_is_counted_and_read(counter_store: Store) -> None:
    counter = aio.PeriodCounter(counter_store, "month")
    first = datetime.now(timezone.utc)
    numbers = [await counter.add("k"), await counter.add("k", 4)]
    count = await counter.get("k")
    # Unless a month has just ended between them.
    if datetime.now(timezone.utc).month == first.month:
        assert (numbers, count) == ([1, 5], 5)


async def test_a_series_has_each_period_in_the_counters_zone(counter_store: Store) -> None:
    counter = aio.PeriodCounter(counter_store, "day", "Europe/Berlin")
    start = datetime.now(timezone.utc) - timedelta(days=3)
    await counter.add("k", 7, start)
    rows = await counter.series("k", start, start + timedelta(days=2))
    assert [count for _, count in rows][:1] == [7]
    assert str(rows[0][0].tzinfo) == "Europe/Berlin"
    assert rows == hotcount.PeriodCounter(counter_store, "day", "Europe/Berlin").series(
        "k", start, start + timedelta(days=2)
    )


async def test_what_is_wrong_with_an_argument_is_raised_by_the_call(counter_store: Store) -> None:
    counter = aio.PeriodCounter(counter_store)
    with pytest.raises(TypeError, match="at must be"):
        counter.add("k", 1, "now")  # type: ignore[arg-type, unused-coroutine]
    with pytest.raises(hotcount.ConfigError, match="naive"):
        counter.add("k", 1, datetime(2026, 1, 1))  # type: ignore[unused-coroutine]
    with pytest.raises(hotcount.ConfigError, match="key"):
        counter.get("")  # type: ignore[unused-coroutine]
    with pytest.raises(hotcount.ConfigError, match="not kept"):
        await counter.add("k", 1, datetime(2020, 1, 1, tzinfo=timezone.utc))
