"""Bad input to a Counter: on every store the same typed error, or the same value.

Beside test_counter_contract.py, which has what concerns one method; here each value meets every
call that takes it, with and without a ttl, because those are different ways to the store.
"""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import hotcount
import numpy as np
import pytest
from hotcount import Counter

from tests.support.errors import shown
from tests.support.stores import Store

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@pytest.fixture(params=[None, 60], ids=["for-ever", "ttl"])
def counter(request: pytest.FixtureRequest, counter_store: Store) -> Counter:
    return Counter(counter_store, ttl=request.param)


@pytest.mark.parametrize(
    "n",
    [0, -1, 1, 2**53, 2**53 + 1, -(2**53) - 1, INT64_MAX - 1, INT64_MAX, INT64_MIN + 1, INT64_MIN],
)
def test_an_amount_of_64_bits_is_exact_by_every_way(counter: Counter, n: int) -> None:
    assert counter.add("added", n) == n
    assert counter.try_add("tried", n).value == n
    assert counter.add_many(["one of many", "two"], [n, n]) == [n, n]
    assert counter.get_many(["added", "tried", "one of many", "two"]) == [n] * 4
    # To an existing key, and to zero again.
    assert counter.add("added", 0) == n
    if n != INT64_MIN:
        assert counter.add("added", -n) == 0
        assert counter.try_add("tried", -n) == hotcount.TryAdd(True, 0)
    assert counter.reset("one of many") == n


@pytest.mark.parametrize(
    "n", [INT64_MAX + 1, INT64_MIN - 1, 2**64, -(2**64), 10**400, np.uint64(2**63)]
)
def test_an_amount_beyond_64_bits_is_an_overflow(counter: Counter, n: Any) -> None:
    for call in (counter.add, counter.try_add):
        with pytest.raises(hotcount.CounterOverflowError, match="n does not fit"):
            call("k", n)
    result = counter.add_many(["k", "other"], [n, 1], errors="return")
    assert isinstance(result.errors[0], hotcount.CounterOverflowError)
    assert counter.get_many(["k", "other"]) == [0, 1]


def test_errors_that_somebody_takes_out_stay_in_their_batch(counter: Counter) -> None:
    with pytest.raises(hotcount.BatchError) as caught:
        counter.add_many(["k", "other"], [2**63, 1])
    batch = caught.value.result
    caught.value.errors.clear()
    batch.errors.clear()
    assert list(batch.errors) == [0]


SUMS = [
    (INT64_MAX, 1), (INT64_MAX, INT64_MAX), (INT64_MIN, -1), (INT64_MIN, INT64_MIN),
    (-1, INT64_MIN), (1, INT64_MAX),
]  # fmt: skip


@pytest.mark.parametrize(("stands", "n"), SUMS)
def test_a_sum_beyond_64_bits_changes_nothing(counter: Counter, stands: int, n: int) -> None:
    counter.add("k", stands)
    life = counter.ttl("k")
    with pytest.raises(hotcount.CounterOverflowError, match="k"):
        counter.add("k", n)
    assert counter.try_add("k", n) == hotcount.TryAdd(False, stands)
    result = counter.add_many(["k", "other", "k"], [n, 5, 0], errors="return")
    assert isinstance(result.errors[0], hotcount.CounterOverflowError)
    assert (list(result.errors), list(result)[1:]) == ([0], [5, stands])
    assert counter.get("k") == stands
    after = counter.ttl("k")
    assert (after is None) == (life is None)


NOT_INTEGERS = [
    1.0, float("nan"), float("inf"), float("-inf"), "1", b"1", True, np.True_, Decimal(1),
    Decimal("NaN"), Fraction(1), np.float64(1), np.float64("nan"), 1j, [1], object(),
]  # fmt: skip


