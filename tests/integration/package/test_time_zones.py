"""What the extension assumes of time zones, and zones that come near to the edge of it."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from importlib import resources
from itertools import pairwise
from pathlib import Path

import hotcount
import pytest

DAY = timedelta(days=1)


def tzif_file(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        if (file := Path(folder) / name).is_file():
            return file.read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes()


def changes(data: bytes) -> Iterator[tuple[int, int]]:
    """When the zone changes its offset, and the new one (RFC 8536, the 64-bit block)."""

    def header(at: int) -> tuple[int, ...]:
        return struct.unpack(">20x6l", data[at : at + 44])

    utc, standard, leaps, times, types, letters = header(0)
    at = 44 + 5 * times + 6 * types + letters + 8 * leaps + standard + utc
    utc, standard, leaps, times, types, letters = header(at)
    at += 44
    instants = struct.unpack(f">{times}q", data[at : at + 8 * times])
    kinds = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">l2x", data[at + 6 * i : at + 6 * i + 6])[0] for i in range(types)]
    offset = offsets[0]
    for instant, kind in zip(instants, kinds):
        if offsets[kind] != offset:
            offset = offsets[kind]
            yield instant, offset


def test_no_zone_takes_a_change_back_within_three_days() -> None:
    zones = zoneinfo.available_timezones()
    assert len(zones) > 300
    taken_back = {}
    for name in zones:
        found = list(changes(tzif_file(name)))
        for (_, before), (left, _), (back, after) in zip(found, found[1:], found[2:]):
            if after == before:
                taken_back[name, left] = timedelta(seconds=back - left)
    assert min(taken_back.values()) > 3 * DAY


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        ("America/Recife", datetime(2000, 10, 12, tzinfo=timezone.utc)),
        ("Asia/Gaza", datetime(2040, 10, 24, tzinfo=timezone.utc)),
        ("Europe/Vienna", datetime(1945, 4, 8, tzinfo=timezone.utc)),
        ("Europe/Berlin", datetime(1893, 4, 1, tzinfo=timezone.utc)),
        ("Pacific/Apia", datetime(2011, 12, 30, tzinfo=timezone.utc)),
    ],
)
def test_days_begin_when_the_zones_date_changes(zone: str, around: datetime) -> None:
    counter = hotcount.PeriodCounter("memory://", tz=zone)
    rows = counter.series("k", around - 9 * DAY, around + 9 * DAY)
    minutes = [around - 10 * DAY + timedelta(minutes=each) for each in range(20 * 24 * 60)]
    dates = [each.astimezone(zoneinfo.ZoneInfo(zone)).date() for each in minutes]
    begins = {at for at, (before, date) in zip(minutes[1:], pairwise(dates)) if before != date}
    starts = [at.astimezone(timezone.utc) for at, _ in rows]
    # Local mean time has seconds.
    assert {at.replace(second=0) + timedelta(minutes=at.second > 0) for at in starts} <= begins
    assert len(starts) == len([at for at in begins if starts[0] <= at < around + 9 * DAY])
