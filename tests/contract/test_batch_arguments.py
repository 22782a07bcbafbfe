"""What add_many and get_many take as keys and amounts: sequences, arrays and other buffers.

On memory and Redis, because each reads the batch in its own way once the GIL is released.
"""

import array
import ctypes
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import hotcount
import numpy as np
import pytest
from hotcount import Counter

from tests.support.errors import kinds, shown
from tests.support.stores import Store

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
KEYS = ["a", "user:42", "\u00e9\u20ac\U0001f600", "x" * 300]


def view(column: Any) -> memoryview:
    return memoryview(column)


def strided(keys: list[Any]) -> Any:
    whole = np.array([word for key in keys for word in (key, "between")])
    return whole[::2]


def of_rows(keys: list[str]) -> Any:
    rows = np.zeros(len(keys), dtype=[("n", "i1"), ("key", "U300"), ("m", "i2")])
    rows["key"] = keys
    return rows["key"]


KEY_COLUMNS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "iterator": iter,
    "generator": lambda keys: (key for key in keys),
    "dict-keys": lambda keys: dict.fromkeys(keys).keys(),
    "bytes": lambda keys: [key.encode() for key in keys],
    "mixed": lambda keys: [key.encode() if i % 2 else key for i, key in enumerate(keys)],
    "str-subclass": lambda keys: [np.str_(key) for key in keys],
    "bytes-subclass": lambda keys: [np.bytes_(key.encode()) for key in keys],
    "U": np.array,
    "U-big-endian": lambda keys: np.array(keys).astype(np.array(keys).dtype.newbyteorder(">")),
    "U-strided": strided,
    "U-reversed": lambda keys: np.array(keys[::-1])[::-1],
    "U-in-rows": of_rows,
    "U-in-a-column": lambda keys: np.array([[key, "other"] for key in keys])[:, 0],
    "U-broadcast": lambda keys: np.array(keys),
    "U-readonly": lambda keys: np.frombuffer(np.array(keys).tobytes(), dtype=np.array(keys).dtype),
    "S": lambda keys: np.array([key.encode() for key in keys]),
    "S-strided": lambda keys: np.array([w for k in keys for w in (k.encode(), b"between")])[::2],
    "S-reversed": lambda keys: np.array([key.encode() for key in keys[::-1]])[::-1],
    "object": lambda keys: np.array(keys, dtype=object),
    "object-bytes": lambda keys: np.array([key.encode() for key in keys], dtype=object),
    "StringDType": lambda keys: np.array(keys, dtype=np.dtypes.StringDType()),
    "memoryview-S": lambda keys: view(np.array([key.encode() for key in keys])),
    "memoryview-U": lambda keys: view(np.array(keys)),
}


@pytest.mark.parametrize("kind", KEY_COLUMNS)
def test_keys_are_the_same_however_they_come(counter: Counter, kind: str) -> None:
    make = KEY_COLUMNS[kind]
    amounts = list(range(1, len(KEYS) + 1))
    assert counter.add_many(make(KEYS), amounts) == amounts
    assert counter.add_many(make(KEYS), 10) == [10 + amount for amount in amounts]
    assert counter.get_many(make(KEYS)) == [10 + amount for amount in amounts]
    # As one key at a time sees them.
    assert [counter.get(key) for key in KEYS] == [10 + amount for amount in amounts]


@pytest.mark.parametrize("kind", ["U", "U-big-endian", "S", "U-strided", "object", "StringDType"])
def test_a_batch_takes_an_array_of_a_thousand_keys(counter: Counter, kind: str) -> None:
    keys = [f"key:{number * number}" for number in range(1000)]
    amounts = np.arange(1000)
    assert counter.add_many(KEY_COLUMNS[kind](keys), amounts) == list(range(1000))
    assert counter.get_many(keys[::-1]) == list(range(999, -1, -1))


