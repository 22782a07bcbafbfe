"""What upsert_many takes, answers and refuses on every store."""

import pickle
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import hotcount
import numpy as np
import pytest
from hotcount import LiveSets, Upsert

from tests.support.stores import Store


@pytest.mark.parametrize("method", ["script", "ttl_gate"])
@pytest.mark.parametrize("batch", [1, 7, 250, 300])
def test_a_batch_of_any_size_is_in_order(counter_store: Store, method: Any, batch: int) -> None:
    sets = LiveSets(counter_store, method=method)
    keys = [f"k{number}" for number in range(50)]
    for key in keys:
        sets.create(key, 60, {"first": -1})
    rows = [(keys[i % 50], "same", float(i)) for i in range(500)]
    assert sets.upsert_many(rows, batch=batch) == [Upsert.APPLIED] * 500
    assert [sets.top(key, 1) for key in keys] == [[("same", 450.0 + i)] for i in range(50)]


def test_rows_and_columns_do_the_same(sets: LiveSets) -> None:
    sets.create("k", 60, {"first": 0})
    rows: list[Any] = [("k", "a", 1), ["k", b"b", 2.0], ("none", "c", 3)]
    by_rows = sets.upsert_many(rows)
    by_columns = sets.upsert_many(
        keys=["k", "k", "none"], members=["a", b"b", "c"], scores=np.array([1.0, 2.0, 3.0])
    )
    assert by_rows == by_columns == [Upsert.APPLIED, Upsert.APPLIED, Upsert.ABSENT]
    assert sets.upsert_many([]) == []


def test_columns_are_arrays_without_a_copy(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 0})
    result = sets.upsert_many([("k", "a", 1), ("none", "a", 1), ("k", "b", 1)])
    status, applied = np.asarray(result.status), np.asarray(result.applied)
    assert status.dtype == np.int8
    assert applied.dtype == np.bool_
    assert (status == Upsert.APPLIED).tolist() == applied.tolist() == [True, False, True]
    assert np.shares_memory(status, np.asarray(result.status))
    assert np.asarray(result[::-1].status).tolist() == status.tolist()[::-1]


def test_a_batch_is_an_immutable_sequence_that_pickles(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 0})
    result = sets.upsert_many([("k", "a", 1), ("", "a", 1)], errors="return")
    assert isinstance(result, Sequence)
    assert list(result) == [Upsert.APPLIED, Upsert.FAILED]
    copy = pickle.loads(pickle.dumps(result))
    assert copy == result
    assert type(copy.errors[1]) is hotcount.ConfigError
    assert repr(result).startswith("Upserts([")


def test_a_bad_element_is_reported_and_the_others_are_done(sets: LiveSets) -> None:
    sets.create("k", 60, {"a": 0})
    rows = [("", "a", 1), ("k", "", 1), ("k", "x" * 1001, 1), ("k", "\ud800", 1), ("k", "b", 1)]
    result = sets.upsert_many(rows, errors="return")
    assert result.errors.keys() == {0, 1, 2, 3}
    assert all(type(error) is hotcount.ConfigError for error in result.errors.values())
    assert result[4] is Upsert.APPLIED


@pytest.mark.parametrize("bad", [float("nan"), np.float32("nan"), 10**400])
def test_a_score_that_is_no_number_names_its_index(sets: LiveSets, bad: float) -> None:
    sets.create("k", 60, {"a": 0})
    with pytest.raises(hotcount.ConfigError, match=r"score of items\[1\]"):
        sets.upsert_many([("k", "b", 1), ("k", "c", bad)])
    with pytest.raises(hotcount.ConfigError, match=r"scores\[1\]"):
        sets.upsert_many(keys=["k", "k"], members=["b", "c"], scores=[1, bad])
    with pytest.raises(hotcount.ConfigError, match=r"score"):
        sets.upsert("k", "b", bad)
    with pytest.raises(hotcount.ConfigError, match=r"score of members\[0\]"):
        sets.create("k", 60, {"b": bad})
    assert sets.top("k", 10) == [("a", 0.0)]


