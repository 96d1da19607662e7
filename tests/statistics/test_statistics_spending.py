"""A watch stops false alarms, and stops where there is a leak."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from scipy.stats import norm

from fedmia.statistics import spending
from fedmia.statistics.auc import AucEstimate, auc_estimate
from fedmia.statistics.spending import lower_limit, pool, spend

RUNS, LOOKS, BOUND = 500, 10, 0.6


def stops(true: float, kept: float, seed: int, runs: int = RUNS) -> list[int | None]:
    """The look at which each of many simulated runs stops. Looks score the same images; `kept` is
    the correlation of an image's scores from look to look."""
    generator, gap = np.random.default_rng(seed), norm.ppf(true) * np.sqrt(2)
    errors, at = spend(LOOKS), list[int | None]()
    for _ in range(runs):
        own = generator.normal(0, 1, (2, 60))
        at.append(None)
        for look, error in enumerate(errors):
            fresh = generator.normal(0, 1, (2, 60))
            ours, theirs = np.sqrt(kept) * own + np.sqrt(1 - kept) * fresh
            if lower_limit(auc_estimate(ours + gap, theirs), error) > BOUND:
                at[-1] = look
                break
    return at


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.95])
def test_stops__falsely_in_at_most_one_run_of_twenty(kept: float) -> None:
    """The leak is the bound itself in every look. The same rule at 5 % in each look stops more."""
    false = sum(at is not None for at in stops(BOUND, kept, 0))
    assert false <= 0.05 * RUNS


def test_stops__falsely_where_the_error_is_not_spent() -> None:
    generator, gap, false = np.random.default_rng(0), norm.ppf(BOUND) * np.sqrt(2), 0
    for _ in range(RUNS):
        looks = (generator.normal(0, 1, (2, 60)) for _ in range(LOOKS))
        false += any(lower_limit(auc_estimate(a + gap, b), 0.05) > BOUND for a, b in looks)
    assert false > 0.15 * RUNS


def test_stops__within_one_look_of_a_leak() -> None:
    at = stops(0.85, 0.5, 1, 100)
    assert sum(look in (0, 1) for look in at) >= 95


def test_spend__is_pococks_function() -> None:
    for looks in (1, 7, 40):
        errors = spend(looks, 0.1)
        assert sum(errors) == pytest.approx(0.1) and errors == sorted(errors, reverse=True)
        for k in range(1, looks + 1):
            spent = 0.1 * np.log(1 + (np.e - 1) * k / looks)
            assert sum(errors[:k]) == pytest.approx(spent)
    for looks, alpha in ((0, 0.05), (3, 0.0), (3, 1.0)):
        with pytest.raises(ValueError, match="looks must be"):
            spend(looks, alpha)
    assert lower_limit(AucEstimate(0.99, 1e-4, 50, 50), 0.0) == 0.0


def test_pool__is_the_mean_of_independent_sets() -> None:
    one, other = AucEstimate(0.6, 0.004, 30, 20), AucEstimate(0.8, 0.002, 10, 40)
    both = pool([(one, 1.0), (other, 3.0)])
    assert both.value == pytest.approx(0.75)
    assert both.variance == pytest.approx(0.004 / 16 + 9 * 0.002 / 16)
    parts = 0.004 / 16, 9 * 0.002 / 16
    assert both.freedom == pytest.approx(
        sum(parts) ** 2 / (parts[0] ** 2 / 30 + parts[1] ** 2 / 10)
    )
    assert pool([(one, 2.0), (one, 2.0)]).smaller == pytest.approx(40)
    sure = AucEstimate(1.0, 0.0, 4, 5)
    assert pool([(sure, 1.0)] * 5).freedom == 20  # as of equal variances
    with pytest.raises(ValueError, match="no estimates"):
        pool([])


def test_example__gives_what_it_says() -> None:
    result = doctest.testmod(spending)
    assert result.attempted and not result.failed
