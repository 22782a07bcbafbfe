"""The law of `hotcount load scale`, and what is said of a peak."""

from __future__ import annotations

import pytest
from hotcount._load_scale import Fit, Points, fit, fit_law

DOUBLED = (1, 2, 4, 8, 16, 32)


def points_of(law: Fit, callers: tuple[float, ...], factor: float = 1) -> list[tuple[float, float]]:
    return [(n, law.per_s(n) * factor) for n in callers]


@pytest.mark.parametrize(
    "law", [Fit(1000, 0.05, 0.001), Fit(500, 0.3, 0), Fit(20, 0, 0.01), Fit(1e6, 0, 0)]
)
def test_the_fit_finds_the_law_that_made_the_points(law: Fit) -> None:
    found = fit(points_of(law, DOUBLED))
    assert found
    assert found.per_s_of_one == pytest.approx(law.per_s_of_one, rel=1e-6)
    assert found.sigma == pytest.approx(law.sigma, abs=1e-6)
    assert found.kappa == pytest.approx(law.kappa, abs=1e-7)


def test_the_peak_is_where_throughput_is_highest() -> None:
    law = Fit(1000, 0.05, 0.001)
    peak = law.peak()
    assert peak == pytest.approx(30.8, abs=0.1)
    assert peak
    assert law.per_s(peak) > max(law.per_s(peak - 1), law.per_s(peak + 1))
    assert Fit(1000, 0.05, 0).peak() is None
    assert Fit(2.2e6, 1.09, 0).peak() == 1, "callers only wait for each other"


def test_the_fit_stays_within_its_bounds() -> None:
    # More than proportional: the first points of a machine that warms up.
    found = fit([(1, 100), (2, 230), (4, 500), (8, 1100)])
    assert found
    assert (found.sigma, found.kappa) == pytest.approx((0, 0), abs=1e-9)
    found = fit([(1, 3000), (2, 1000), (4, 900), (8, 900)])
    assert found
    assert 0 <= found.sigma <= 1


@pytest.mark.parametrize("points", [[], [(1, 10), (2, 20), (2, 21)], [(1, 10), (2, 0), (4, 30)]])
def test_nothing_is_fitted_to_too_few_points(points: Points) -> None:
    assert fit(points) is None
    assert fit_law([points], 1) is None


def test_the_law_has_intervals_around_what_made_the_rounds() -> None:
    made = Fit(1000, 0.1, 0.002)
    rounds = [
        points_of(made, DOUBLED, 1 + 0.02 * ((each * 3) % 8 - 3.5) / 3.5) for each in range(8)
    ]
    law = fit_law(rounds, 1)
    assert law
    assert law["sigma"] == pytest.approx(made.sigma, abs=0.01)
    assert law["sigma_interval"]["low"] <= law["sigma"] <= law["sigma_interval"]["high"]
    assert law["kappa_interval"]
    assert law["peak_interval"]
    assert law["peak_callers"] == pytest.approx(made.peak(), abs=0.5)
    assert fit_law(rounds, 1) == law
    few = fit_law(rounds[:2], 1)
    assert few
    assert few["sigma_interval"] is None


def test_the_law_does_not_follow_the_fastest_round() -> None:
    # Measured on a machine that was busy with other things: medians of 490, 420, 883 and 1,590.
    rates = [
        (197, 233, 197, 507), (320, 300, 500, 1200), (480, 400, 850, 1570),
        (500, 440, 916, 1610), (900, 700, 1500, 2000), (3240, 1080, 1830, 2290),
    ]  # fmt: skip
    law = fit_law([list(zip((1, 2, 4, 8), each)) for each in rates], 1)
    assert law
    found = Fit(law["lambda_per_s"], law["sigma"], law["kappa"])
    assert found.sigma < 0.5
    assert found.per_s(1) < 700, "the median of one caller is 490"
    assert found.per_s(8) > found.per_s(1), "eight callers make three times as much"
    assert law["peak_callers"] is None or law["peak_callers"] > 4


FALLS, RISES = Fit(1000, 0.02, 0.04), Fit(1000, 0.02, 0)


@pytest.mark.parametrize(
    ("rounds", "because"),
    [
        # Two callers make half of what one makes, and eight make three times as much: no law does.
        ([[(1, 500), (2, 250), (4, 900), (8, 1500), (16, 300)]] * 6, "does not fit these rounds"),
        # A half of the rounds falls beyond four callers, the other half goes on rising.
        ([points_of(law, (1, 2, 4, 8)) for law in [FALLS, RISES] * 3], "do not say where it is"),
        # Its peak is at 99 callers: nothing is said of more than twice the callers measured.
        ([points_of(Fit(1000, 0.01, 0.0001), (1, 8, 32))] * 6, None),
    ],
    ids=["misfit", "some resamples have none", "beyond"],
)
def test_no_peak_is_stated_that_the_rounds_do_not_show(
    rounds: list[Points], because: str | None
) -> None:
    law = fit_law(rounds, 1)
    assert law
    assert law["peak_callers"] is None
    assert law["peak_interval"] is None
    assert (because or "") in (law["no_peak_because"] or "")
    assert bool(because) == bool(law["no_peak_because"])
