"""What a SlottedCounter promises, for each way of choosing slots, on every database."""

import time
from decimal import Decimal
from typing import Any

import hotcount
import numpy as np
import pytest
from hotcount import Database, SlottedCounter

from tests.support.errors import kinds
from tests.support.together import THREADS, together

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@pytest.fixture(params=["sticky", "random"])
def counter(request: pytest.FixtureRequest, database: Database) -> SlottedCounter:
    counter = SlottedCounter(database, slot_choice=request.param)
    counter.create_table()
    return counter


def test_the_count_is_the_sum_of_the_adds(counter: SlottedCounter) -> None:
    for n in (1, 10, -3, 0):
        counter.add("k", n)
    counter.add("k")
    assert counter.get("k") == 9
    counter.add("big", 2**53)
    counter.add("big", 1)
    assert counter.get("big") == 2**53 + 1


def test_adds_from_many_threads_sum_exactly(counter: SlottedCounter) -> None:
    def work(index: int) -> None:
        for _ in range(5):
            counter.add("hot", index + 1)

    together(work)
    assert counter.get("hot") == 5 * sum(range(1, THREADS + 1))


def test_an_add_that_would_leave_64_bits_changes_nothing(database: Database) -> None:
    counter = SlottedCounter(database, slots=1)
    counter.create_table()
    for start, n in ((INT64_MAX, 1), (INT64_MIN, -1)):
        key = f"from {start}"
        counter.add(key, start)
        with pytest.raises(hotcount.CounterOverflowError, match=key):
            counter.add(key, n)
        assert counter.get(key) == start


def test_an_overflowing_add_hurts_nobody_who_shares_its_transaction(database: Database) -> None:
    counter = SlottedCounter(database, slots=1)
    counter.create_table()
    counter.add("full", INT64_MAX)
    result = counter.add_many({"a": 1, "full": 1, "b": 2}, errors="return")
    assert result == [1, 0, 2]
    assert kinds(result.errors) == {1: "CounterOverflowError"}
    assert counter.get_many(["a", "full", "b"]) == [1, INT64_MAX, 2]


def test_a_sum_beyond_64_bits_is_an_overflow_on_reading(database: Database) -> None:
    counter = SlottedCounter(database, slots=10_000, slot_choice="random")
    counter.create_table()
    # Two slots for certain: each holds what fits, their sum does not.
    for _ in range(20):
        try:
            counter.add("k", INT64_MAX)
        except hotcount.CounterOverflowError:
            break
        try:
            counter.get("k")
        except hotcount.CounterOverflowError:
            return
    pytest.fail("the sum of two full slots was read without an error")


def test_an_op_id_is_counted_once_however_often_it_is_retried(counter: SlottedCounter) -> None:
    for _ in range(3):
        counter.add("k", 5, op_id="a")
    counter.add("k", 1, op_id=b"b")
    counter.add("other", 7, op_id="a")
    assert counter.get_many(["k", "other"]) == [6, 7]


def test_an_op_id_is_forgotten_after_op_keep(database: Database) -> None:
    counter = SlottedCounter(database, op_keep=1)
    counter.create_table()
    counter.add("k", op_id="a")
    # The ledger counts whole seconds.
    time.sleep(2.1)
    counter.add("other", op_id="b")
    counter.add("k", op_id="a")
    assert counter.get("k") == 2


@pytest.mark.parametrize("bad", ["", "x" * 1001])
def test_an_empty_or_too_long_op_id_is_refused(counter: SlottedCounter, bad: str) -> None:
    with pytest.raises(hotcount.ConfigError, match="op_id"):
        counter.add("k", op_id=bad)
    with pytest.raises(TypeError, match="op_id must be str or bytes, not int"):
        counter.add("k", op_id=5)  # type: ignore[arg-type]
    assert counter.get("k") == 0


@pytest.mark.parametrize("slot", [-1, 100, INT64_MIN, INT64_MAX, 2**63])
def test_a_slot_that_is_out_of_range_is_refused(counter: SlottedCounter, slot: int) -> None:
    with pytest.raises(hotcount.ConfigError, match=r"slot is -?\d+.*0 to 99|slot.*64"):
        counter.add("k", slot=slot)
    counter.resize(8)
    with pytest.raises(hotcount.ConfigError, match=r"slot is 8.*0 to 7"):
        counter.add("k", slot=8)
    assert counter.get("k") == 0


@pytest.mark.parametrize("slot", [1.0, "1", True, Decimal(1)])
def test_a_slot_of_another_type_is_a_type_error(counter: SlottedCounter, slot: Any) -> None:
    with pytest.raises(TypeError, match=r"slot must be"):
        counter.add("k", slot=slot)
    assert counter.get("k") == 0


