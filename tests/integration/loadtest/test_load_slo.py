"""What a search asks of a rate, and which rate it tries next; values of the studies' options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hotcount import ConfigError
from hotcount._load_slo import (
    MOST_RATE,
    PRECISION,
    RateSearch,
    parse_callers,
    parse_rates,
    parse_slo,
    parse_time,
    too_short,
    trial_length,
    why_not,
)

SLO = "p99<50ms,p99.9<1s,lost=0"


@pytest.mark.parametrize("slo", [SLO, "p99<=10ms,lost==0", "err=0", "lost<=5", "err<0.1%"])
def test_an_slo_is_a_list_of_bounds_from_above(slo: str) -> None:
    assert parse_slo(slo) == slo


@pytest.mark.parametrize(
    ("term", "says"),
    [
        ("rate>5", "a bound from below"),
        ("p99>=10ms", "a bound from below"),
        ("rate<5", "a search varies the rate"),
        ("p99=10ms", "it takes <, <= or =0"),
        ("err=0.1%", "it takes <, <= or =0"),  # An exact share, which 0 misses.
        ("lost==5", "it takes <, <= or =0"),
        ("p99<0ms", "nothing is below 0"),
        ("err<0.0%", "nothing is below 0"),
        ("lost<0", "nothing is below 0"),
    ],
)
def test_an_slo_that_no_better_trial_meets_is_refused(term: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"'{term}': {says}"):
        parse_slo(f"max<1s,{term}")


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("100:337.5:x1.5", [100, 150, 225, 337.5]),
        ("500:1k:+250", [500, 750, 1000]),
        ("500:1100:+250", [500, 750, 1000]),
        ("500,1k,5k", [500, 1000, 5000]),
        ("7", [7]),
        ("1:100:+1", range(1, 101)),
    ],
)
def test_rates_are_factors_steps_and_lists(text: str, rates: list[float]) -> None:
    assert parse_rates(text) == pytest.approx(list(rates))


@pytest.mark.parametrize(
    ("parse", "bad", "says"),
    [
        *((parse_rates, bad, "") for bad in (
            "500:1000", "500:1000:x1", "500:1000:x0.5", "1000:500:x2", "500:1000:+0", "1k,500",
            "500,500", "1:101:+1", "1:1M:x1.0001", "::", "1:2:3:4",
        )),
        (parse_rates, "1:1M:+1", "'1:1M:+1': more than 100"),
        (parse_rates, "500:1000:1.5", "500:20000:x1.5"),
        *((parse_callers, bad, "") for bad in ("", "0,1", "2,1", "1,1", "1025", "1,,2", "1;2")),
        (parse_callers, "4,2", "1,2,4,8"),
        *((parse_time, bad, "") for bad in ("", "-1s", "1e2s", "10 ms", "s")),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_read_is_refused(
    parse: Callable[[str], object], bad: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(bad)
    assert says in str(refused.value)


def test_callers_and_times_are_read() -> None:
    assert parse_callers("1,2,16") == [1, 2, 16]
    assert [parse_time(each) for each in ("300ms", "1.5s", "3m", "2")] == [0.3, 1.5, 180, 2]


def trial(*, carried: bool = True, duration_s: float = 1) -> dict[str, Any]:
    """As hotcount-load has checked it: of three terms, the last one holds."""
    found = [
        ("p99<50ms", "99.0 ms", False, False),
        ("p99.9<1s", "it needs 1,000 calls", False, True),
        ("lost=0", "0", True, False),
    ]
    return {
        "settings": {"duration_s": duration_s},
        "result": {"bound": "system", "offered": {"carried": carried, "share": 0.5}},
        "thresholds": [
            {"threshold": term, "figure": figure, "met": met, "too_few": too_few}
            for term, figure, met, too_few in found
        ],
    }


def test_a_trial_says_which_term_it_misses_and_by_what() -> None:
    misses = ["p99<50ms: 99.0 ms", "p99.9<1s: it needs 1,000 calls"]
    assert why_not(trial()) == misses
    # A load that was not carried meets nothing.
    overloaded = "overloaded: 50.0 % was sent in time, bound by system"
    assert why_not(trial(carried=False)) == [overloaded, *misses]


def test_a_trial_whose_terms_were_not_checked_meets_no_slo() -> None:
    unchecked = trial()
    del unchecked["thresholds"]
    assert why_not(unchecked) == ["the SLO was not checked"]
    assert too_short(1, unchecked) == []


def test_a_percentile_that_no_trial_is_long_enough_for_is_named() -> None:
    assert too_short(1, trial(duration_s=4)) == []
    assert too_short(1, trial(duration_s=5)) == ["p99.9<1s: it needs 1,000 calls"]


@pytest.mark.parametrize(
    ("slo", "rate", "seconds"),
    [
        ("p99<10ms,lost=0", 1000, 2),
        ("p99<10ms,lost=0", 50, 4),  # 200 calls.
        ("stale.p99<1s", 1000, 2),  # 1,333 calls have 200 reads.
        ("p99<10ms,stale.p99<1s", 200, 200 / 0.15 / 200),
        ("stale.p99<1s", 1, 10),  # Five times at most.
        ("max<1s,stale.max<1s", 1, 2),
    ],
)
def test_a_trial_is_long_enough_for_each_percentile(slo: str, rate: float, seconds: float) -> None:
    mix = {"vote": 80, "unvote": 5, "read": 15}
    assert trial_length(slo, mix, 2, rate) == pytest.approx(seconds)


def drive(search: RateSearch, holds: Callable[[float], bool]) -> list[float]:
    """To its end; the rates tried."""
    tried: list[float] = []
    while (rate := search.next()) is not None and len(tried) < 1000:
        tried.append(rate)
        search.note(holds(rate))
    return tried


@pytest.mark.parametrize("first", [10, 900, 1000, 30_000])
def test_the_limit_is_found_to_three_percent(first: float) -> None:
    search = RateSearch(first)
    tried = drive(search, lambda rate: rate <= 1000)
    assert search.confirmed <= 1000 < search.refused <= search.confirmed * PRECISION
    assert len(tried) <= 30
    assert len(set(tried[-3:])) == 1, "the last three confirm it"


def test_the_ramp_goes_up_by_half_and_a_refusal_takes_two() -> None:
    assert drive(RateSearch(100), lambda rate: rate < 200)[1:4] == [150, 225, 225]


def test_one_miss_is_forgiven() -> None:
    search = RateSearch(100)
    missed: list[float] = []

    def holds(rate: float) -> bool:
        if 400 <= rate < 1000:
            missed.append(rate)
        return rate < 1000 and (rate < 400 or len(missed) != 1)

    drive(search, holds)
    assert search.confirmed > 960


def test_a_rate_that_does_not_hold_again_is_not_confirmed() -> None:
    """It holds the first time it is tried, and not again above 500."""
    search = RateSearch(100)
    seen: list[float] = []

    def holds(rate: float) -> bool:
        again = seen[-1:] == [rate]
        seen.append(rate)
        return rate < 500 or (rate < 1000 and not again and search.phase != "confirm")

    drive(search, holds)
    assert 0 < search.confirmed < 500 <= search.refused


def test_a_search_ends_where_nothing_or_everything_holds() -> None:
    none, every = RateSearch(50_000), RateSearch(50_000)
    assert len(drive(none, lambda rate: False)) <= 30
    assert (none.confirmed, none.held) == (0, 0)
    assert len(drive(every, lambda rate: True)) <= 30
    assert (every.confirmed, every.refused) == (MOST_RATE, 0)
