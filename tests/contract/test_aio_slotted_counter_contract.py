"""aio.SlottedCounter answers what SlottedCounter answers, on every database."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Database, aio
from hotcount.functions import dialect_names

from tests.support.errors import kinds

INT64_MAX = 2**63 - 1


@pytest.fixture(params=["sticky", "random"])
def counter(request: pytest.FixtureRequest, database: hotcount.Database) -> aio.SlottedCounter:
    hotcount.SlottedCounter(database).create_table()
    return aio.SlottedCounter(database, slot_choice=request.param)


async def test_adds_of_many_tasks_add_up(database: Database, counter: aio.SlottedCounter) -> None:
    waiting = hotcount.SlottedCounter(database)
    await counter.create_table()
    await asyncio.gather(*(counter.add("hot", n) for n in range(200)))
    assert await counter.get("hot") == sum(range(200)) == waiting.get("hot")
    waiting.add("hot", 5)
    assert await counter.get_many(["hot", "cold"]) == [sum(range(200)) + 5, 0]
    assert await counter.compact("hot") == sum(range(200)) + 5
    assert await counter.reset("hot") == sum(range(200)) + 5
    assert waiting.get("hot") == 0


async def test_a_slot_may_be_named(counter: aio.SlottedCounter) -> None:
    await asyncio.gather(*(counter.add("k", slot=slot) for slot in (0, 36, 0)))
    assert await counter.get("k") == 3
    with pytest.raises(hotcount.ConfigError, match=r"slot is 100.*0 to 99"):
        await counter.add("k", slot=100)


async def test_an_op_id_counts_once_for_many_tasks(counter: aio.SlottedCounter) -> None:
    await asyncio.gather(*(counter.add("k", 3, op_id="once") for _ in range(20)))
    await counter.add("k", 3, op_id=b"again")
    assert await counter.get("k") == 6


async def test_one_bad_element_of_a_batch_hurts_no_other(database: hotcount.Database) -> None:
    counter = aio.SlottedCounter(database, slots=1)
    await counter.create_table()
    await counter.add("full", INT64_MAX)
    result = await counter.add_many({"a": 1, "full": 1, "": 3, "b": 2}, errors="return")
    assert result == [1, 0, 0, 2]
    assert kinds(result.errors) == {1: "CounterOverflowError", 2: "ConfigError"}
    with pytest.raises(hotcount.BatchError) as caught:
        await counter.add_many({"a": 1, "full": 1})
    assert caught.value.result == [1, 0]
    assert await counter.add_many({}) == []
    assert await counter.get_many(["a", "full", "b"]) == [2, INT64_MAX, 2]
    with pytest.raises(hotcount.CounterOverflowError, match="full"):
        await counter.add("full")


async def test_what_is_wrong_with_an_argument_is_raised(counter: aio.SlottedCounter) -> None:
    not_an_amount: Any = 1.5
    with pytest.raises(TypeError, match="n must be"):
        counter.add("k", not_an_amount)  # type: ignore[unused-coroutine]
    for key in ("", "a\0b"):
        for call in (counter.add, counter.get, counter.reset, counter.compact):
            with pytest.raises(hotcount.ConfigError, match="key"):
                call(key)
    with pytest.raises(hotcount.ConfigError, match="op_id"):
        counter.add("k", op_id="")  # type: ignore[unused-coroutine]
    with pytest.raises(TypeError, match="mapping must be"):
        counter.add_many(["k"])  # type: ignore[arg-type, unused-coroutine]
    assert await counter.get("k") == 0


def test_what_needs_no_database_is_not_awaited(database: hotcount.Database) -> None:
    counter = aio.SlottedCounter(database, slots="adaptive")
    assert counter.slots == 1
    counter.resize(7)
    assert counter.slots == 7
    assert counter._dialect in dialect_names()
    assert (counter.table, counter.slot_choice) == ("hotcount_slot", "sticky")
    with pytest.raises(hotcount.ConfigError, match="slots"):
        counter.resize(0)


async def test_a_call_cancelled_under_way_hurts_no_other(counter: aio.SlottedCounter) -> None:
    calls = [asyncio.ensure_future(counter.add("k")) for _ in range(100)]
    reads = [asyncio.ensure_future(counter.get("k")) for _ in range(20)]
    for call in [*calls[::2], *reads[::2]]:
        call.cancel()
    outcomes = await asyncio.gather(*calls, *reads, return_exceptions=True)
    kinds = {type(outcome) for outcome in outcomes}
    assert kinds <= {type(None), int, asyncio.CancelledError}
    assert [type(outcome) for outcome in outcomes[1:100:2]] == [type(None)] * 50
    # An add that began is not withdrawn; one that follows it is behind it.
    await counter.add("k")
    assert 51 <= await counter.get("k") <= 101


async def test_a_closed_counter_leaves_its_database_open(database: hotcount.Database) -> None:
    async with aio.SlottedCounter(database) as counter:
        await counter.create_table()
        calls = [asyncio.ensure_future(counter.add("k")) for _ in range(50)]
    assert counter.closed
    await asyncio.gather(*calls)  # The database is another's: they go on.
    with pytest.raises(hotcount.ClosedError):
        counter.add("k")  # type: ignore[unused-coroutine]
    assert await aio.SlottedCounter(database).get("k") == 50


async def test_a_loop_goes_on_while_the_database_is_locked(database_path: Path) -> None:
    counter = aio.SlottedCounter(f"sqlite:///{database_path}", slots=1)
    waiting = hotcount.SlottedCounter(f"sqlite:///{database_path}", slots=1)
    waiting.create_table()
    waiting.add("k")
    with closing(sqlite3.connect(database_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE hotcount_slot SET count = count + 1")
        calls = [asyncio.ensure_future(counter.add("k", timeout=25)) for _ in range(50)]
        # More than there are threads: some are late before their turn.
        hasty = [asyncio.ensure_future(counter.reset("k", timeout=0.2)) for _ in range(6)]
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not any(call.done() for call in calls)
        for outcome in await asyncio.gather(*hasty, return_exceptions=True):
            assert isinstance(outcome, hotcount.DeadlineError)
        other.execute("COMMIT")
        await asyncio.gather(*calls)
        assert await counter.get("k") == 52