def test_add_many_adds_each_pair_of_a_mapping(counter: SlottedCounter) -> None:
    assert counter.add_many({"a": 1, "b": -2}) == [1, -2]
    assert counter.add_many({b"a": np.int64(4)}) == [4]  # type: ignore[arg-type]
    assert counter.add_many({}) == []
    assert counter.get_many(["a", "b", "never"]) == [5, -2, 0]


def test_one_bad_pair_is_reported_and_the_others_are_done(counter: SlottedCounter) -> None:
    with pytest.raises(hotcount.BatchError) as caught:
        counter.add_many({"a": 1, "": 1, "nul\0": 1, "big": 2**63, "b": 2})
    assert kinds(caught.value.errors) == {
        1: "ConfigError",
        2: "ConfigError",
        3: "CounterOverflowError",
    }
    assert caught.value.result == [1, 0, 0, 0, 2]
    assert counter.get_many(["a", "b", "big"]) == [1, 2, 0]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"a": 1, 5: 1}, r"mapping\.keys\(\)\[1\].*int"),
        ({"a": 1, "b": 1.5}, r"mapping\.values\(\)\[1\].*float"),
        ({"a": 1, "b": True}, r"mapping\.values\(\)\[1\].*bool"),
        ({"a": 1, "b": Decimal(1)}, r"mapping\.values\(\)\[1\].*Decimal"),
        (["a"], "mapping must be a mapping.*list"),
        ("a", "mapping must be a mapping.*str"),
        (None, "mapping must be a mapping.*NoneType"),
    ],
)
def test_a_pair_of_a_wrong_type_is_named(counter: SlottedCounter, bad: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        counter.add_many(bad)
    assert counter.get("a") == 0


def test_resize_and_compact_keep_every_count(counter: SlottedCounter) -> None:
    for slots in (1, 7, 10_000, 3):
        counter.resize(slots)
        assert counter.slots == slots
        for _ in range(5):
            counter.add("k")
    assert counter.get("k") == 20
    assert counter.compact("k") == 20
    assert counter.get("k") == 20
    counter.add("k")
    assert counter.get("k") == 21


@pytest.mark.parametrize("slots", [0, -1, 10_001, 2**63])
def test_slots_out_of_range_fail(counter: SlottedCounter, database: Database, slots: int) -> None:
    with pytest.raises(hotcount.ConfigError, match="slots"):
        counter.resize(slots)
    with pytest.raises(hotcount.ConfigError, match="slots"):
        SlottedCounter(database, slots=slots)


def test_reset_returns_the_sum_and_leaves_zero(counter: SlottedCounter) -> None:
    counter.add("k", 5)
    counter.add("other", 1)
    assert counter.reset("k") == 5
    assert counter.reset("k") == 0
    assert counter.get_many(["k", "other"]) == [0, 1]


def test_keys_are_compared_byte_by_byte(counter: SlottedCounter) -> None:
    keys = ["a", "A", "a ", "\u00e9", "e\u0301", "{a}", "a'; --", "\r\n", "x" * 1000]
    counter.add_many({key: number for number, key in enumerate(keys, 1)})
    assert counter.get_many(keys) == list(range(1, len(keys) + 1))


def test_a_key_with_a_nul_is_refused_by_every_call(counter: SlottedCounter) -> None:
    for call in (counter.add, counter.get, counter.reset, counter.compact):
        with pytest.raises(hotcount.ConfigError, match=r"key.*NUL"):
            call("a\0b")


def test_names_with_quotes_and_reserved_words_are_names(database: Database) -> None:
    columns: dict[str, Any] = {
        "key_column": "group",
        "slot_column": "or'der",
        "count_column": "Größe",
    }
    counter = SlottedCounter(database, table='sel"ect; DROP', **columns)
    counter.create_table()
    counter.create_table()
    counter.add("k", 3, op_id="x")
    assert counter.get("k") == 3
    assert counter.compact("k") == 3


BAD_OPTIONS = [
    ("table", ""), ("table", "x" * 64), ("key_column", "a\0b"), ("slot_column", ""),
    ("count_column", "x" * 64), ("slot_choice", "lucky"), ("slots", "many"),
    ("op_keep", 0),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value"), BAD_OPTIONS)
def test_a_bad_option_is_refused_by_name(database: Database, option: str, value: Any) -> None:
    with pytest.raises(hotcount.ConfigError, match=option):
        SlottedCounter(database, **{option: value})


def test_every_call_takes_a_timeout(counter: SlottedCounter) -> None:
    counter.create_table(timeout=5)
    counter.add("k", timeout=5)
    counter.add_many({"k": 1}, timeout=5)
    assert counter.get("k", timeout=5) == counter.get_many(["k"], timeout=5)[0] == 2
    assert counter.compact("k", timeout=5) == counter.reset("k", timeout=5) == 2
