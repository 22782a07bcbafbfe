"""What calls answer: dataclasses that compare, hash, print, copy, pickle and match by value."""

from __future__ import annotations

import copy
import dataclasses
import json
import operator
import pickle
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest import mock

import hotcount
import numpy as np
import pytest

RESULTS: list[Any] = [
    value for name in hotcount.__all__ if dataclasses.is_dataclass(value := getattr(hotcount, name))
]


def some(hint: Any) -> Any:
    """A value of a field's type."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return some(typing.get_args(hint)[0])
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple:
        return (some(typing.get_args(hint)[0]),)
    if dataclasses.is_dataclass(hint):
        return example(hint)
    return {bool: True, int: 3, float: 1.5, str: "text"}[hint]


def example(cls: Any) -> Any:
    hints = typing.get_type_hints(cls)
    return cls(*(some(hints[field.name]) for field in dataclasses.fields(cls)))


EXAMPLES = [pytest.param(example(cls), id=cls.__name__) for cls in RESULTS]


def test_every_result_class_is_among_those_tested_here() -> None:
    named = {cls.__name__ for cls in RESULTS}
    assert named >= {"Cast", "Count", "Decision", "Drift", "FlushReport", "Contract", "SyncRound"}
    assert named >= {"Rate", "SweepReport", "TryAdd"}


@pytest.mark.parametrize("value", EXAMPLES)
def test_a_result_is_taken_apart_and_made_again(value: Any) -> None:
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    assert list(fields) == list(type(value).__match_args__)
    assert type(value)(**fields) == value
    assert type(value)(*fields.values()) == value
    apart = dataclasses.asdict(value)
    lists = {name: list(v) if isinstance(v, tuple) else v for name, v in apart.items()}
    assert json.loads(json.dumps(apart)) == lists
    assert (
        repr(value)
        == f"{type(value).__name__}({', '.join(f'{k}={v!r}' for k, v in fields.items())})"
    )


@pytest.mark.parametrize("value", EXAMPLES)
def test_a_result_survives_copies_and_pickle(value: Any) -> None:
    others = [pickle.loads(pickle.dumps(value, version)) for version in range(2, 6)]
    others += [copy.copy(value), copy.deepcopy(value), dataclasses.replace(value)]
    for other in others:
        assert other == value
        assert hash(other) == hash(value)
        assert repr(other) == repr(value)
        assert type(other) is type(value)


@pytest.mark.parametrize("value", EXAMPLES)
def test_a_result_cannot_be_changed(value: Any) -> None:
    assert not hasattr(value, "__dict__")
    for name in (*dataclasses.asdict(value), "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(value, name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(value, name)


@pytest.mark.parametrize("cls", RESULTS)
def test_a_field_that_differs_makes_another_value(cls: Any) -> None:
    value = example(cls)
    assert value != object()
    for field in dataclasses.fields(cls):
        was = getattr(value, field.name)
        if isinstance(was, hotcount.Count):
            now: Any = dataclasses.replace(was, value=was.value * 2)
        else:
            now = (not was) if isinstance(was, bool) else was * 2
        other = dataclasses.replace(value, **{field.name: now})
        # A Count is its value, whatever else it says.
        assert (other == value) == (cls is hotcount.Count and field.name != "value")
        assert getattr(other, field.name) == now


def answers() -> list[Any]:
    limiter = hotcount.Limiter("memory://", "2/minute", name="api")
    votes = hotcount.Votes("sqlite:///:memory:", "memory://", "cached", missing_items="create")
    votes.create_tables()
    plain = hotcount.Votes("sqlite:///:memory:", user_type=str)
    plain.create_tables()
    plain.add_items([7])
    return [
        limiter.hit("k"),
        limiter.hit("k", 3),
        limiter.rate,
        hotcount.Counter("memory://").try_add("k", 3, max=2),
        votes.cast(7, 1),
        votes.cast_many([7, 7], [1, 2])[1],
        votes.count(7),
        votes.count(7, consistency="exact"),
        votes.sync_worker().run_once(),
        votes.contract(),
        plain.cast(7, "anna", -(2**31) + 1),
        plain.count_many([7])[0],
        plain.flush(),
    ]


def test_what_a_call_answers_is_what_python_makes_of_its_fields() -> None:
    for value in answers():
        hints = typing.get_type_hints(type(value))
        fields = dataclasses.asdict(value)
        for name, field in fields.items():
            hint = hints[name]
            if typing.get_origin(hint) is tuple:
                assert type(field) is tuple, name
            elif typing.get_origin(hint) is not None:
                assert type(field) in typing.get_args(hint), name
            else:
                assert type(field) is hint, name
        assert type(value)(**fields) == value
        assert pickle.loads(pickle.dumps(value)) == value


def count(value: int, **other: Any) -> hotcount.Count:
    return hotcount.Count(
        **{"value": value, "exact": True, "as_of": 1.5, "source": "sql", "pending": 0, **other}
    )


@pytest.mark.parametrize(
    "same", [100, 100.0, Decimal(100), Fraction(100), np.int64(100), np.float64(100), 100 + 0j]
)
def test_a_count_equals_and_hashes_as_a_number(same: Any) -> None:
    assert count(100) == same
    assert same == count(100)
    assert (count(100) != same) is False
    assert count(101) != same
    assert same != count(101)
    assert hash(count(100)) == hash(same)
    assert {same: "here"}[count(100)] == "here"
    assert count(100) in {same}


def test_counts_are_equal_where_their_values_are() -> None:
    assert count(100) == count(100, as_of=9.5, exact=False, source="cache", pending=3)
    assert len({count(100), count(100, as_of=9.5), 100, count(1)}) == 2
    assert count(100) != count(99)


def test_a_count_equals_nothing_else() -> None:
    for other in ("100", None, [100], (100,), object()):
        assert count(100) != other
        assert (count(100) == other) is False
    assert count(100) == mock.ANY


ORDERS = [operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("other", [99, 100, 101, 99.5, 100.5, Decimal(100), float("inf")])
def test_a_count_orders_as_its_value(order: Callable[[Any, Any], bool], other: Any) -> None:
    assert order(count(100), other) == order(100, other)
    assert order(other, count(100)) == order(other, 100)
    if isinstance(other, int):
        assert order(count(100), count(other, as_of=0.5)) == order(100, other)


@pytest.mark.parametrize("order", ORDERS)
def test_a_count_has_no_order_with_what_is_no_number(order: Callable[[Any, Any], bool]) -> None:
    with pytest.raises(TypeError, match="not supported between"):
        order(count(100), "100")


def test_counts_are_sorted_and_added_up_among_numbers() -> None:
    mixed: list[Any] = [count(3), 1, 2.5, count(-4), count(2)]
    assert sorted(mixed) == [-4, 1, 2, 2.5, 3]
    assert (min(mixed), max(mixed)) == (-4, 3)
    assert sum([count(2), count(3)]) == 5
    assert type(sum([count(2), count(3)])) is int
    assert sum([count(2), count(3)], start=0.5) == 5.5
    assert (count(2) + 1, 1 + count(2), count(2) + count(3)) == (3, 3, 5)
    assert (count(2) - 1, 1 - count(2), count(2) - count(3)) == (1, -1, -1)
    assert np.array([1, 2])[count(1)] == 2
    assert list(np.array([1, 100]) == count(100)) == [False, True]


def test_a_count_stands_where_an_int_or_a_float_is_asked_for() -> None:
    assert operator.index(count(3)) == int(count(3)) == 3
    assert float(count(3)) == 3.0
    assert "abcd"[count(3)] == "d"
    assert list(range(count(3))) == [0, 1, 2]
    assert hex(count(255)) == "0xff"
    assert count(3)
    assert not count(0)


@pytest.mark.parametrize("spec", ["", "d", ",", ">12", "+.2f", "08x", "e", "%"])
def test_a_count_formats_as_its_value(spec: str) -> None:
    assert format(count(1234), spec) == format(1234, spec)
    assert f"{count(1234):{spec}}" == f"{1234:{spec}}"
    assert (str(count(7)), f"{count(7)}", "%d" % count(7)) == ("7", "7", "7")  # noqa: UP031
    assert repr(count(7)).startswith("Count(value=7, exact=True")
    with pytest.raises(ValueError, match="format"):
        format(count(7), "wrong")