EMPTY = [[], (), array.array("q"), *(np.array([], dtype) for dtype in ("U5", "S5", float, object))]


@pytest.mark.parametrize(
    "empty", EMPTY, ids=lambda empty: type(empty).__name__ + str(getattr(empty, "dtype", ""))
)
def test_an_empty_column_gives_an_empty_batch(counter: Counter, empty: Any) -> None:
    assert counter.add_many(empty) == []
    assert counter.add_many(empty, empty) == []
    assert counter.get_many(empty) == []


def test_nuls_at_the_end_of_an_arrays_element_are_dropped_as_numpy_does(counter: Counter) -> None:
    for keys in (np.array(["a\0b", "a\0\0", "\0a"]), np.array([b"a\0b", b"a\0\0", b"\0a"])):
        counter.add_many(keys, [1, 2, 3])
        for key, amount in zip(keys.tolist(), [1, 2, 3]):
            assert counter.reset(key) == amount
    # In a list each is what it is.
    assert counter.add_many(["a\0", "a"], [1, 2]) == [1, 2]


@pytest.mark.parametrize("order", ["<", ">"])
def test_what_is_no_text_in_an_array_fails_its_element_alone(counter: Counter, order: str) -> None:
    codes = np.array([[0x61, 0], [0xD800, 0], [0, 0], [0x110000, 0], [0x10FFFF, 0]])
    keys = codes.astype(order + "u4").view(order + "U2")[:, 0]
    result = counter.add_many(keys, [1, 2, 3, 4, 5], errors="return")
    assert kinds(result.errors) == dict.fromkeys((1, 2, 3), "ConfigError")
    assert "keys[1] has a lone surrogate" in str(result.errors[1])
    assert "empty" in str(result.errors[2])
    assert "keys[3] has a code beyond U+10FFFF" in str(result.errors[3])
    assert list(result) == [1, 0, 0, 0, 5]
    assert counter.get_many(["a", "\U0010ffff"]) == [1, 5]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("text", "keys must be a sequence of str or bytes, not str"),
        (b"bytes", "keys must be a sequence of str or bytes, not bytes"),
        (bytearray(b"ab"), "keys must be a sequence of str or bytes, not bytearray"),
        (5, "keys must be a sequence of str or bytes, not int"),
        (None, "keys must be a sequence of str or bytes, not NoneType"),
        (np.array("a"), "keys must be one-dimensional, not an array of 0 dimensions"),
        (["a", 5], r"keys\[1\] must be str or bytes, not int"),
        (("a", "b", None), r"keys\[2\] must be str or bytes, not NoneType"),
        (["a", bytearray(b"b")], r"keys\[1\] must be str or bytes, not bytearray"),
        (["a", ["b"]], r"keys\[1\] must be str or bytes, not list"),
        (["a", ("b",)], r"keys\[1\] must be str or bytes, not tuple"),
        (["a", 1.5], r"keys\[1\] must be str or bytes, not float"),
        (np.array([1, 2]), r"keys\[0\] must be str or bytes, not numpy.int64"),
        (np.array([1.5]), r"keys\[0\] must be str or bytes, not numpy.float64"),
        (np.array([["a", "b"]] * 2), "keys must be one-dimensional, not an array of 2 dimensions"),
        (np.array(["a", 5], dtype=object), r"keys\[1\] must be str or bytes, not int"),
        (np.array([b"ab"], dtype="V2"), r"keys\[0\] must be str or bytes, not numpy.void"),
        (np.array(["2026-01-01"], dtype="M8[D]"), r"keys\[0\] must be str or bytes"),
        (
            np.array(["a", np.nan], dtype=np.dtypes.StringDType(na_object=np.nan)),
            r"keys\[1\] must be str or bytes, not float",
        ),
        (memoryview(b"ab"), r"keys\[0\] must be str or bytes, not int"),
        (array.array("q", [1]), r"keys\[0\] must be str or bytes, not int"),
        (np.ma.array(["a", "b"], mask=[False, True]), "keys is a masked array"),
        (np.ma.array(["a", "b"], dtype=object), "keys is a masked array"),
    ],
    ids=shown,
)
def test_keys_of_a_wrong_type_are_named(counter: Counter, keys: Any, says: str) -> None:
    counter.add("a", 7)
    for call in (counter.add_many, counter.get_many):
        with pytest.raises(TypeError, match=f"^{says}"):
            call(keys)
    assert counter.get_many(["a", "b", "c"]) == [7, 0, 0]


