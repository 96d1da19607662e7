"""The error of many looks, and the AUC of many nodes."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from fedmia.statistics import spending
from fedmia.statistics.auc import AucEstimate
from fedmia.statistics.spending import lower_limit, pool, spend


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
