"""A Counter, a PeriodCounter and a SlottedCounter refuse the same arguments, on every store."""

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import hotcount
import numpy as np
import pytest
from hotcount import Counter, PeriodCounter, SlottedCounter

from tests.conftest import COUNTER_BACKENDS, DATABASE_BACKENDS, open_database, open_store

# Every period is kept of next year.
AT = datetime(date.today().year + 1, 1, 1, tzinfo=timezone.utc)
# Each call that takes a key: with a counter, the key and options.
CALLS: dict[Any, tuple[Callable[..., object], ...]] = {
    Counter: (Counter.add, Counter.try_add, Counter.get, Counter.reset, Counter.ttl),
    PeriodCounter: (
        *(PeriodCounter.add, PeriodCounter.get),
        lambda counter, key, **options: counter.add(key, 1, AT, **options),
        lambda counter, key, **options: counter.get(key, AT, **options),
        lambda counter, key, **options: counter.series(key, AT, AT + timedelta(1), **options),
    ),
    SlottedCounter: (
        *(SlottedCounter.add, SlottedCounter.get, SlottedCounter.reset, SlottedCounter.compact),
    ),
}
KINDS = [
    pytest.param((kind, *backend.values), id=f"{kind.__name__}-{backend.id}", marks=backend.marks)
    for kind in CALLS
    for backend in (DATABASE_BACKENDS if kind is SlottedCounter else COUNTER_BACKENDS)
]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """Makes a counter of a kind on one store."""
    kind, backend = request.param
    opened: Any = open_database if kind is SlottedCounter else open_store
    with opened(request, backend) as store:
        if kind is SlottedCounter:
            SlottedCounter(store).create_table()
        yield lambda: kind(store)


@pytest.fixture
def counter(make: Callable[[], Any]) -> Any:
    return make()


@pytest.mark.parametrize(
    "bad", [1, 1.0, None, True, ["a"], ("a",), bytearray(b"a"), memoryview(b"a")]
)
def test_a_key_of_another_type_is_a_type_error_that_names_it(counter: Any, bad: Any) -> None:
    for call in CALLS[type(counter)]:
        with pytest.raises(TypeError, match=f"key must be str or bytes, not {type(bad).__name__}"):
            call(counter, bad)


def test_a_key_that_is_an_int_is_refused_with_how_to_write_it(counter: Any) -> None:
    limiter, sets = hotcount.Limiter("memory://", "1/s"), hotcount.LiveSets("memory://")
    calls: list[Any] = [
        lambda key: CALLS[type(counter)][0](counter, key),
        limiter.hit,
        lambda key: limiter.hit_many(["a", key]),
        lambda key: sets.rank(key, "a"),
    ]
    for each in calls:
        with pytest.raises(TypeError) as caught:
            each(7)
        assert str(caught.value).endswith(', not int: write str(key) or f"item:{key}"')


@pytest.mark.parametrize(
    ("key", "says"),
    [("", "empty"), ("x" * 1001, "1001"), ("x" * 2**20, "1048576"), ("\ud800", "surrogate")],
)
def test_a_key_of_a_wrong_length_or_no_text_is_refused(counter: Any, key: str, says: str) -> None:
    for call in CALLS[type(counter)]:
        with pytest.raises(hotcount.ConfigError, match=f"key.*{says}") as caught:
            call(counter, key)
        assert len(str(caught.value)) < 300
    counter.add("x" * 1000)
    assert counter.get("x" * 1000) == 1


def test_a_str_and_its_utf8_bytes_are_one_key(counter: Any) -> None:
    counter.add("größe")
    counter.add("größe".encode())
    assert counter.get("größe") == 2


@pytest.mark.parametrize(
    "bad", [1.0, "1", None, True, False, Decimal(1), np.float64(1), float("nan"), 1j]
)
def test_an_amount_of_another_type_is_a_type_error_that_names_it(counter: Any, bad: Any) -> None:
    for call in (counter.add, getattr(counter, "try_add", counter.add)):
        with pytest.raises(TypeError, match=f"n must be int, not .*{type(bad).__name__}"):
            call("k", bad)
    assert counter.get("k") == 0


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), 10**400])
def test_a_timeout_that_is_no_time_is_refused_by_name(counter: Any, bad: Any) -> None:
    for call in CALLS[type(counter)]:
        with pytest.raises(hotcount.ConfigError, match="timeout"):
            call(counter, "k", timeout=bad)
    assert counter.get("k", timeout=5) == 0
    counter.add("k", timeout=timedelta(seconds=5))
    assert counter.get("k") == 1


def test_a_closed_counter_is_refused_and_its_store_goes_on(make: Callable[[], Any]) -> None:
    with make() as counter:
        counter.add("k")
    for call in CALLS[type(counter)]:
        with pytest.raises(hotcount.ClosedError):
            call(counter, "k")
    assert counter.closed
    again = make()
    again.add("k")
    assert again.get("k") == 2
