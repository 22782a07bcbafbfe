"""The statistics of a few rounds: medians, intervals, tests of a difference.

Pure functions. An interval draws from its seed alone, so the same rounds always have the same one.
SciPy has the bootstrap and both tests for many values. For few, the exact distributions are counted
here: SciPy counts them only where no ranks are shared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy  # Its parts are loaded where they are first used: stats takes half a second.

# A difference is called when so few of 100 comparisons of a thing with itself would look like it.
SIGNIFICANCE = 0.05
# Fewer rounds have no 95 % interval of their median: the range of five values misses it in 1 of 16
# cases. And with fewer the test of pairs cannot reach 5 %, whatever the rounds say.
LEAST_ROUNDS = 6
RESAMPLES = 2000
MOST_EXACT_PAIRS = 100
MOST_EXACT_VALUES = 60

Interval = tuple[float, float]
Values = Sequence[float]


def spread_of(values: Values) -> dict[str, Any]:
    """Median, least and most; all 0 if there are none."""
    if not len(values):
        return {"median": 0.0, "min": 0.0, "max": 0.0}
    return {
        "median": float(np.median(values)),
        "min": float(min(values)),
        "max": float(max(values)),
    }


def paired_ratios(values: Values, baselines: Values) -> list[float]:
    """Round by round; one without both, or whose baseline is 0, is left out."""
    return [value / baseline for value, baseline in zip(values, baselines) if baseline > 0]


# -- intervals ------------------------------------------------------------------------------------


def middle_of(figures: Values) -> Interval:
    """The middle 95 % of the figures of draws."""
    rising = sorted(map(float, figures))
    tail = int(len(rising) * SIGNIFICANCE / 2)
    return rising[tail], rising[-1 - tail]


def _bootstrap(samples: tuple[Values, ...], statistic: Any, seed: int) -> Interval | None:
    """Of draws with replacement, from each sample by itself."""
    if min(map(len, samples)) < LEAST_ROUNDS:
        return None
    drawn = scipy.stats.bootstrap(
        samples, statistic, n_resamples=RESAMPLES, method="percentile", vectorized=True,
        rng=np.random.default_rng(seed),
    ).bootstrap_distribution  # fmt: skip
    return middle_of(drawn)


def median_interval(values: Values, seed: int) -> Interval | None:
    return _bootstrap((values,), np.median, seed)


def ratio_of_medians_interval(values: Values, others: Values, seed: int) -> Interval | None:
    """None too if a divisor is 0."""

    def ratio(of: Any, to: Any, axis: int) -> Any:
        return np.median(of, axis=axis) / np.median(to, axis=axis)

    return None if min(others, default=0) <= 0 else _bootstrap((values, others), ratio, seed)


# -- tests ----------------------------------------------------------------------------------------


def _doubled_ranks(values: Any) -> Any:
    """Twice the ranks, so that shared ones are whole numbers."""
    return np.rint(2 * scipy.stats.rankdata(values)).astype(int)


def _two_sided(chances: Any, at: int) -> float:
    """Twice the smaller tail of a distribution over 0, 1, 2 ...; at most 1."""
    return min(1.0, 2 * min(float(chances[: at + 1].sum()), float(chances[at:].sum())))


def signed_rank(differences: Values) -> float:
    """Wilcoxon's test of pairs, two-sided: how likely differences are whose signs are as uneven as
    these, or more so, if either sign is equally likely. 1 if there are none."""
    given = np.asarray(differences, dtype=float)
    given = given[given != 0]
    if not len(given):
        return 1.0
    if len(given) > MOST_EXACT_PAIRS:
        return float(scipy.stats.wilcoxon(given, correction=True, method="asymptotic").pvalue)
    ranks = _doubled_ranks(np.abs(given))
    # Each rank is above 0 or not, with the same chance.
    chances = np.zeros(ranks.sum() + 1)
    chances[0] = 1.0
    for rank in ranks:
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    return _two_sided(chances, int(ranks[given > 0].sum()))


def rank_sum(values: Values, others: Values) -> float:
    """The test of Wilcoxon, Mann and Whitney, two-sided, for values that are not paired. 1 if one
    side is empty."""
    every = np.concatenate([np.asarray(values, float), np.asarray(others, float)])
    if not len(values) or not len(others) or np.all(every == every[0]):
        return 1.0
    if len(every) > MOST_EXACT_VALUES:
        return float(scipy.stats.mannwhitneyu(values, others, method="asymptotic").pvalue)
    ranks = _doubled_ranks(every)
    # How many ways there are to choose so many of the ranks with such a sum.
    ways = np.zeros((len(values) + 1, ranks.sum() + 1))
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    chances = ways[-1] / ways[-1].sum()
    return _two_sided(chances, int(ranks[: len(values)].sum()))


def holm(ps: Values) -> list[float]:
    """The p values as Holm adjusts them, in the order of `ps`. If differences are called at an
    adjusted p of at most 5 %, the chance that one or more of them is false is at most 5 %."""
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for place, at in enumerate(sorted(range(len(ps)), key=lambda at: ps[at])):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[at]))
        adjusted[at] = largest
    return adjusted


def least_rounds(tests: int) -> int:
    """How many rounds the test of pairs needs to call a difference in a family of so many tests."""
    rounds = LEAST_ROUNDS
    while max(tests, 1) * 2.0 ** (1 - rounds) > SIGNIFICANCE:
        rounds += 1
    return rounds


# -- ratios, as documents have them ---------------------------------------------------------------


def _ratio(spread: dict[str, Any], interval: Interval | None, p: float) -> dict[str, Any]:
    """`p_adjusted` and `difference` say nothing until call_differences() has seen it."""
    ends = list(interval) if interval else None
    return {**spread, "interval": ends, "p": p, "p_adjusted": 1.0, "difference": None}


def paired_ratio(values: Values, baselines: Values, seed: int) -> dict[str, Any]:
    """Of rounds that ran side by side: the median of the ratios, and the signed rank test of their
    logarithms."""
    ratios = paired_ratios(values, baselines)
    # 0 has none: as far below as a number goes.
    logarithms = [math.log(max(ratio, 1e-300)) for ratio in ratios]
    return _ratio(spread_of(ratios), median_interval(ratios, seed), signed_rank(logarithms))


def unpaired_ratio(values: Values, baselines: Values, seed: int) -> dict[str, Any]:
    """Of rounds that did not: the ratio of the medians, and the rank sum test. `min` and `max` are
    those that the extremes of both can make."""
    of, to = spread_of(values), spread_of(baselines)
    spread = {
        name: of[name] / to[by] if to[by] > 0 else 0.0
        for name, by in (("median", "median"), ("min", "max"), ("max", "min"))
    }
    interval = ratio_of_medians_interval(values, baselines, seed)
    return _ratio(spread, interval, rank_sum(values, baselines))


def call_differences(table: Sequence[dict[str, Any]], noise: Sequence[float] | None) -> None:
    """Adjusts the tests of one table and calls the differences: the adjusted p is at most 5 %, the
    interval does not hold 1, and the median is outside of `noise`, the interval of a thing beside
    itself, if there is one."""
    for ratio, adjusted in zip(table, holm([ratio["p"] for ratio in table])):
        ends = ratio["interval"]
        ratio["p_adjusted"] = adjusted
        ratio["difference"] = bool(
            adjusted <= SIGNIFICANCE
            and ends is not None
            and not ends[0] <= 1 <= ends[1]
            and not (noise and noise[0] <= ratio["median"] <= noise[1])
        )
