"""series(tz=, period=): counts of short periods as the days of a viewer's time zone."""

from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import hotcount
import pytest
from hotcount import PeriodCounter, aio

from tests.support.stores import Store

UTC = timezone.utc
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
YEAR = date.today().year + 1
BERLIN, KOLKATA = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
NEW_YORK = ZoneInfo("America/New_York")


def change_of(zone: ZoneInfo, month: int) -> datetime:
    """Midnight at the start of the day on which the zone changes its offset, in that month."""
    day = datetime(YEAR, month, 1, tzinfo=zone)
    while (day + DAY).utcoffset() == day.utcoffset():
        day += DAY
    return day


def counted(store: Store, period: Any, start: datetime, hours: int, tz: str = "UTC") -> Any:
    """A counter with 1 in the first hour, 2 in the second and so on."""
    counter = PeriodCounter(store, period, tz)
    for hour in range(hours):
        counter.add("k", hour + 1, start.astimezone(UTC) + hour * HOUR)
    return counter


@pytest.mark.parametrize("zone", [NEW_YORK, BERLIN, ZoneInfo("Pacific/Kiritimati")], ids=str)
@pytest.mark.parametrize("own", ["UTC", "Europe/Berlin"])
def test_hours_are_days_of_the_viewer(counter_store: Store, zone: ZoneInfo, own: str) -> None:
    start = datetime(YEAR, 6, 10, tzinfo=zone)
    counter = counted(counter_store, "hour", start, 48, own)
    days = counter.series("k", start, start + 3 * DAY, tz=str(zone), period="day")
    assert days == [
        (start, sum(range(1, 25))),
        (start + DAY, sum(range(25, 49))),
        (start + 2 * DAY, 0),
    ]
    assert [str(day.tzinfo) for day, _ in days] == 3 * [str(zone)]
    # A start and an end within days select whole days.
    assert (
        counter.series("k", start + 5 * HOUR, start + DAY + HOUR, tz=str(zone), period="day")
        == (days[:2])
    )


@pytest.mark.parametrize(("month", "hours"), [(3, 23), (11, 25)])
def test_a_day_of_the_change_has_its_hours(counter_store: Store, month: int, hours: int) -> None:
    start = change_of(NEW_YORK, month)
    counter = counted(counter_store, "hour", start, hours + 1)
    days = counter.series("k", start, start + 2 * DAY, tz="America/New_York", period="day")
    assert days == [(start, sum(range(1, hours + 1))), (start + DAY, hours + 1)]
    shown = counter.series("k", start, start + DAY, tz="America/New_York")
    assert len(shown) == hours
    assert [count for _, count in shown] == list(range(1, hours + 1))


def test_without_a_period_times_are_in_the_viewers_zone(counter_store: Store) -> None:
    start = datetime(YEAR, 6, 10, 22, tzinfo=UTC)
    counter = counted(counter_store, "hour", start, 3)
    shown = counter.series("k", start, start + 3 * HOUR, tz="America/New_York")
    assert [(at.hour, at.utcoffset(), count) for at, count in shown] == [
        (18, -4 * HOUR, 1),
        (19, -4 * HOUR, 2),
        (20, -4 * HOUR, 3),
    ]
    # Without tz the series is in the counter's zone, with another period too.
    assert counter.series("k", start, start + HOUR, period="day") == [
        (datetime(YEAR, 6, 10, tzinfo=UTC), 3)
    ]


def test_weeks_and_months_are_the_viewers_too(counter_store: Store) -> None:
    first = datetime(YEAR, 6, 1, tzinfo=NEW_YORK)
    counter = counted(counter_store, "hour", first - HOUR, 2)
    months = counter.series("k", first - DAY, first + DAY, tz="America/New_York", period="month")
    assert months == [(datetime(YEAR, 5, 1, tzinfo=NEW_YORK), 1), (first, 2)]
    monday = first - first.weekday() * DAY
    assert counter.series("k", first, first + HOUR, tz="America/New_York", period="week") == [
        (monday, 3 if first.weekday() else 2)
    ]


