"""A slotted counter under many writers: SUM = acknowledged adds; no deadlock reaches a caller."""

import threading
from typing import Any

import hotcount
import pytest
from hotcount import Database, SlottedCounter

from tests.support.together import together

WRITERS = 64


@pytest.fixture(params=["sticky", "random", "adaptive"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "adaptive":
        return {"slots": "adaptive"}
    return {"slots": 8, "slot_choice": request.param}


def several(database: Database, options: dict[str, Any], number: int = 4) -> list[SlottedCounter]:
    """`number` counters with a queue each, as processes have: their transactions do meet."""
    counters = [hotcount.SlottedCounter(database, **options) for _ in range(number)]
    counters[0].create_table()
    return counters


def test_64_writers_lose_no_add(database: hotcount.Database, options: dict[str, Any]) -> None:
    counters = several(database, options)
    acknowledged = [0] * WRITERS

    def work(index: int) -> None:
        for number in range(6):
            counters[index % 4].add("hot", number + 1)
            acknowledged[index] += number + 1

    together(work, WRITERS)
    assert counters[0].get("hot") == sum(acknowledged) == WRITERS * 21


def test_64_writers_of_the_same_keys(database: hotcount.Database, options: dict[str, Any]) -> None:
    counters = several(database, options)
    keys = [f"k{number}" for number in range(6)]

    def work(index: int) -> None:
        for number in range(3):
            turn = (index + number) % len(keys)
            order = keys[turn:] + keys[:turn]
            counters[index % 4].add_many(dict.fromkeys(order if index % 2 else order[::-1], 1))

    together(work, WRITERS)
    assert list(counters[0].get_many(keys)) == [WRITERS * 3] * len(keys)


def test_64_retries_count_each_once(database: hotcount.Database, options: dict[str, Any]) -> None:
    counters = several(database, options)

    def work(index: int) -> None:
        for number in range(4):
            counters[index % 4].add("hot", 5, op_id=f"op-{(index + number) % 4}")

    together(work, WRITERS)
    assert counters[0].get("hot") == 4 * 5


def test_resize_and_compact_keep_sums(database: hotcount.Database, options: dict[str, Any]) -> None:
    counters = several(database, options)
    done = threading.Event()
    seen: list[int] = []

    def work(index: int) -> int:
        if index == 0:
            # A read sums one state: the rows before a compaction, or those after it.
            while not done.is_set():
                seen.append(counters[0].get("hot"))
            return 0
        if index == 1:
            rounds = 0
            while not done.is_set():
                counters[1].compact("hot")
                counters[rounds % 4].resize(1 + rounds % 7)
                rounds += 1
            return 0
        try:
            for _ in range(20):
                counters[index % 4].add("hot")
        finally:
            if barrier.wait() == 0:
                done.set()
        return 20

    writers = 16
    barrier = threading.Barrier(writers)
    total = sum(together(work, writers + 2))
    assert counters[0].get("hot") == total == counters[0].compact("hot")
    # Nothing but adds of 1 was going on: a count never falls.
    assert seen == sorted(seen)


def test_no_add_is_lost_to_a_reset(database: hotcount.Database, options: dict[str, Any]) -> None:
    counters = several(database, options)

    def work(index: int) -> int:
        if index % 8 == 0:
            return sum(counters[1].reset("hot") for _ in range(5))
        for _ in range(10):
            counters[index % 4].add("hot")
        return 0

    taken = sum(together(work, 16))
    assert taken + counters[0].get("hot") == 14 * 10
