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
    Times,
    Trial,
    parse_callers,
    parse_rates,
    parse_slo,
    parse_time,
    too_short,
    trial_length,
    why_not,
)


def test_an_slo_takes_percentiles_shares_and_counts() -> None:
    terms = parse_slo("p50<1ms,p99.9<=50ms,max<1s,stale.p99<2s,err<0.1%,lost=0,double<=2")
    assert [(term.metric, term.share, term.most, term.inclusive) for term in terms] == [
        ("latency", 0.5, 0.001, False),
        ("latency", pytest.approx(0.999), 0.05, True),
        ("latency", 1.0, 1.0, False),
        ("staleness", 0.99, 2.0, False),
        ("err", 0.0, pytest.approx(0.001), False),
        ("lost", 0.0, 0.0, True),
        ("double", 0.0, 2.0, True),
    ]


@pytest.mark.parametrize(
    "bad",
    ["", "p99", "p99<", "p99<-1ms", "p0<1ms", "p100<1ms", "p9x<1ms", "p99=1ms", "p99>1ms", "p99<0",
     "err<2", "err<0", "err", "lost<0", "lost=x", "lost=-1", "speed<1", "stale<1s", "stale.p99=1s",
     "stale.err<1%", "p99 <1ms", "p99<10", "max<1e2"],
)  # fmt: skip
def test_an_error_of_an_slo_names_the_term(bad: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_slo("lost=0," + bad)
    assert f"term '{bad}'" in str(refused.value)
    assert "p99<10ms" in str(refused.value)


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


def trial(
    *, stale_ms: tuple[float, ...] = (), never: int = 0, share: float = 1.0, duration_s: float = 1,
    failed: int = 0, unknown: int = 0, censored: int = 0, **audit: int,
) -> Trial:  # fmt: skip
    """A hundred answers of 1 to 100 ms."""
    offered: dict[str, Any] = {"carried": share >= 0.99, "share": share, "scheduled": 100}
    document = {
        "settings": {"duration_s": duration_s},
        "audit": {"reads": {"never_right": never}, **audit},
        "result": {
            "bound": "system",
            "operations": {"failed": failed, "unknown": unknown},
            "offered": {**offered, "censored": censored},
        },
    }
    response = Times([(1000.0 * each, 1) for each in range(1, 101)])
    return Trial(document, response, Times([(each, 1) for each in sorted(stale_ms)]))


MISSES = [
    ("p50<60ms,p99<110ms,max<101ms,err<1%,lost=0", {}, []),
    ("p99<50ms,max<200ms", {}, ["p99<50ms: 99.0 ms"]),
    ("max<=100ms", {}, []),
    ("max<100ms", {}, ["max<100ms: 100 ms"]),
    # What was not served is an error.
    ("err<3%", {"failed": 1, "unknown": 1, "censored": 1}, ["err<3%: 3.00 %"]),
    ("err<3%", {"failed": 1, "unknown": 1}, []),
    # What the audit found.
    ("lost=0,double=0,ghost=0", {"lost": 2}, ["lost=0: 2"]),
    ("lost<=2", {"lost": 2}, []),
    ("lost<2", {"lost": 2}, ["lost<2: 2"]),
    # How long what reads were told had been wrong.
    ("stale.p99<60ms,stale.max<=51ms", {"stale_ms": (50.0,) * 100}, []),
    ("stale.p99<20ms", {"stale_ms": (50.0,) * 100}, ["stale.p99<20ms: 50.0 ms"]),
    # A number that was right at no moment is staler than any time.
    ("stale.p98<1ms", {"stale_ms": (0.0,) * 98, "never": 2}, []),
    ("stale.p99<1h", {"stale_ms": (0.0,) * 98, "never": 2},
     ["stale.p99<1h: 2 of 100 reads were right at no moment"]),
    ("stale.p50<1h", {}, ["stale.p50<1h: no read was told a count that could be checked"]),
    # A percentile with no call above it is not met.
    ("p99.9<110ms", {}, ["p99.9 needs 1,000 calls, a trial had 100"]),
    ("p99.9<50ms", {}, ["p99.9<50ms: 100 ms"]),
    ("stale.p99<1s,stale.max<1s", {"stale_ms": (0.0,) * 99},
     ["stale.p99 needs 100 reads, a trial had 99"]),
    # A load that was not carried meets nothing.
    ("max<10s", {"share": 0.5}, ["overloaded: 50.0 % was sent in time, bound by system"]),
]  # fmt: skip


@pytest.mark.parametrize(("slo", "made", "misses"), MISSES)
def test_a_trial_says_which_term_it_misses_and_by_what(
    slo: str, made: dict[str, Any], misses: list[str]
) -> None:
    assert why_not(parse_slo(slo), trial(**made)) == misses


def test_a_percentile_that_no_trial_is_long_enough_for_is_named() -> None:
    slo = parse_slo("p99.9<110ms,max<1s")
    assert too_short(slo, 1, trial(duration_s=4)) == []
    assert too_short(slo, 1, trial(duration_s=5)) == ["p99.9 needs 1,000 calls, a trial had 100"]


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
    assert trial_length(parse_slo(slo), mix, 2, rate) == pytest.approx(seconds)


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