WIDTHS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]

AMOUNT_COLUMNS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "range": lambda _: range(1, 5),
    "iterator": iter,
    "numpy-integers": lambda numbers: [np.int16(number) for number in numbers],
    "object": lambda numbers: np.array(numbers, dtype=object),
    **{
        f"{order}{width}": lambda numbers, t=order + width: np.array(numbers, dtype=t)  # type: ignore[misc]
        for width in WIDTHS
        for order in "<>"
    },
    **{
        f"{width}-strided": lambda numbers, t=width: np.repeat(np.array(numbers, dtype=t), 3)[::3]  # type: ignore[misc]
        for width in WIDTHS
    },
    **{
        f"{width}-reversed": lambda numbers, t=width: np.array(numbers[::-1], dtype=t)[::-1]  # type: ignore[misc]
        for width in WIDTHS
    },
    **{
        f"array-{code}": lambda numbers, c=code: array.array(c, numbers)  # type: ignore[misc]
        for code in "bBhHiIlLqQ"
    },
    "memoryview": lambda numbers: view(np.array(numbers)),
    "memoryview-bytes": lambda numbers: memoryview(bytes(numbers)),
    "memoryview-big-endian": lambda numbers: view(np.array(numbers, dtype=">i4")),
    "memoryview-strided": lambda numbers: view(np.repeat(np.array(numbers), 2))[::2],
    "ctypes": lambda numbers: (ctypes.c_uint16 * len(numbers))(*numbers),
    "unaligned": lambda numbers: np.frombuffer(
        b"\0" + np.array(numbers, dtype="i8").tobytes(), dtype="i8", offset=1
    ),
    "in-rows": lambda numbers: np.array(
        [(0, number) for number in numbers], dtype=[("pad", "i1"), ("n", "i4")]
    )["n"],
    "Int64Batch": hotcount.Int64Batch,
    "Int64Batch-slice": lambda numbers: hotcount.Int64Batch(numbers[::-1])[::-1],
    "intp": lambda numbers: np.array(numbers, dtype=np.intp),
    "longlong": lambda numbers: np.array(numbers, dtype=np.longlong),
}


@pytest.mark.parametrize("kind", AMOUNT_COLUMNS)
def test_amounts_are_the_same_however_they_come(counter: Counter, kind: str) -> None:
    numbers = [1, 2, 3, 4]
    assert counter.add_many(["a", "b", "a", "b"], AMOUNT_COLUMNS[kind](numbers)) == [1, 2, 4, 6]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("width", WIDTHS)
def test_the_ends_of_every_integer_type_are_exact(counter: Counter, order: str, width: str) -> None:
    limits = np.iinfo(width)
    if width == "u8":
        column = np.array([INT64_MAX, INT64_MAX + 1, limits.max], dtype=order + width)
        result = counter.add_many(["a", "b", "c"], column, errors="return")
        assert {i: str(e) for i, e in result.errors.items()} == {
            1: "n[1] does not fit in signed 64 bits",
            2: "n[2] does not fit in signed 64 bits",
        }
        assert all(isinstance(e, hotcount.CounterOverflowError) for e in result.errors.values())
        assert list(result) == [INT64_MAX, 0, 0]
        assert counter.get_many(["a", "b", "c"]) == [INT64_MAX, 0, 0]
    else:
        ends = [int(limits.min), int(limits.max), 0]
        for step in (1, -1):
            column = np.array(ends, dtype=order + width)[::step]
            keys = [f"{width}{step}{number}" for number in range(3)]
            assert counter.add_many(keys, column) == ends[::step]


