"""What a PeriodCounter promises on every store."""

import time
from datetime import date, datetime, timedelta, timezone, tzinfo
from itertools import chain, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import hotcount
import pytest
from hotcount import PeriodCounter

from tests.support.stores import Store
from tests.support.together import THREADS, together

Period = Any  # One of PeriodCounter's; mypy would want the Literal spelled out again.

UTC = timezone.utc
BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
PERIODS = ["second", "minute", "hour", "day", "week", "month"]

INT64_MAX = 2**63 - 1


def next_year(month: int, day: int, hour: int = 0, tz: tzinfo = UTC) -> datetime:
    """A time next year: no period that contains it has expired."""
    return datetime(date.today().year + 1, month, day, hour, tzinfo=tz)


def change_of(zone: ZoneInfo, month: int) -> datetime:
    """The midnight before the zone changes its offset in that month of next year."""
    day = next_year(month, 1, tz=zone)
    while (day + DAY).utcoffset() == day.utcoffset():
        day += DAY
    return day


@pytest.mark.parametrize("period", PERIODS)
def test_add_returns_the_value_of_its_period(counter_store: Store, period: Period) -> None:
    counter = PeriodCounter(counter_store, period=period)
    at = next_year(3, 14, 15)
    values = [counter.add("k", at=at), counter.add("k", 4, at), counter.add("k", n=-2, at=at)]
    assert values == [1, 5, 3]
    assert counter.get("k", at) == counter.get("k", at=at) == 3


def test_without_at_the_present_period_counts(counter_store: Store) -> None:
    # A month's end may come in between, but not two.
    counter = PeriodCounter(counter_store, "month", keep=3)
    start = datetime.now(UTC)
    assert counter.add("k", 5) == 5
    counter.add("k", 2)
    end = datetime.now(UTC) + timedelta(seconds=1)
    assert sum(count for _, count in counter.series("k", start, end)) == 7
    assert counter.get("k") == counter.get("k", datetime.now(UTC))


@pytest.mark.parametrize("period", PERIODS)
def test_the_last_instant_of_a_period_is_in_it(counter_store: Store, period: Period) -> None:
    counter = PeriodCounter(counter_store, period)
    start = next_year(1, 31)
    (begins, _) = counter.series("k", start, start + timedelta(seconds=1))[0]
    if period == "month":
        ends = next_year(2, 1)
    else:
        seconds = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
        ends = begins + timedelta(seconds=seconds[period])
    last = ends - timedelta(microseconds=1)
    counter.add("k", 3, begins)
    assert counter.add("k", 4, last) == 7
    assert counter.get("k", ends) == 0
    assert counter.get("k", begins - timedelta(microseconds=1)) == 0


def test_at_may_be_in_any_zone(counter_store: Store) -> None:
    counter = PeriodCounter(counter_store, tz="Europe/Berlin")
    at = next_year(7, 1, 23, UTC)  # The next day in Berlin.
    counter.add("k", 5, at)
    for zone in (BERLIN, ZoneInfo("Asia/Kolkata"), timezone(timedelta(hours=-9, minutes=-30))):
        assert counter.get("k", at.astimezone(zone)) == 5
    assert counter.get("k", at - 24 * HOUR) == 0
    day = next_year(7, 2, 0, BERLIN)
    assert counter.series("k", day, day + DAY) == [(day, 5)]


def test_every_thread_gets_a_value_of_its_own_and_none_is_lost(counter_store: Store) -> None:
    counter = PeriodCounter(counter_store, tz="Europe/Berlin")
    at = next_year(5, 5)
    answers = together(lambda _: [counter.add("hot", at=at) for _ in range(50)])
    assert sorted(chain.from_iterable(answers)) == list(range(1, THREADS * 50 + 1))


def test_threads_in_the_present_lose_nothing(counter_store: Store) -> None:
    counter = PeriodCounter(counter_store, "second", keep=1000)
    start = datetime.now(UTC) - timedelta(seconds=2)
    together(lambda _: [counter.add("hot") for _ in range(50)])
    series = counter.series("hot", start, datetime.now(UTC) + timedelta(seconds=2))
    assert sum(count for _, count in series) == THREADS * 50


