"""The SLO of a search, and the choice of the next rate. Pure functions, except for RateSearch."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotcount._report_numbers import can_tell, least_values, number, whole
from hotcount.errors import ConfigError

SLO_TAKES = (
    "terms such as p99<10ms, p99.9<=50ms, max<1s, stale.p99<1s, err<0.1%, lost=0, double=0 and "
    "ghost=0"
)
RATES_TAKE = "500:20000:x1.5, 500:2000:+250 or a rising list such as 500,1k,5k"
MOST_POINTS = 100
MOST_CALLERS = 1024
# How many times as long as asked a trial may take, for a percentile of a low rate.
MOST_LONGER = 5
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Times:
    """A histogram: ends of its cells, rising, and how many times lie in each."""

    cells: Sequence[tuple[float, int]]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.cells)

    def at(self, share: float) -> float:
        """The percentile, as the end of its cell; 0 if there are no times."""
        rank = max(1, math.ceil(share * self.count))
        for end, count in self.cells:
            rank -= count
            if rank <= 0:
                return end
        return self.cells[-1][0] if self.cells else 0.0


@dataclass(frozen=True)
class Trial:
    """One run: its document by hotcount-load, and the times of its percentiles."""

    document: dict[str, Any]
    response_us: Times
    staleness_ms: Times

    @property
    def result(self) -> dict[str, Any]:
        return dict(self.document["result"])

    @property
    def audit(self) -> dict[str, Any]:
        """Empty: not audited."""
        return self.document["audit"] or {}


def errors_of(trial: dict[str, Any]) -> int:
    """Calls that failed, had no answer or were never sent."""
    done = trial["result"]["operations"]
    return int(done["failed"] + done["unknown"] + trial["result"]["offered"]["censored"])


# -- values of options ----------------------------------------------------------------------------


def _to_ns(seconds: float) -> float:
    """Seconds, rounded to nanoseconds, so that equal times in different units compare equal."""
    return round(seconds * 1e9) / 1e9


def parse_time(text: str) -> float:
    """Seconds: 10ms, 1.5s, 3m; a number alone has seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|ms|s|m|h)?", text)
    if found is None:
        raise ConfigError(f"'{text}' is no time; it takes a number with ns, us, ms, s, m or h")
    return _to_ns(float(found[1]) * UNITS[found[2] or "s"])


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