@pytest.mark.parametrize("bad", NOT_INTEGERS, ids=shown)
def test_an_amount_that_is_no_integer_is_a_type_error(counter: Counter, bad: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: counter.add("k", bad),
        lambda: counter.try_add("k", bad),
        lambda: counter.try_add("k", 1, min=bad),
        lambda: counter.try_add("k", 1, max=bad),
        lambda: counter.add_many(["k", "j"], [1, bad]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="must be int"):
            call()
    assert counter.get_many(["k", "j"]) == [0, 0]


@pytest.mark.parametrize(
    "kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
)
def test_numpy_integers_are_integers_by_every_way(counter: Counter, kind: Any) -> None:
    assert counter.add("k", kind(3)) == 3
    assert counter.try_add("k", kind(3), max=kind(6)) == hotcount.TryAdd(True, 6)
    assert counter.add_many(["k", "k"], np.array([1, 2], dtype=kind)) == [7, 9]


def test_bounds_that_admit_nothing_are_refused_by_name(counter: Counter) -> None:
    with pytest.raises(hotcount.ConfigError, match="min 2 is more than max 1"):
        counter.try_add("k", 1, min=2, max=1)
    with pytest.raises(hotcount.CounterOverflowError, match="max does not fit"):
        counter.try_add("k", 1, max=2**63)
    assert counter.get("k") == 0


# Pairs that something in between may take for one.
APART = [
    (b"a", b"a\0"), (b"\0", b"\0\0"), (b"a\r\n", b"a"), (b"\n", b"\r\n"), (b"{a}b", b"ab"),
    (b"{}", b"{"), (b"a:b", b"a"), (b"a b", b"ab"), (b"*", b"?"), (b"\xff", b"\xfe"),
    (b"\xff", b"\xc3\xbf"),  # Latin-1 against UTF-8.
    ("\u00e9".encode(), "e\u0301".encode()),  # NFC against NFD.
    ("\ufb01".encode(), b"fi"), (b"K", b"k"), ("\u212a".encode(), b"K"), (b"1", b"01"),
    (b"x" * 999, b"x" * 1000), (b"x" * 999 + b"a", b"x" * 999 + b"b"),
]  # fmt: skip


@pytest.mark.parametrize("pair", APART, ids=lambda pair: " and ".join(repr(k[-8:]) for k in pair))
def test_two_keys_that_look_alike_are_two(counter: Counter, pair: tuple[bytes, bytes]) -> None:
    one, other = pair
    assert counter.add(one, 3) == 3
    assert counter.try_add(other, 5).value == 5
    assert counter.add_many([one, other], [10, 20]) == [13, 25]
    assert counter.get_many([other, one]) == [25, 13]
    assert (counter.ttl(one) is None) == (counter.ttl(other) is None)
    assert counter.reset(one) == 13
    assert (counter.get(one), counter.get(other)) == (0, 25)


BAD_KEYS = {
    "empty-str": ("", "empty"), "empty": (b"", "empty"), "1001": (b"x" * 1001, "1001"),
    "1002": ("\u00e9" * 501, "1002"), "1001-nul": (b"\0" * 1001, "1001"),
    "mebibyte": ("x" * 2**20, "1048576"), "mebibyte-ff": (b"\xff" * 2**20, "1048576"),
    "d800": ("\ud800", "surrogate"), "dcff": ("a\udcff", "surrogate"),
}  # fmt: skip


@pytest.mark.parametrize(("key", "says"), BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_key_that_is_none_is_refused(counter: Counter, key: str | bytes, says: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: counter.add(key),
        lambda: counter.try_add(key),
        lambda: counter.get(key),
        lambda: counter.reset(key),
        lambda: counter.ttl(key),
    ]
    for call in calls:
        with pytest.raises(hotcount.ConfigError, match=f"key.*{says}") as caught:
            call()
        # A byte that is not printed as itself takes four characters.
        assert len(str(caught.value)) < (300 if key[:1] == "x" else 500)
    for many in (counter.add_many, counter.get_many):
        result = many(["good", key], errors="return")
        assert result.errors.keys() == {1}
        assert isinstance(result.errors[1], hotcount.ConfigError)
        # Also where no element is good, and where the binding refuses one before the core does.
        for bad in ([key], [key, "", "\ud800"]):
            result = many(bad, errors="return")
            assert result == [0] * len(bad)
            assert list(result.errors) == list(range(len(bad)))
            with pytest.raises(hotcount.BatchError):
                many(bad)
    assert counter.get("good") == 1


# sliding_log's state is a list; over Redis gcra's is text, which is no number.
@pytest.mark.parametrize("algorithm", ["sliding_log", "gcra"])
def test_a_key_that_holds_something_else_is_a_wrong_type_error_by_every_call(
    counter_store: Store, algorithm: Literal["sliding_log", "gcra"]
) -> None:
    limiter = hotcount.Limiter(counter_store, "5/day", algorithm=algorithm)
    limiter.hit("k")
    prefix = f"limit:default:{algorithm}:5/day"
    for ttl in (None, 60):
        counter = Counter(counter_store, prefix=prefix, ttl=ttl)
        calls: list[Callable[[], object]] = [
            partial(counter.add, "k"),
            partial(counter.add, "k", 0),
            partial(counter.try_add, "k"),
            partial(counter.try_add, "k", max=5),
            partial(counter.get, "k"),
            partial(counter.reset, "k"),
        ]
        for call in calls:
            with pytest.raises(hotcount.WrongTypeError, match="k") as caught:
                call()
            assert str(caught.value.server) not in str(caught.value)
        for many in (counter.add_many, counter.get_many):
            result = many(["before", "k", "after"], errors="return")
            assert result.errors.keys() == {1}
            assert isinstance(result.errors[1], hotcount.WrongTypeError)
            assert result[0] == result[2] > 0
        # ttl() takes a key of any type.
        assert counter.ttl("k") is not None
    assert limiter.peek("k").remaining == 4
