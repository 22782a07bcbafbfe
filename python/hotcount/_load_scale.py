"""The Universal Scalability Law: how throughput grows, and falls, with the number of callers.

    X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1))

lambda is the rate of one caller. sigma is the share of the work that waits for one place (a lock, a
disk). kappa is what each pair of callers costs each other. Pure functions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from hotcount._load_statistics import LEAST_ROUNDS, RESAMPLES, Interval, middle_of
from hotcount._report_numbers import number

Points = Sequence[tuple[float, float]]  # Callers, and their operations per second.

# The law is used up to this multiple of the largest number of callers that was measured.
EXTRAPOLATION = 2
# The law may lie outside of the measured rates by this factor; beyond it, it does not fit.
MARGIN = 1.05


@dataclass(frozen=True)
class Fit:
    per_s_of_one: float  # lambda
    sigma: float
    kappa: float

    def per_s(self, callers: float) -> float:
        waits = self.sigma * (callers - 1) + self.kappa * callers * (callers - 1)
        return self.per_s_of_one * callers / (1 + waits)

    def peak(self) -> float | None:
        """The number of callers with the highest throughput; None if it never falls."""
        if self.sigma >= 1:
            return 1.0
        return math.sqrt((1 - self.sigma) / self.kappa) if self.kappa > 0 else None


def fit(points: Points) -> Fit | None:
    """Least squares of the logarithms, with sigma from 0 to 1 and kappa not below 0. None for fewer
    than three different numbers of callers, or if a point has no throughput.

    Of logarithms, because twice as much and half as much weigh the same then: a rate divided by the
    law's is 0 at least and may be any number above 1, and its least squares follow the fastest
    points. log lambda is the mean of what the other two leave, so two members are left to look for.
    """
    if any(rate <= 0 for _, rate in points) or len({n for n, _ in points}) < 3:
        return None
    callers, rates = np.array(points, dtype=float).T
    pairs = callers * (callers - 1)

    def logs(member: Any) -> Any:
        waits = 1 + member[0] * (callers - 1) + member[1] * pairs
        return np.log(rates / callers * waits)

    def errors(member: Any) -> Any:
        found = logs(member)
        return found - found.mean()

    def slopes(member: Any) -> Any:
        waits = 1 + member[0] * (callers - 1) + member[1] * pairs
        found = np.stack([(callers - 1) / waits, pairs / waits], axis=1)
        return found - found.mean(axis=0)

    best = scipy.optimize.least_squares(
        errors, (0.1, 0.001), jac=slopes, bounds=((0, 0), (1, np.inf)), x_scale=(0.1, 0.001),
        method="dogbox", xtol=1e-12, ftol=1e-12, gtol=1e-12,
    )  # fmt: skip
    sigma, kappa = map(float, best.x)
    return Fit(math.exp(float(logs(best.x).mean())), sigma, kappa)


def _rates_of(rounds: Sequence[Points]) -> dict[float, list[float]]:
    """The rates of these rounds, by the number of callers."""
    rates: dict[float, list[float]] = {}
    for points in rounds:
        for callers, rate in points:
            rates.setdefault(callers, []).append(rate)
    return dict(sorted(rates.items()))


def _fit_medians(rounds: Sequence[Points]) -> Fit | None:
    return fit([(n, float(np.median(rates))) for n, rates in _rates_of(rounds).items()])


def _misfit(law: Fit, measured: dict[float, list[float]]) -> str | None:
    """The first number of callers for which no round had about the law's rate, as text, or None."""
    for callers, rates in measured.items():
        least, most, says = min(rates), max(rates), law.per_s(callers)
        if not least / MARGIN <= says <= most * MARGIN:
            return (
                f"the law does not fit these rounds: with {callers:g} callers it says "
                f"{number(says)}/s, they made {number(least)} to {number(most)}"
            )
    return None


def _interval(fits: Sequence[Fit], figure: Callable[[Fit], float]) -> Interval | None:
    return middle_of([figure(each) for each in fits]) if fits else None


def _ends(interval: Interval | None) -> dict[str, float] | None:
    return {"low": interval[0], "high": interval[1]} if interval else None


def fit_law(rounds: Sequence[Points], seed: int) -> dict[str, Any] | None:
    """The law of the medians, as scale.json has it, with intervals of the fits of resampled rounds.

    No peak is stated where there is none, or it is beyond what may be said, where the law says what
    no round did, or where some of the resampled rounds have none. None if no law can be fitted.
    """
    law = _fit_medians(rounds)
    if law is None:
        return None
    draws = np.random.default_rng(seed)
    resamples = RESAMPLES if len(rounds) >= LEAST_ROUNDS else 0
    # Of six rounds there are 462 different draws.
    drawn = Counter(
        tuple(sorted(map(int, draws.integers(len(rounds), size=len(rounds)))))
        for _ in range(resamples)
    )
    fits = []
    for each, times in drawn.items():
        fits += [_fit_medians([rounds[at] for at in each]) or law] * times
    measured = _rates_of(rounds)
    furthest = EXTRAPOLATION * max(measured)
    document: dict[str, Any] = {
        "lambda_per_s": law.per_s_of_one,
        "sigma": law.sigma,
        "sigma_interval": _ends(_interval(fits, lambda one: one.sigma)),
        "kappa": law.kappa,
        "kappa_interval": _ends(_interval(fits, lambda one: one.kappa)),
        "peak_callers": None,
        "peak_interval": None,
        "no_peak_because": _misfit(law, measured),
    }
    peak = law.peak()
    if document["no_peak_because"] or peak is None or peak > furthest:
        return document
    interval = _interval(fits, lambda one: one.peak() or math.inf)
    if interval and interval[1] > furthest:
        document["no_peak_because"] = (
            f"these rounds do not say where it is; it may be beyond {furthest:g} callers"
        )
        return document
    return {**document, "peak_callers": peak, "peak_interval": _ends(interval)}


def law_per_s(law: dict[str, Any], callers: float) -> float:
    """Operations per second of this many callers by the law of a scale.json."""
    return Fit(law["lambda_per_s"], law["sigma"], law["kappa"]).per_s(callers)


def with_interval(value: float, ends: dict[str, float] | None) -> str:
    return (
        f"{number(value)} ({number(ends['low'])} to {number(ends['high'])})"
        if ends
        else number(value)
    )