class Exporter:
    """A buffer that Python code exports (PEP 688, from 3.12 on)."""

    def __init__(self, numbers: list[int], error: Exception | None = None) -> None:
        self.column, self.error = array.array("q", numbers), error
        self.exported = self.released = 0

    def __buffer__(self, flags: int) -> memoryview:
        self.exported += 1
        if self.error is not None:
            raise self.error
        return memoryview(self.column)

    def __release_buffer__(self, exported: memoryview) -> None:
        self.released += 1
        exported.release()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python before 3.12 has no __buffer__")
def test_a_buffer_of_python_code_is_read_once_and_released() -> None:
    counter = Counter("memory://")
    keys, column = ["a", "b", "a"], Exporter([1, 2, 4])
    amounts: Any = column
    assert counter.add_many(keys, amounts) == [1, 2, 5]
    assert (column.exported, column.released) == (1, 1)
    column.column.append(8)  # No export is left that would keep it from growing.
    with pytest.raises(hotcount.ConfigError, match="n has 4 elements for a batch of 3"):
        counter.add_many(keys, amounts)
    assert column.exported == column.released == 2
    for error, raised in ((KeyError("mine"), KeyError), (BufferError("no"), TypeError)):
        amounts = Exporter([1], error)
        with pytest.raises(raised):
            counter.add_many(["a"], amounts)
        assert amounts.released == 0
    assert counter.get_many(["a", "b"]) == [5, 2]


def test_one_integer_is_for_all(counter: Counter) -> None:
    numbers: list[Any] = [3, np.int8(3), np.uint64(3)]
    for n in numbers:
        assert counter.add_many(["a", "b"], n)[1] % 3 == 0
    assert counter.get_many(["a", "b"]) == [9, 9]
    with pytest.raises(hotcount.CounterOverflowError, match=r"^n does not fit"):
        counter.add_many(["a"], np.uint64(2**63))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("n", "says"),
    [
        (1.5, "n must be int, not float"),
        (np.float64(1), "n must be int, not numpy.float64"),
        (True, "n must be int, not bool"),
        ("12", "n must be int or a sequence of int, not str"),
        (b"12", "n must be int or a sequence of int, not bytes"),
        (bytearray(b"12"), "n must be int or a sequence of int, not bytearray"),
        (None, "n must be int or a sequence of int, not NoneType"),
        (np.array(5), "n must be one-dimensional, not an array of 0 dimensions"),
        (np.array([1.5, 2.5]), r"n\[0\] must be int, not numpy.float64"),
        (np.array([1, 2], dtype="f4"), r"n\[0\] must be int, not numpy.float32"),
        (np.array([1, 2], dtype="c16"), r"n\[0\] must be int, not numpy.complex128"),
        (np.array([True, False]), r"n\[0\] must be int, not numpy.bool"),
        (np.array(["1", "2"]), r"n\[0\] must be int, not numpy.str_"),
        (np.array(["1", "2"], dtype="S1"), r"n\[0\] must be int, not numpy.bytes_"),
        (np.array([1, 2.5], dtype=object), r"n\[1\] must be int, not float"),
        (np.array([[1, 2], [3, 4]]), "n must be one-dimensional, not an array of 2 dimensions"),
        (np.array([1, 2], dtype="m8[s]"), r"n\[0\] must be int, not numpy.timedelta64"),
        (array.array("d", [1, 2]), r"n\[0\] must be int, not float"),
        (memoryview(array.array("f", [1, 2])), r"n\[0\] must be int, not float"),
        (memoryview(b"12").cast("c"), r"n\[0\] must be int, not bytes"),
        ([1, 2.0], r"n\[1\] must be int, not float"),
        ([1, None], r"n\[1\] must be int, not NoneType"),
        ([True, 1], r"n\[0\] must be int, not bool"),
        (np.ma.array([5, 999], mask=[False, True]), "n is a masked array"),
        (np.ma.array([5, 999], dtype=object), "n is a masked array"),
        ([5, np.ma.array(999, mask=True)], r"n\[1\] is a masked array"),
    ],
    ids=shown,
)
def test_amounts_of_a_wrong_type_are_named(counter: Counter, n: Any, says: str) -> None:
    with pytest.raises(TypeError, match=f"^{says}"):
        counter.add_many(["a", "b"], n)
    assert counter.get_many(["a", "b"]) == [0, 0]