@pytest.mark.parametrize("period", ["minute", "second"])
def test_minutes_serve_zones_of_half_an_hour(counter_store: Store, period: Any) -> None:
    midnight = datetime(YEAR, 6, 10, tzinfo=KOLKATA)
    counter = PeriodCounter(counter_store, period)
    counter.add_many(["k"], 5, midnight)
    counter.add("k", 7, midnight - timedelta(seconds=1))
    start, tz = midnight - timedelta(minutes=1), "Asia/Kolkata"
    found = counter.series("k", start, midnight + timedelta(seconds=1), tz=tz, period="hour")
    assert found == [(midnight - HOUR, 7), (midnight, 5)]


@pytest.mark.parametrize(
    ("period", "own", "more", "says"),
    [
        (
            *("hour", "UTC", {"tz": "Asia/Kolkata", "period": "day"}),
            r"^tz asks for days of Asia/Kolkata, which do not consist of whole hours of UTC: "
            r"the day .* within the hour .*\. A counter by the minute has",
        ),
        ("hour", "UTC", {"tz": "Asia/Kolkata"}, "^tz asks for hours of Asia/Kolkata"),
        (
            *("day", "UTC", {"tz": "America/New_York"}),
            "^tz asks for days of America/New_York, .* whole days of UTC.* by the hour has",
        ),
        ("day", "UTC", {"period": "hour"}, "^period asks for hours of UTC.* whole days of UTC"),
        ("week", "UTC", {"period": "month"}, "^period asks for months of UTC"),
    ],
)
def test_spans_that_cut_a_period_are_refused_with_both_names(
    counter_store: Store, period: Any, own: str, more: dict[str, Any], says: str
) -> None:
    counter = PeriodCounter(counter_store, period, own)
    start = datetime(YEAR, 6, 10, tzinfo=UTC)
    with pytest.raises(hotcount.ConfigError, match=says) as caught:
        counter.series("k", start, start + 40 * DAY, **more)
    assert caught.value.option == says[1:].partition(" ")[0]


def test_bad_options_are_refused_by_name(counter_store: Store) -> None:
    counter: Any = PeriodCounter(counter_store, "hour")
    start = datetime(YEAR, 6, 10, tzinfo=UTC)
    for name, unknown in (("tz", "Mars/Olympus"), ("period", "year")):
        with pytest.raises(hotcount.ConfigError, match=f"^{name} is '{unknown}'"):
            counter.series("k", start, start + DAY, **{name: unknown})
    for name, bad in (("tz", NEW_YORK), ("tz", b"UTC"), ("period", 5)):
        with pytest.raises(TypeError, match=f"^{name} must be"):
            counter.series("k", start, start + DAY, **{name: bad})


def test_zones_of_equal_offsets_share_their_days(counter_store: Store) -> None:
    start = datetime(YEAR, 1, 10, tzinfo=BERLIN)
    counter = PeriodCounter(counter_store, "day", "Europe/Berlin")
    counter.add("k", 4, start)
    (day,) = counter.series("k", start, start + HOUR, tz="Europe/Paris")
    assert day == (start, 4)
    assert str(day[0].tzinfo) == "Europe/Paris"


def test_a_sum_beyond_64_bits_and_too_many_periods_are_errors(counter_store: Store) -> None:
    counter = PeriodCounter(counter_store, "hour")
    start = datetime(YEAR, 6, 10, tzinfo=UTC)
    counter.add("k", 2**63 - 1, start)
    counter.add("k", 1, start + HOUR)
    with pytest.raises(hotcount.CounterOverflowError, match="k"):
        counter.series("k", start, start + DAY, period="day")
    # The bound is on the counter's periods, not on the viewer's.
    with pytest.raises(hotcount.ConfigError, match="100000 periods of one hour apart"):
        counter.series("k", start, start + 5000 * DAY, period="month")


async def test_aio_has_the_same_series(counter_store: Store) -> None:
    start = change_of(NEW_YORK, 11)
    counted(counter_store, "hour", start, 25)
    counter = aio.PeriodCounter(counter_store, "hour")
    days = await counter.series("k", start, start + DAY, tz="America/New_York", period="day")
    assert days == [(start, sum(range(1, 26)))]
    with pytest.raises(hotcount.ConfigError, match="Asia/Kolkata"):
        await counter.series("k", start, start + DAY, tz="Asia/Kolkata", period="day")