@pytest.mark.parametrize("bad", ["1", None, True, np.bool_(True), Decimal(1), 1j, np.array(1.0)])
def test_a_score_of_a_wrong_type_names_its_index(sets: LiveSets, bad: Any) -> None:
    sets.create("k", 60, {"a": 0})
    with pytest.raises(TypeError, match=rf"score of items\[1\].*{type(bad).__name__}"):
        sets.upsert_many([("k", "b", 1), ("k", "c", bad)])
    with pytest.raises(TypeError, match=f"score must be.*{type(bad).__name__}"):
        sets.upsert("k", "b", bad)
    assert sets.top("k", 10) == [("a", 0.0)]


def test_infinite_scores_are_scores_as_in_redis(sets: LiveSets) -> None:
    inf = float("inf")
    sets.create("k", 60, {"low": -inf, "a": 0})
    assert sets.upsert("k", "high", inf) is Upsert.APPLIED
    assert sets.upsert("k", "b", np.float64("-inf"), version=1) is Upsert.APPLIED
    assert sets.top("k", 9) == [("high", inf), ("a", 0.0), ("low", -inf), ("b", -inf)]


@pytest.mark.parametrize(
    ("score", "value"),
    [
        (np.float32(0.5), 0.5),
        (np.float16(-2), -2.0),
        (np.int8(-3), -3.0),
        (np.uint64(2**64 - 1), 2.0**64),
        (Fraction(1, 4), 0.25),
        (2**53 + 1, 2.0**53),
    ],
)
def test_any_real_number_is_a_score(sets: LiveSets, score: Any, value: float) -> None:
    sets.create("k", 60, {"a": score})
    assert sets.top("k", 1) == [("a", value)]
    sets.upsert_many(keys=["k"], members=["b"], scores=[score])
    assert dict(sets.top("k", 2))["b"] == value


@pytest.mark.parametrize("row", [("k", "a"), ("k", "a", 1, 2, 3), "kab", 5, None])
def test_a_row_of_a_wrong_shape_is_refused_with_its_index(sets: LiveSets, row: Any) -> None:
    sets.create("k", 60, {"a": 0})
    with pytest.raises(TypeError, match=r"items\[1\]"):
        sets.upsert_many([("k", "b", 1), row])
    assert sets.rank("k", "b") is None


@pytest.mark.parametrize("bad", [1, None, bytearray(b"a"), ("a",)])
def test_a_key_or_member_of_a_wrong_type_is_named(sets: LiveSets, bad: Any) -> None:
    with pytest.raises(TypeError, match=r"key of items\[0\]"):
        sets.upsert_many([(bad, "a", 1)])
    with pytest.raises(TypeError, match=r"members\[1\]"):
        sets.upsert_many(keys=["k", "k"], members=["a", bad], scores=[1, 1])
    with pytest.raises(TypeError, match="key must be"):
        sets.upsert(bad, "a", 1)
    with pytest.raises(TypeError, match="member must be"):
        sets.upsert("k", bad, 1)


def test_columns_that_do_not_fit_are_refused(sets: LiveSets) -> None:
    with pytest.raises(hotcount.ConfigError, match="scores has 1 elements for a batch of 2"):
        sets.upsert_many(keys=["a", "b"], members=["a", "b"], scores=[1])
    with pytest.raises(TypeError, match="scores is missing"):
        sets.upsert_many(keys=["a"], members=["a"])
    with pytest.raises(TypeError, match="not both"):
        sets.upsert_many([("k", "a", 1)], keys=["k"])
    with pytest.raises(TypeError, match="keys is missing"):
        sets.upsert_many()


@pytest.mark.parametrize("batch", [0, 301])
def test_a_batch_size_out_of_range_is_refused(sets: LiveSets, batch: int) -> None:
    with pytest.raises(hotcount.ConfigError, match="batch"):
        sets.upsert_many([("k", "a", 1)], batch=batch)