@pytest.mark.parametrize("n", [[1], [1, 2, 3], np.arange(3), np.arange(1, dtype="u1"), []])
def test_another_number_of_amounts_than_keys_is_refused(counter: Counter, n: Any) -> None:
    with pytest.raises(hotcount.ConfigError, match=f"n has {len(n)} elements for a batch of 2"):
        counter.add_many(["a", "b"], n)
    assert counter.get_many(["a", "b"]) == [0, 0]


def test_the_answer_is_an_array_over_the_same_memory(counter: Counter) -> None:
    batch = counter.add_many(np.array(["a", "b", "a"]), np.array([1, 2, 3], dtype="u2"))
    taken = np.asarray(batch)
    assert (taken.dtype, taken.tolist()) == (np.dtype("int64"), [1, 2, 4])
    assert np.shares_memory(taken, np.asarray(batch))
    assert not taken.flags.owndata
    # And goes in again as amounts.
    assert counter.add_many(["c", "d", "e"], batch) == [1, 2, 4]
    assert np.shares_memory(np.asarray(counter.get_many(["a"])[0:1]), taken) is False


def test_what_others_do_to_the_arguments_meanwhile_changes_nothing(counter_store: Store) -> None:
    # The GIL is released while the batch is read: the keys must outlive what becomes of the list,
    # and the numbers must be those of the beginning.
    counter = Counter(counter_store)
    keys = [f"key {number}" for number in range(2000)]
    texts = list(keys)
    amounts = np.ones(2000, dtype=np.int64)
    names = np.array(keys)
    stop = threading.Event()

    def spoil() -> None:
        while not stop.is_set():
            texts[:] = [f"spoilt {number}" for number in range(2000)]
            names[:] = "spoilt"
            texts[:] = keys
            names[:] = keys

    thread = threading.Thread(target=spoil)
    thread.start()
    try:
        for _ in range(30):
            for column in (texts, names):
                batch = counter.add_many(column, amounts, errors="return")
                assert len(batch) == 2000
                assert not batch.errors
    finally:
        stop.set()
        thread.join()
    with_spoilt = [*keys, *(f"spoilt {number}" for number in range(2000)), "spoilt"]
    assert sum(counter.get_many(with_spoilt)) == 2 * 30 * 2000


@pytest.mark.parametrize("width", WIDTHS)
def test_ids_of_votes_come_as_any_integers_too(database: hotcount.Database, width: str) -> None:
    votes = hotcount.Votes(database)
    votes.create_tables()
    votes.add_items([1, 2])
    items, users = np.array([1, 2, 1], dtype=width), np.array([5, 9, 6], dtype=">" + width)[::-1]
    assert list(votes.cast_many(items, users).changed) == [True] * 3
    assert list(votes.count_many(items[:2]).value) == [2, 1]
    for ids in ((np.ma.array(items), users), (items, np.ma.array(users))):
        with pytest.raises(TypeError, match="is a masked array"):
            votes.cast_many(*ids)
    if width == "u8":
        with pytest.raises(hotcount.BatchError, match=r"items\[1\] does not fit"):
            votes.cast_many(np.array([1, 2**63], dtype="u8"), [1, 1])
