"""What batch calls return: sequences whose columns NumPy takes without copying."""

from __future__ import annotations

import collections.abc
import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import hotcount
import numpy as np
import pytest
from hotcount import Cast, Casts, Column, Count, Counts, Int64Batch


def some_numbers() -> Int64Batch:
    return Int64Batch([3, -(2**63), 2**63 - 1, 3], {3: hotcount.ConfigError("bad key")})


def some_casts() -> Casts:
    return Casts(
        [Cast(True, True, 0, 1), Cast(False, True, 2, 0), Cast(True, False, -3, -3)],
        {1: hotcount.DeadlineError("late", "SQLITE_BUSY")},
    )


def some_counts() -> Counts:
    return Counts([Count(5, True, 1.5, "sql", 0), Count(2**62, False, 2.5, "cache", 3)])


BATCHES = [
    pytest.param(some_numbers, id="int64"),
    pytest.param(some_casts, id="casts"),
    pytest.param(some_counts, id="counts"),
    pytest.param(lambda: some_casts().changed, id="bool-column"),
    pytest.param(lambda: some_casts().value, id="int64-column"),
    pytest.param(lambda: some_counts().as_of, id="float64-column"),
]


@pytest.mark.parametrize("make", BATCHES)
def test_a_batch_is_a_sequence_like_a_list(make: Callable[[], Any]) -> None:
    batch: Any = make()
    items = list(batch)
    size = len(items)
    assert issubclass(type(batch), collections.abc.Sequence)
    assert len(batch) == size
    assert [batch[index] for index in range(-size, size)] == items + items
    assert (type(batch.tolist()), batch.tolist()) == (list, items)
    assert batch[np.int64(0)] == items[0]
    assert list(reversed(batch)) == items[::-1]
    assert items[0] in batch
    assert object() not in batch
    assert batch.index(items[-1]) == items.index(items[-1])
    assert batch.count(items[0]) == items.count(items[0])
    for index in (size, -size - 1, 2**70):
        with pytest.raises(IndexError):
            batch[index]
    with pytest.raises(TypeError, match="index must be int or slice, not str"):
        batch["0"]
    with pytest.raises(ValueError, match="not in list"):
        batch.index(object())


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize(
    "part",
    [
        slice(None),
        slice(1, None),
        slice(None, None, -1),
        slice(0, 2),
        slice(None, None, 2),
        slice(5, 9),
    ],
)
def test_a_slice_is_a_batch_of_the_same_kind(make: Callable[[], Any], part: slice) -> None:
    batch = make()
    assert type(batch[part]) is type(batch)
    assert list(batch[part]) == list(batch)[part]
    # A slice of a slice counts from the slice.
    assert list(batch[::-1][part]) == list(batch)[::-1][part]


@pytest.mark.parametrize("make", BATCHES)
def test_a_batch_equals_a_list_or_tuple_of_the_same_values(make: Callable[[], Any]) -> None:
    batch = make()
    items = list(batch)
    assert batch == make()
    assert batch == items
    assert batch == tuple(items)
    assert items == batch
    assert batch != items[1:]
    assert batch != batch[::-1] or items == items[::-1]
    assert batch != "text"
    assert batch is not None


@pytest.mark.parametrize("make", BATCHES)
def test_a_batch_is_immutable_and_unhashable(make: Callable[[], Any]) -> None:
    batch = make()
    with pytest.raises(TypeError):
        batch[0] = batch[0]
    with pytest.raises(TypeError):
        del batch[0]
    with pytest.raises(TypeError, match="unhashable"):
        hash(batch)
    with pytest.raises(AttributeError):
        batch.anything = 1


@pytest.mark.parametrize("make", BATCHES)
def test_a_batch_survives_pickle_and_copy_with_its_errors(make: Callable[[], Any]) -> None:
    batch = make()
    for twin in (pickle.loads(pickle.dumps(batch)), copy.copy(batch), copy.deepcopy(batch)):
        assert type(twin) is type(batch)
        assert twin == batch
        errors, expected = getattr(twin, "errors", {}), getattr(batch, "errors", {})
        assert {i: repr(e) for i, e in errors.items()} == {i: repr(e) for i, e in expected.items()}


@pytest.mark.parametrize("make", BATCHES)
def test_a_batch_matches_a_sequence_pattern(make: Callable[[], Any]) -> None:
    # `match` looks for a flag of the type, which isinstance() does not.
    py_tpflags_sequence = 1 << 5
    assert type(make()).__flags__ & py_tpflags_sequence


def test_numpy_takes_an_int64_batch_without_copying() -> None:
    batch = Int64Batch([3, -(2**63), 2**63 - 1])
    array = np.asarray(batch)
    assert array.dtype == np.dtype("int64")
    assert array.tolist() == [3, -(2**63), 2**63 - 1]
    assert not array.flags.writeable
    assert np.shares_memory(array, np.asarray(batch))
    assert np.shares_memory(array, np.asarray(batch[1:]))
    assert np.asarray(batch[::-1]).tolist() == array[::-1].tolist()


@pytest.mark.parametrize(
    ("column", "dtype", "values"),
    [
        ("counted", "bool", [True, False, True]),
        ("changed", "bool", [True, True, False]),
        ("previous", "int64", [0, 2, -3]),
        ("value", "int64", [1, 0, -3]),
    ],
)
def test_numpy_takes_the_columns_of_casts_without_copying(
    column: str, dtype: str, values: list[Any]
) -> None:
    casts = some_casts()
    array = np.asarray(getattr(casts, column))
    assert array.dtype == np.dtype(dtype)
    assert array.tolist() == values
    assert np.shares_memory(array, np.asarray(getattr(casts, column)))
    assert list(getattr(casts, column)) == values
    assert np.asarray(getattr(casts[::-1], column)).tolist() == values[::-1]
    assert np.asarray(getattr(casts[3:], column)).tolist() == []


