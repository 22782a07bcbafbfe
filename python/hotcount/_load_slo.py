"""The SLO of a search, and the choice of the next rate. Pure functions, except for RateSearch.

hotcount-load reads the terms and checks each trial against them: they are its --threshold.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hotcount._report_numbers import number
from hotcount.errors import ConfigError

RATES_TAKE = "500:20000:x1.5, 500:2000:+250 or a rising list such as 500,1k,5k"
MOST_POINTS = 100
MOST_CALLERS = 1024
# How many times as long as asked a trial may take, for a percentile of a low rate.
MOST_LONGER = 5
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def errors_of(trial: dict[str, Any]) -> int:
    """Calls that failed, had no answer or were never sent."""
    done = trial["result"]["operations"]
    return int(done["failed"] + done["unknown"] + trial["result"]["offered"]["censored"])


# -- values of options ----------------------------------------------------------------------------


def parse_time(text: str) -> float:
    """Seconds: 10ms, 1.5s, 3m; a number alone has seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|ms|s|m|h)?", text)
    if found is None:
        raise ConfigError(f"'{text}' is no time; it takes a number with ns, us, ms, s, m or h")
    return float(found[1]) * UNITS[found[2] or "s"]


def time_text(seconds: float) -> str:
    unit = next((each for each in ("m", "s", "ms", "us") if seconds >= UNITS[each]), "ns")
    return f"{seconds / UNITS[unit]:g}{unit}"