def test_keys_periods_zones_and_prefixes_are_counted_apart(counter_store: Store) -> None:
    at = next_year(6, 1)  # It begins a second, a minute, an hour, a day and a month.
    options: list[dict[str, Any]] = [
        *({"period": period} for period in PERIODS),
        *({"tz": tz} for tz in ("Europe/London", "Etc/UTC", "Etc/GMT+0")),
        *({"prefix": prefix} for prefix in ("other", b"\xff")),
    ]
    counters = [PeriodCounter(counter_store, **each) for each in options]
    keys: list[str | bytes] = ["k", "K", f"{at:%Y-%m-%d}:k", ":k", "UTC:k"]
    keys += ["caf\u00e9", "cafe\u0301", b"\0", b"\xff"]
    for number, counter in enumerate(counters):
        for index, key in enumerate(keys):
            counter.add(key, 100 * number + index + 1, at)
    for number, counter in enumerate(counters):
        for index, key in enumerate(keys):
            assert counter.get(key, at) == 100 * number + index + 1


def test_an_empty_prefix_leaves_no_colon_before_the_period(counter_store: Store) -> None:
    at = next_year(6, 1)
    PeriodCounter(counter_store, prefix="").add("k", 3, at)
    assert hotcount.Counter(counter_store, prefix="").get(f"day:UTC:{at:%Y-%m-%d}:k") == 3


def test_the_key_in_the_store_is_the_documented_one(counter_store: Store) -> None:
    at = datetime(date.today().year + 1, 11, 21, 17, 45, 59, tzinfo=UTC)
    year = at.year
    monday = (at - at.weekday() * DAY).strftime("%Y-%m-%d")
    for period, tz, label in (
        ("second", "UTC", f"{year}-11-21T174559Z"),
        ("minute", "UTC", f"{year}-11-21T174500Z"),
        ("hour", "UTC", f"{year}-11-21T170000Z"),
        ("hour", "Asia/Kolkata", f"{year}-11-21T173000Z"),
        ("day", "UTC", f"{year}-11-21"),
        ("day", "Asia/Tokyo", f"{year}-11-22"),
        ("week", "UTC", monday),
        ("month", "America/New_York", f"{year}-11"),
    ):
        counter = PeriodCounter(counter_store, period, tz)  # type: ignore[arg-type]
        counter.add("home", 7, at)
        plain = hotcount.Counter(counter_store, prefix=f"period:{period}:{tz}:{label}")
        assert plain.get("home") == 7
        assert (plain.ttl("home") or 0) > 0


@pytest.mark.parametrize("tz", ["Europe/Berlin", "America/New_York", "Australia/Sydney"])
@pytest.mark.parametrize("month", [3, 4, 10, 11])
def test_a_day_has_the_hours_of_its_zone(counter_store: Store, tz: str, month: int) -> None:
    zone = ZoneInfo(tz)
    hourly = PeriodCounter(counter_store, "hour", tz)
    daily = PeriodCounter(counter_store, "day", tz)
    day = next_year(month, 1, tz=zone)
    lengths = set()
    while day.month == month:
        tomorrow = day + DAY
        hours = hourly.series("k", day, tomorrow)
        expected = tomorrow.astimezone(UTC) - day.astimezone(UTC)
        assert len(hours) * HOUR == expected
        assert hours[0][0] == day
        assert len(daily.series("k", day, tomorrow)) == 1
        lengths.add(len(hours))
        day = tomorrow
    assert lengths <= {23, 24, 25}
    assert 24 in lengths


def test_the_hour_that_the_clock_reads_twice_is_two(counter_store: Store) -> None:
    hourly = PeriodCounter(counter_store, "hour", "Europe/Berlin")
    day = change_of(BERLIN, 10)
    twice = day.replace(hour=2, minute=30)
    hourly.add("k", 1, twice)
    hourly.add("k", 10, twice.replace(fold=1))
    series = hourly.series("k", day, day + DAY)
    assert len(series) == 25
    assert [(at.hour, at.fold, count) for at, count in series if count] == [(2, 0, 1), (2, 1, 10)]
    assert all(at.tzinfo is BERLIN for at, _ in series)
    daily = PeriodCounter(counter_store, "day", "Europe/Berlin")
    daily.add("k", 1, twice)
    assert daily.add("k", 10, twice.replace(fold=1)) == 11