def test_numpy_takes_the_columns_of_counts() -> None:
    counts = some_counts()
    assert np.asarray(counts.value).tolist() == [5, 2**62]
    assert np.asarray(counts.exact).tolist() == [True, False]
    assert np.asarray(counts.as_of).tolist() == [1.5, 2.5]
    assert np.asarray(counts.pending).tolist() == [0, 3]


def test_an_array_keeps_the_memory_of_its_batch_alive() -> None:
    array = np.asarray(Int64Batch(range(100_000)))
    column = np.asarray(some_casts().previous)
    gc.collect()
    # Anything that would be written over the freed memory.
    _others = [Int64Batch([-1] * 100_000) for _ in range(5)]
    assert array.sum() == sum(range(100_000))
    assert column.tolist() == [0, 2, -3]


def test_an_empty_batch_is_an_empty_array() -> None:
    assert np.asarray(Int64Batch([])).shape == (0,)
    assert np.asarray(Casts([]).value).dtype == np.dtype("int64")
    assert Int64Batch([]) == []
    assert not Int64Batch([])


def test_errors_keep_the_index_of_their_element_in_a_slice() -> None:
    errors: dict[int, hotcount.HotcountError] = {
        index: hotcount.ConfigError(str(index)) for index in (0, 3, 4)
    }
    batch = Int64Batch([0] * 6, errors)
    assert {i: str(e) for i, e in batch[2:].errors.items()} == {1: "3", 2: "4"}
    assert {i: str(e) for i, e in batch[::-1].errors.items()} == {1: "4", 2: "3", 5: "0"}
    assert batch[1:3].errors == {}


def test_a_long_batch_is_shown_shortened() -> None:
    assert repr(Int64Batch([1, 2])) == "Int64Batch([1, 2])"
    assert len(repr(Int64Batch(range(1000)))) < 100
    assert "1000 elements" in repr(Int64Batch(range(1000)))
    assert "errors={1: DeadlineError('late')}" in repr(some_casts())


def test_what_is_no_sequence_of_values_makes_no_batch() -> None:
    with pytest.raises(TypeError, match="values"):
        Int64Batch("12")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"values\[1\].*float"):
        Int64Batch([1, 2.0])  # type: ignore[list-item]
    with pytest.raises(hotcount.CounterOverflowError, match=r"values\[0\]"):
        Int64Batch([2**63])
    with pytest.raises(TypeError, match=r"values\[1\]"):
        Casts([Cast(True, True, 0, 1), 5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="errors must be dict, not list"):
        Int64Batch([1], [])  # type: ignore[arg-type]
    with pytest.raises(hotcount.ConfigError, match="format"):
        Column("x", b"")
    with pytest.raises(hotcount.ConfigError, match="data"):
        Column("l", b"1234567")
    with pytest.raises(hotcount.ConfigError, match="no bool"):
        Column("?", b"\1\0\2")


def test_a_slice_with_a_step_beyond_all_elements_is_as_a_lists() -> None:
    numbers, casts = some_numbers(), some_casts()
    for step in (2**60, 2**62, -(2**62), 2**70, -(2**70)):
        part = slice(None, None, step)
        assert numbers[part][part] == list(numbers)[part]
        assert casts[part][part].value == list(casts.value)[part]
        assert memoryview(numbers[part]).strides == (8,)


def test_a_batch_gives_its_columns_as_lists_and_as_a_table() -> None:
    casts = some_casts()
    assert casts.to_dict() == {
        "counted": [True, False, True],
        "changed": [True, True, False],
        "previous": [0, 2, -3],
        "value": [1, 0, -3],
        "pending": [False, False, False],
    }
    assert casts[::-2].to_dict()["value"] == [-3, 1]
    assert some_numbers().to_dict() == {"value": list(some_numbers())}
    table = casts._repr_html_()
    assert table.startswith("<table><tr><th></th><th>counted</th>")
    assert (
        "<tr><td>1</td><td>False</td><td>True</td><td>2</td><td>0</td><td>False</td></tr>" in table
    )
    long = Int64Batch(range(1000))._repr_html_()
    assert (long.count("<tr>"), "1000 rows" in long) == (21, True)
    assert Casts([]).to_dict()["value"] == []
    assert Casts([])._repr_html_().count("<tr>") == 1


@pytest.mark.parametrize("make", BATCHES)
def test_a_batch_has_no_dict_and_a_class_that_may_be_derived_from(make: Callable[[], Any]) -> None:
    batch = make()
    assert not hasattr(batch, "__dict__")
    assert "errors" in dir(batch) or type(batch) is Column
    with pytest.raises(TypeError, match=r"__init__\(\) was called already"):
        batch.__init__([], {})


def test_a_buffer_is_given_as_it_is_asked_for() -> None:
    packed, strided = Int64Batch([1, 2, 3]), some_casts().value
    assert bytes(packed) == memoryview(packed).tobytes()
    assert memoryview(strided).tobytes() == np.asarray([1, 0, -3], dtype="int64").tobytes()
    assert np.ascontiguousarray(strided).tolist() == [1, 0, -3]
    with pytest.raises(TypeError, match="bytes-like"):  # Its memory is not in one piece.
        b"".join([strided])
    with pytest.raises(TypeError, match="read-only"):
        memoryview(packed)[0] = 1
    assert memoryview(packed[1:2]).tolist() == [2]
    with pytest.raises(TypeError):
        memoryview(some_casts())  # type: ignore[arg-type]