def parse_rate(text: str) -> float:
    """500, 2.5k, 1M."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([kM]?)", text)
    rate = float(found[1]) * {"": 1, "k": 1e3, "M": 1e6}[found[2]] if found else 0.0
    if not 0 < rate <= 1e8:
        raise ConfigError(f"'{text}' is no rate; it takes more than 0 and at most 100M")
    return rate


def _rises(values: Sequence[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise(values))


def parse_rates(text: str) -> list[float]:
    """500:20000:x1.5 (each 1.5 times the one before), 500:2000:+250, or a rising list."""

    def refuse(why: str) -> ConfigError:
        return ConfigError(f"'{text}': {why}; it takes {RATES_TAKE}")

    span = text.split(":")
    if len(span) == 1:
        rates = [parse_rate(part) for part in text.split(",")]
        if len(rates) > MOST_POINTS:
            raise refuse(f"more than {MOST_POINTS} rates")
        if not _rises(rates):
            raise refuse("the rates do not rise")
        return rates
    if len(span) != 3 or len(span[2]) < 2 or span[2][0] not in "x+":
        raise refuse("that is no first rate, last rate and step")
    rate, last, step = parse_rate(span[0]), parse_rate(span[1]), parse_rate(span[2][1:])
    times = span[2][0] == "x"
    if times and step <= 1:
        raise refuse("a factor is above 1")
    if last < rate:
        raise refuse("the last rate is below the first")
    rates = []
    # Rounding must not take the last rate away.
    while rate <= last * (1 + 1e-9):
        if len(rates) == MOST_POINTS:
            raise refuse(f"more than {MOST_POINTS} rates")
        rates.append(min(rate, last))
        rate = rate * step if times else rate + step
    return rates


def parse_callers(text: str) -> list[int]:
    """1,2,4,8: rising."""

    def refuse(why: str) -> ConfigError:
        return ConfigError(f"'{text}': {why}; it takes a rising list such as 1,2,4,8")

    parts = text.split(",")
    for part in parts:
        if not part.isdecimal() or not 1 <= int(part) <= MOST_CALLERS:
            raise refuse(f"{part} is not from 1 to {MOST_CALLERS}")
    callers = [int(part) for part in parts]
    if len(callers) > MOST_POINTS:
        raise refuse(f"more than {MOST_POINTS}")
    if not _rises(callers):
        raise refuse("the numbers do not rise")
    return callers


# -- an SLO ---------------------------------------------------------------------------------------


def _why_no_slo(term: str) -> str:
    """Why a term of --threshold cannot be one of an SLO; empty: it can be one."""
    if ">" in term:
        return "a bound from below is no SLO"
    if term.startswith("rate"):
        return "a search varies the rate"
    found = re.search(r"([<=]+)(.*)", term)
    if not found:  # hotcount-load refuses it.
        return ""
    if found[1] == "<" and re.fullmatch(r"0[0.]*(%|[a-z]*)", found[2]):
        return "nothing is below 0"
    # --threshold means exactly that figure, which a better one would miss.
    return "" if found[1] in ("<", "<=") or found[2] == "0" else "it takes <, <= or =0"


def parse_slo(text: str) -> str:
    """p99<10ms,err<0.1%,lost=0. hotcount-load reads the terms."""
    for term in re.split("[,\n]", text):
        if why := _why_no_slo(term):
            raise ConfigError(f"'{term}': {why}")
    return text


def trial_length(slo: str, mix: Mapping[str, float], asked_s: float, rate: float) -> float:
    """Seconds: as asked, or up to five times that, until each percentile has two calls above it, of
    staleness two reads."""
    calls = 0.0
    for stale, percent in re.findall(r"(stale\.)?p([0-9.]+)[<=]", slo):
        share = mix["read"] / sum(mix.values()) if stale else 1
        calls = max(calls, 2 / (1 - float(percent) / 100) / share if share else 0)
    return min(max(calls / rate, asked_s), MOST_LONGER * asked_s)


def _missed(trial: dict[str, Any]) -> list[tuple[str, bool]]:
    """The terms that do not hold, with the figure, and whether too few calls tell it."""
    return [
        (f"{checked['threshold']}: {checked['figure']}", checked["too_few"])
        for checked in trial.get("thresholds", ())
        if not checked["met"]
    ]


def why_not(trial: dict[str, Any]) -> list[str]:
    """Why the trial does not meet the SLO; empty: it does. An overloaded trial meets no SLO. A
    percentile of too few calls is unknown, and so does not meet its bound."""
    result = trial["result"]
    misses = []
    if not result["offered"]["carried"]:
        share = 100 * result["offered"]["share"]
        misses.append(f"overloaded: {share:.1f} % was sent in time, bound by {result['bound']}")
    if "thresholds" not in trial:  # Interrupted or without an audit.
        misses.append("the SLO was not checked")
    return misses + [why for why, _ in _missed(trial)]


def too_short(asked_s: float, trial: dict[str, Any]) -> list[str]:
    """The percentiles for which even a trial of the longest duration has too few values."""
    if trial["settings"]["duration_s"] < MOST_LONGER * asked_s * (1 - 1e-9):
        return []
    return [why for why, too_few in _missed(trial) if too_few]


# -- the next rate --------------------------------------------------------------------------------

RAMP = 1.5
PRECISION = 1.03
CONFIRMATIONS = 3
MOST_MISSES = 2
LEAST_RATE, MOST_RATE = 1.0, 1e7


class RateSearch:
    """The next rate to try, in the search for the highest rate that holds; it runs no trials.

    - ramp: each rate is 1.5 times the one before, until one is refused (or downwards until one
      holds).
    - bisect: between the highest that held and the lowest refused, until they are 3 % apart.
    - confirm: three more trials must hold; else the next lower rate, by 3 %, 6 %, 12 % ...

    A rate is refused when it failed twice, because a disk may hesitate once.
    """

    def __init__(self, first: float) -> None:
        self.phase = "ramp"
        self.held = 0.0  # The highest that held at least once, if none is confirmed.
        self.refused = 0.0  # The lowest rate above those that was refused.
        self.confirmed = 0.0
        self._rate = first
        self._hits = self._misses = 0
        self._step = PRECISION - 1
        self._fall = RAMP

    def next(self) -> float | None:
        """The rate of the next trial; None: the search is over."""
        return None if self.phase == "over" else self._rate

    def note(self, held: bool) -> None:
        """Whether the trial at that rate held."""
        self._hits += held
        self._misses += not held
        if self._misses == MOST_MISSES:
            self._refuse()
        elif self._hits == (CONFIRMATIONS if self.phase == "confirm" else 1):
            self._accept()
        else:
            return
        self._hits = self._misses = 0

    def held_words(self) -> str:
        """The result so far of a search that ends early: "1,200 held once"."""
        if self.held:
            return f"{number(self.held)} held once"
        return "no rate is left that held" if self.phase == "confirm" else "none held"

    def _accept(self) -> None:
        if self.phase == "confirm":
            self.confirmed = self._rate
            self.phase = "over"
            return
        self.held = self._rate
        self._choose()

    def _refuse(self) -> None:
        self.refused = self._rate
        if self.phase != "confirm":
            self._choose()
            return
        self.held = 0.0
        self._rate /= 1 + self._step
        self._step *= 2
        if self._rate < LEAST_RATE:
            self.phase = "over"

    def _choose(self) -> None:
        if not self.refused and self._rate >= MOST_RATE:
            self.phase = "confirm"
        elif not self.refused:
            self._rate = min(MOST_RATE, self._rate * RAMP)
        elif not self.held:
            self._rate /= self._fall
            self._fall *= RAMP
            if self._rate < LEAST_RATE:
                self.phase = "over"
        elif self.refused > self.held * PRECISION:
            self.phase = "bisect"
            self._rate = math.sqrt(self.held * self.refused)
        else:
            self.phase = "confirm"
            self._rate = self.held
