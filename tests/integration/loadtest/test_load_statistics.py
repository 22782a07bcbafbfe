"""What `hotcount load` counts with: intervals, tests, and which differences it calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hotcount import _load_statistics as stats
from hotcount._report_numbers import can_tell, least_values

DARWIN = [6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75]
SIX = [1.0, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        # The p values were made by counting all signs in Python's itertools; scipy.stats.wilcoxon's
        # documentation has the same p for Darwin's plants.
        (DARWIN, 0.041259765625),
        ([1, 2, 3, 4, 5, 6], 0.03125),
        ([-1, -2, -3, -4, -5, -6], 0.03125),
        # Equal sizes share their ranks, and what does not differ has none.
        ([1, 1, -1, 2, 3, 3, 5], 0.0625),
        ([2.5, -1, 3, 0, 0.5, -0.2, 4, 6], 0.109375),
        ([0, 0], 1),
        ([], 1),
    ],
)
def test_the_signed_rank_test_is_exact_for_few_pairs(differences: list[float], p: float) -> None:
    assert stats.signed_rank(differences) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "others", "p"),
    [
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),
        # wilcox.test's documentation in R has the same data, with one side: 0.1272.
        (
            [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46],
            [1.15, 0.88, 0.90, 0.74, 1.21],
            0.2544122544122544,
        ),
        ([1, 2, 2, 5], [2, 3, 6], 0.4),
        ([], [1], 1),
        ([2, 2], [2, 2], 1),
    ],
)
def test_the_rank_sum_test_is_exact_for_few_values(
    values: list[float], others: list[float], p: float
) -> None:
    assert stats.rank_sum(values, others) == pytest.approx(p, rel=1e-12)


def noisy(random: np.random.Generator, count: int, middle: float, deviation: float) -> list[float]:
    """Around `middle`; their logarithms are normal with this standard deviation."""
    return [float(each) for each in middle * np.exp(random.normal(0, deviation, count))]


def test_the_approximations_for_many_meet_the_exact_tests() -> None:
    differences = [float(-size if size % 3 == 0 else size) for size in range(1, 101)]
    exact = stats.signed_rank(differences)
    # One pair more, of the least size, changes next to nothing but the way it is computed.
    assert stats.signed_rank([1, *(2 * each for each in differences)]) / exact == pytest.approx(
        1, abs=0.1
    )
    random = np.random.default_rng(3)
    values, others = noisy(random, 30, 1.1, 0.15), noisy(random, 30, 1, 0.15)
    exact = stats.rank_sum(values, others)
    more = [*others, float(np.median(others))]
    assert stats.rank_sum(values, more) / exact == pytest.approx(1, abs=0.3)


def test_least_rounds_are_those_with_which_the_test_can_reach_its_level() -> None:
    assert [stats.least_rounds(tests) for tests in (1, 2, 3, 4, 10)] == [6, 7, 7, 8, 9]


def test_a_percentile_needs_a_value_above_it() -> None:
    assert [least_values(share) for share in (0.5, 0.99, 0.9999, 0.99999)] == [
        2, 100, 10_000, 100_000,
    ]  # fmt: skip
    assert can_tell(1000, 0.999)
    assert not can_tell(999, 0.999)


@pytest.mark.parametrize(
    ("values", "spread"),
    [([5, 1, 3], (3, 1, 5)), ([4, 1, 3, 2], (2.5, 1, 4)), ([7], (7, 7, 7)), ([], (0, 0, 0))],
)
def test_a_spread_is_the_middle_and_the_ends(
    values: list[float], spread: tuple[float, ...]
) -> None:
    assert tuple(stats.spread_of(values).values()) == spread


def test_rounds_are_compared_pairwise() -> None:
    # The machine halves its speed in the second round: the ratio does not move.
    assert stats.paired_ratios([100, 50, 100], [10, 5, 10]) == [10, 10, 10]
    # A missing or empty partner takes its round out.
    assert stats.paired_ratios([100, 50], [0, 5, 9]) == [10]


def test_an_interval_needs_six_rounds_and_depends_on_the_seed_alone() -> None:
    assert stats.median_interval(SIX[:5], 1) is None
    assert stats.median_interval(SIX, 1) is not None
    assert stats.ratio_of_medians_interval(SIX, [1, 2], 1) is None
    assert stats.ratio_of_medians_interval(SIX, [0.0] * 6, 1) is None
    values = noisy(np.random.default_rng(5), 20, 100, 0.3)
    assert stats.median_interval(values, 7) == stats.median_interval(values, 7)
    assert stats.median_interval([3.5] * 8, 7) == (3.5, 3.5)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(11)
    held = 0
    for comparison in range(200):
        interval = stats.median_interval(noisy(random, 10, 100, 0.2), comparison)
        assert interval
        held += interval[0] <= 100 <= interval[1]
    # Of ten rounds the percentile bootstrap of a median holds it in 92 % of cases.
    assert 170 <= held < 200, "an interval that always holds it is too wide"


def calls(random: np.random.Generator, slower: float, deviation: float, rounds: int) -> bool:
    """Whether a difference is called in a table of one comparison, beside a control."""
    baseline, again = (noisy(random, rounds, 1000, deviation) for _ in range(2))
    other = noisy(random, rounds, 1000 * (1 - slower), deviation)
    ratio = stats.paired_ratio(other, baseline, 2)
    stats.call_differences([ratio], stats.paired_ratio(again, baseline, 1)["interval"])
    return bool(ratio["difference"])


# Of `hotcount-load compare --workload counters -s memory --rounds 100 -d 50ms --warmup 10ms -w 1`
# on two processors with nothing else to do: the logarithm of the ratio of neighbours deviates by
# 0.045, by its median.
MEASURED_NOISE = 0.032


@pytest.mark.parametrize("deviation", [0.002, MEASURED_NOISE, 0.5])
def test_a_difference_is_seldom_called_between_a_thing_and_itself(deviation: float) -> None:
    random = np.random.default_rng(21)
    assert sum(calls(random, 0, deviation, 24) for _ in range(50)) <= 6


def test_five_percent_are_found_in_the_measured_noise() -> None:
    random = np.random.default_rng(22)
    assert sum(calls(random, 0.05, MEASURED_NOISE, 24) for _ in range(50)) >= 45


def test_nothing_is_called_of_few_rounds_or_inside_of_the_noise() -> None:
    random = np.random.default_rng(23)
    assert not calls(random, 0.9, 0.001, 5)
    assert calls(random, 0.9, 0.001, 6)
    ratio: dict[str, Any] = stats.paired_ratio([11] * 7, [10] * 7, 1)
    stats.call_differences([ratio], (0.8, 1.2))
    assert not ratio["difference"], "the control differs from itself by as much"
    stats.call_differences([ratio], (0.98, 1.02))
    assert ratio["difference"]
    assert ratio["p"] == 0.015625


def test_unpaired_rounds_are_compared_by_their_medians() -> None:
    ratio = stats.unpaired_ratio([20, 22, 24, 21, 23, 20], [10, 10, 11, 12, 10, 9], 1)
    assert (ratio["median"], ratio["min"], ratio["max"]) == pytest.approx((2.15, 20 / 12, 24 / 9))
    assert ratio["interval"][0] > 1.5
    assert ratio["p"] < 0.01
    assert math.isfinite(ratio["interval"][1])