def test_midnights_and_dates_that_a_zone_left_out(counter_store: Store) -> None:
    zone = ZoneInfo("America/Havana")
    daily = PeriodCounter(counter_store, "day", "America/Havana", keep=20_000)
    series = daily.series(
        "k", datetime(2024, 3, 9, 12, tzinfo=zone), datetime(2024, 3, 11, tzinfo=zone)
    )
    assert [f"{at:%m-%d %H}" for at, _ in series] == ["03-09 00", "03-10 01"]
    zone = ZoneInfo("Pacific/Apia")
    daily = PeriodCounter(counter_store, "day", "Pacific/Apia")
    start, end = datetime(2011, 12, 29, tzinfo=zone), datetime(2012, 1, 1, tzinfo=zone)
    assert [at.day for at, _ in daily.series("k", start, end)] == [29, 31]


def test_months_have_their_own_lengths_and_weeks_begin_on_monday(counter_store: Store) -> None:
    monthly = PeriodCounter(counter_store, "month")
    start = datetime(2027, 1, 31, 23, 59, 59, tzinfo=UTC)
    months = [at for at, _ in monthly.series("k", start, datetime(2028, 3, 1, tzinfo=UTC))]
    assert months == [
        *(datetime(2027, month, 1, tzinfo=UTC) for month in range(1, 13)),
        datetime(2028, 1, 1, tzinfo=UTC),
        datetime(2028, 2, 1, tzinfo=UTC),
    ]
    weekly = PeriodCounter(counter_store, "week", "Europe/Berlin")
    weeks = [at for at, _ in weekly.series("k", months[0], months[-1])]
    assert {at.weekday() for at in weeks} == {0}
    assert weeks[0].date() == date(2026, 12, 28)
    assert {(b.date() - a.date()) for a, b in pairwise(weeks)} == {timedelta(days=7)}


def test_a_series_has_every_period_and_zero_where_nothing_was_added(daily: PeriodCounter) -> None:
    start = next_year(2, 26)
    for day, n in ((0, 3), (2, -4), (3, INT64_MAX)):
        daily.add("k", n, start + day * DAY)
    series = daily.series("k", start, start + 5 * DAY)
    assert series == [(start + day * DAY, n) for day, n in enumerate([3, 0, -4, INT64_MAX, 0])]
    assert all(type(at) is datetime and at.utcoffset() == timedelta(0) for at, _ in series)


def test_a_series_begins_with_the_period_of_start_and_ends_before_end(daily: PeriodCounter) -> None:
    day = next_year(2, 1)
    starts = [at for at, _ in daily.series("k", day + 23 * HOUR, day + 25 * HOUR)]
    assert starts == [day, day + DAY]
    assert [at for at, _ in daily.series("k", day, day + DAY)] == [day]
    assert daily.series("k", day, day) == []
    assert daily.series("k", start=day, end=day + DAY, timeout=5) == [(day, 0)]
    day = next_year(3, 1)
    assert daily.add("k", at=day) == 1
    assert daily.series("k", day, day + timedelta(microseconds=1)) == [(day, 1)]
    assert daily.series("k", day - DAY, day) == [(day - DAY, 0)]


def test_a_series_is_read_in_one_round_trip(counter_store: Store) -> None:
    counter = PeriodCounter(counter_store, "hour")
    start = next_year(1, 1)
    counter.add("k", 1, start)
    before = counter_store.stats().get("sends", 0)
    assert len(counter.series("k", start, start + 100 * HOUR)) == 100
    # Memory sends nothing.
    assert counter_store.stats().get("sends", 0) - before <= 1


