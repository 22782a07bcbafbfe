"""Bad input to a PeriodCounter: on every store the same typed error, or the same value."""

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import hotcount
import numpy as np
import pytest
from hotcount import PeriodCounter

from tests.support.stores import Store

INT64_MAX = 2**63 - 1
DAY = timedelta(days=1)
NAIVE = datetime(2026, 1, 1)
AWARE = NAIVE.replace(tzinfo=timezone.utc)
# Kept, whenever this runs.
AT = AWARE.replace(year=date.today().year + 1)


class NoOffset(tzinfo):
    """A zone that does not know its offset: a datetime with it is naive."""

    def utcoffset(self, at: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


# Calls that take a time, by the argument that names it.
TIMED: list[tuple[str, Callable[[PeriodCounter, Any], object]]] = [
    ("at", lambda daily, at: daily.add("k", 1, at)),
    ("at", lambda daily, at: daily.get("k", at)),
    ("start", lambda daily, at: daily.series("k", at, AWARE)),
    ("end", lambda daily, at: daily.series("k", AWARE, at)),
]


NO_DATETIMES = [0, 1.5, "2026-01-01", b"x", date(2026, 1, 1), True, np.datetime64("2026-01-01")]


@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        (NAIVE, hotcount.ConfigError, "is a naive datetime"),
        (NAIVE.replace(tzinfo=NoOffset()), hotcount.ConfigError, "is a naive datetime"),
        *((bad, TypeError, "must be datetime.datetime.*not ") for bad in NO_DATETIMES),
        *(
            (year.replace(tzinfo=timezone.utc), hotcount.ConfigError, "is outside of the years")
            for year in (datetime.min, datetime.max)
        ),
    ],
)
def test_a_value_that_is_no_time_is_refused_by_the_name_of_its_argument(
    daily: PeriodCounter, bad: Any, error: type[Exception], says: str
) -> None:
    for name, call in TIMED:
        with pytest.raises(error, match=f"^{name} {says}"):
            call(daily, bad)


@pytest.mark.parametrize(
    "bad", ["Mars/Olympus", "", "../etc/passwd", "/etc/passwd", "a\0b", "Europe"]
)
def test_an_unknown_zone_is_refused_by_name(counter_store: Store, bad: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=r"^tz is ") as refused:
        PeriodCounter(counter_store, tz=bad)
    assert (refused.value.option, refused.value.value or "") == ("tz", bad)


@pytest.mark.parametrize("bad", [0, -1, 36_526, 2**63, -(2**63)])
def test_a_keep_out_of_range_is_refused_by_name(counter_store: Store, bad: int) -> None:
    with pytest.raises(hotcount.ConfigError, match=r"^keep "):
        PeriodCounter(counter_store, keep=bad)


def test_options_of_another_type_are_refused_by_name(counter_store: Store) -> None:
    make: Any = PeriodCounter
    with pytest.raises(hotcount.ConfigError, match=r"period is 'year'.*'month'"):
        make(counter_store, "year")
    options: tuple[tuple[str, Any], ...] = (
        ("period", 5),
        ("tz", None),
        ("tz", ZoneInfo("Europe/Berlin")),
        ("tz", b"UTC"),
        ("keep", 1.5),
    )
    for name, bad in options:
        with pytest.raises(TypeError, match=f"^{name} must be"):
            make(counter_store, **{name: bad})
    for bad in (True, Decimal(5), "5"):
        with pytest.raises(TypeError, match=r"^keep must be int"):
            make(counter_store, keep=bad)
    with pytest.raises(TypeError, match=r"^prefix must be"):
        make(counter_store, prefix=5)


def test_numbers_are_exact_to_the_bounds_of_64_bits(daily: PeriodCounter) -> None:
    assert daily.add("big", 2**53 + 1, AT) == 2**53 + 1
    assert daily.add("big", 1, AT) == 2**53 + 2
    assert daily.add("most", INT64_MAX, AT) == INT64_MAX
    assert daily.add("least", -(2**63), AT) == -(2**63)
    assert daily.add("none", 0, AT) == 0
    three: Any = np.uint64(3)
    assert daily.add("numpy", three, AT) == 3
    for key, n in (("most", 1), ("least", -1), ("big", 2**63), ("big", -(2**63) - 1)):
        before = daily.get(key, AT)
        with pytest.raises(hotcount.CounterOverflowError) as caught:
            daily.add(key, n, AT)
        # The message of every counter: a server's own would name a line of a script.
        says = "n does not fit" if abs(n) > 1 else f":{key} would leave signed 64 bits"
        assert says in str(caught.value)
        assert daily.get(key, AT) == before


def test_a_number_of_another_type_is_left_alone(counter_store: Store) -> None:
    limiter = hotcount.Limiter(counter_store, "5/day", algorithm="sliding_log")
    # The very key that the counter below takes holds a limiter's list of hits.
    key = f"k:day:UTC:{AT:%Y-%m-%d}:wrong"
    limiter.hit(key)
    counter = PeriodCounter(counter_store, prefix="limit:default:sliding_log:5/day:k")
    for call in (
        lambda: counter.add("wrong", 1, AT),
        lambda: counter.get("wrong", AT),
        lambda: counter.series("wrong", AT, AT + DAY),
    ):
        with pytest.raises(hotcount.WrongTypeError, match="wrong"):
            call()
    assert limiter.peek(key).remaining == 4