def _share(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(%?)", text)
    share = float(found[1]) / (100 if found[2] else 1) if found else math.inf
    if share > 1:
        raise ConfigError(f"'{text}' is no share; it takes 0 to 1, or a percentage")
    return share


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


@dataclass(frozen=True)
class SloTerm:
    """One bound: of a percentile of latency or staleness (`share` 1: the slowest), of the share of
    the calls without an acknowledgement, or of a count of the audit."""

    metric: str  # latency, staleness, err, lost, double, ghost
    most: float  # Seconds, a share, a count.
    inclusive: bool  # The bound itself is allowed: <= and =.
    text: str
    share: float = 0.0

    @property
    def is_percentile(self) -> bool:
        return self.metric in ("latency", "staleness")

    def exceeds(self, value: float) -> bool:
        return value > self.most if self.inclusive else value >= self.most


def _percentile(name: str) -> float:
    """p99: 0.99; max: 1. Otherwise 0."""
    if name == "max":
        return 1.0
    found = re.fullmatch(r"p([0-9]+(?:\.[0-9]+)?)", name)
    percent = float(found[1]) if found else 0.0
    return percent / 100 if 0 < percent < 100 else 0.0


def _parse_term(text: str) -> SloTerm:
    def refuse(why: object) -> ConfigError:
        return ConfigError(f"term '{text}': {why}; it takes {SLO_TAKES}")

    def value_of(parse: Callable[[str], float]) -> float:
        try:
            return parse(bound)
        except ConfigError as error:
            raise refuse(error) from None

    def count(text: str) -> float:
        if not text.isdecimal():
            raise ConfigError(f"'{text}' is no count")
        return int(text)

    found = re.search(r"<=|[<=>]", text)
    if found is None:
        raise refuse("it has no < or =")
    name, sign, bound = text[: found.start()], found[0], text[found.end() :]
    if sign == ">":
        raise refuse("a bound from below is no SLO")
    inclusive = sign != "<"
    share = _percentile(name.removeprefix("stale."))
    if share:
        if sign == "=":
            raise refuse("a time takes < or <=")
        most = value_of(parse_time)
        # 10 is 10 seconds elsewhere; who writes p99<10 here means milliseconds, or does not know.
        if not bound[-1].isalpha():
            raise refuse(f"{bound} of what? Its time has no unit")
        if most <= 0:
            raise refuse("no call takes no time")
        metric = "staleness" if name.startswith("stale.") else "latency"
        return SloTerm(metric, most, inclusive, text, share)
    if name == "err":
        most = value_of(_share)
    elif name in ("lost", "double", "ghost"):
        most = value_of(count)
    else:
        raise refuse(f"'{name}' is not known")
    if not inclusive and most == 0:
        raise refuse("nothing is below 0")
    return SloTerm(name, most, inclusive, text)


def parse_slo(text: str) -> list[SloTerm]:
    """p99<10ms,stale.p99<1s,err<0.1%,lost=0. An error names the term."""
    return [_parse_term(part) for part in text.split(",")]


def trial_length(
    slo: Sequence[SloTerm], mix: Mapping[str, float], asked_s: float, rate: float
) -> float:
    """Seconds: as asked, or up to five times that, until each percentile has two calls above it, of
    staleness two reads."""
    calls = 0.0
    for term in slo:
        if term.is_percentile and term.share < 1:
            share = mix["read"] / sum(mix.values()) if term.metric == "staleness" else 1
            calls = max(calls, 2 / (1 - term.share) / share if share else 0)
    return min(max(calls / rate, asked_s), MOST_LONGER * asked_s)


def _staleness(trial: Trial, share: float) -> tuple[float, int, str]:
    """Seconds, of how many reads, and why there is no such time."""
    never = trial.audit.get("reads", {}).get("never_right", 0)
    dated = trial.staleness_ms.count
    reads = dated + never
    if not reads:
        return 0.0, 0, "no read was told a count that could be checked"
    # A number that was right at no moment has been wrong for longer than any time.
    rank = math.ceil(share * reads)
    if rank > dated:
        return 0.0, reads, f"{never} of {reads} reads were right at no moment"
    return _to_ns(trial.staleness_ms.at(rank / dated) * 1e-3), reads, ""


def _found(term: SloTerm, trial: Trial) -> tuple[float, int, str]:
    if term.metric == "staleness":
        return _staleness(trial, term.share)
    times = trial.response_us
    return _to_ns(times.at(term.share) * 1e-6), times.count, ""


def _needs(term: SloTerm, count: int) -> str:
    """p99.9 needs 1,000 calls, a trial had 252"""
    what = "calls" if term.metric == "latency" else "reads"
    name = re.split("[<=]", term.text)[0]
    return f"{name} needs {whole(least_values(term.share))} {what}, a trial had {whole(count)}"


def _why_not(term: SloTerm, trial: Trial) -> str:
    if term.is_percentile:
        seconds, count, none_because = _found(term, trial)
        if none_because:
            return f"{term.text}: {none_because}"
        if term.exceeds(seconds):
            return f"{term.text}: {number(seconds * 1000)} ms"
        known = term.share >= 1 or can_tell(count, term.share)
        return "" if known else _needs(term, count)
    if term.metric == "err":
        share = errors_of(trial.document) / max(1, trial.result["offered"]["scheduled"])
        return f"{term.text}: {number(100 * share)} %" if term.exceeds(share) else ""
    count = trial.audit.get(term.metric, 0)
    return f"{term.text}: {count}" if term.exceeds(count) else ""


def why_not(slo: Sequence[SloTerm], trial: Trial) -> list[str]:
    """Why the trial does not meet the SLO; empty: it does. An overloaded trial meets no SLO. A
    percentile with no call above it is unknown, and so does not meet its bound."""
    result = trial.result
    misses = []
    if not result["offered"]["carried"]:
        share = 100 * result["offered"]["share"]
        misses.append(f"overloaded: {share:.1f} % was sent in time, bound by {result['bound']}")
    return misses + [why for term in slo if (why := _why_not(term, trial))]


def too_short(slo: Sequence[SloTerm], asked_s: float, trial: Trial) -> list[str]:
    """The percentiles for which even a trial of the longest duration has too few values."""
    if trial.document["settings"]["duration_s"] < MOST_LONGER * asked_s * (1 - 1e-9):
        return []
    found = []
    for term in slo:
        if term.is_percentile:
            why = _needs(term, _found(term, trial)[1]) if term.share < 1 else ""
            if why and _why_not(term, trial) == why:
                found.append(why)
    return found


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