def test_a_series_that_is_no_stretch_of_time_is_refused(daily: PeriodCounter) -> None:
    start = next_year(1, 1)
    with pytest.raises(hotcount.ConfigError, match="end is before start"):
        daily.series("k", start, start - timedelta(seconds=1))
    with pytest.raises(hotcount.ConfigError, match="more than 100000 periods of one day"):
        daily.series("k", start, start.replace(year=9000))


def test_a_period_is_gone_when_so_many_have_begun_since(counter_store: Store) -> None:
    counter = PeriodCounter(counter_store, "second", keep=2)
    at = datetime.now(UTC) + timedelta(seconds=2)
    begins = at.replace(microsecond=0)
    assert counter.add("k", 5, at) == 5
    plain = hotcount.Counter(counter_store, prefix=f"period:second:UTC:{at:%Y-%m-%dT%H%M%SZ}")
    gone = begins + timedelta(seconds=2)
    while True:
        looked = datetime.now(UTC)
        left = plain.ttl("k")
        if left is None:
            break
        # Never after `gone`; a TTL of less than a millisecond reads as one.
        assert left <= (gone - looked).total_seconds() + 0.002
        time.sleep(0.05)
    assert datetime.now(UTC) >= gone - timedelta(milliseconds=2)
    assert counter.get("k", at) == 0
    with pytest.raises(hotcount.ConfigError, match="not kept any more"):
        counter.add("k", 1, at)
    assert counter.get("k", at) == 0


@pytest.mark.parametrize(
    ("period", "length"), [("minute", 60), ("hour", 3600), ("day", 86400), ("week", 7 * 86400)]
)
def test_no_number_is_without_its_expiry(counter_store: Store, period: Period, length: int) -> None:
    counter = PeriodCounter(counter_store, period, keep=3)
    at = datetime.now(UTC)
    (begins, _) = counter.series("k", at, at + timedelta(seconds=1))[0]
    counter.add("k", 1, at)
    fmt = "%Y-%m-%dT%H%M%SZ" if length < 86400 else "%Y-%m-%d"
    plain = hotcount.Counter(counter_store, prefix=f"period:{period}:UTC:{begins.strftime(fmt)}")
    gone = begins + timedelta(seconds=3 * length)
    left = plain.ttl("k") or 0
    assert abs(left - (gone - datetime.now(UTC)).total_seconds()) < 5
    # Later adds leave it where it is.
    counter.add("k", 1, at)
    assert left - 5 < (plain.ttl("k") or 0) <= left


def test_an_add_to_what_is_not_kept_is_refused_and_nothing_is_added(counter_store: Store) -> None:
    counter = PeriodCounter(counter_store, "day", keep=10)
    now = datetime.now(UTC)
    # A midnight may pass in between.
    assert counter.add("k", 1, now - 8 * DAY) == 1
    for old in (now - 10 * DAY, now - 4000 * DAY, datetime(2, 1, 1, tzinfo=UTC)):
        with pytest.raises(hotcount.ConfigError, match=r"at is in the day .* not kept any more"):
            counter.add("k", 1, old)
        assert counter.get("k", old) == 0
    assert sum(count for _, count in counter.series("k", now - 30 * DAY, now + DAY)) == 1


def test_an_add_more_than_a_hundred_years_ahead_is_refused(daily: PeriodCounter) -> None:
    now = datetime.now(UTC)
    assert daily.add("k", 1, now + 36_524 * DAY) == 1
    for far in (now + 36_530 * DAY, datetime(9799, 12, 31, tzinfo=UTC)):
        with pytest.raises(hotcount.ConfigError, match=r"at is in the day .*100 years ahead"):
            daily.add("k", 1, far)
        assert daily.get("k", far) == 0


def test_the_longest_keep_of_those_that_add_wins(counter_store: Store) -> None:
    at = next_year(4, 1)
    plain = hotcount.Counter(counter_store, prefix=f"period:day:UTC:{at:%Y-%m-%d}")
    lives = []
    for keep in (5, 50, 2):
        PeriodCounter(counter_store, keep=keep).add("k", 1, at)
        lives.append(plain.ttl("k") or 0)
    first, second, third = lives
    assert abs(second - first - 45 * 86400) < 5
    assert second - 5 < third <= second
