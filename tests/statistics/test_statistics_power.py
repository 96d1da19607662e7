"""What images could have shown: known variances, and the power that simulation finds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from fedmia.statistics.auc import AucEstimate, auc_estimate, auc_interval
from fedmia.statistics.intervals import LEVEL, Interval, mover_difference
from fedmia.statistics.power import images_needed, planned_variance, smallest_detectable_auc


def test_planned_variance__known_answers() -> None:
    """At 0.5 Mann and Whitney's exact one; of one image a side that of a coin."""
    assert planned_variance(0.5, 40, 60) == pytest.approx(101 / (12 * 40 * 60))
    assert planned_variance(0.8, 1, 1) == pytest.approx(0.8 * 0.2)


def test_smallest_detectable_auc__is_established_four_times_in_five() -> None:
    """A factor of 2 in the variance, or a one-sided quantile, would leave the band."""
    n, m, family = 80, 120, 6
    least = smallest_detectable_auc(n, m, family)
    assert least is not None
    generator, gap = np.random.default_rng(3), norm.ppf(least) * np.sqrt(2)
    shown = 0
    for _ in range(400):
        scores = generator.normal(gap, 1, n), generator.normal(0, 1, m)
        shown += auc_interval(auc_estimate(*scores), family=family)[0] > 0.5
    assert 0.73 < shown / 400 < 0.87


def test_smallest_detectable_auc__grows_with_the_family_and_is_none_of_few() -> None:
    one, many = smallest_detectable_auc(100, 100), smallest_detectable_auc(100, 100, 20)
    assert one is not None and many is not None and 0.5 < one < many < 1
    assert smallest_detectable_auc(3, 1000) is None and smallest_detectable_auc(0, 5) is None
    with pytest.raises(ValueError, match="power"):
        smallest_detectable_auc(10, 10, power=1.0)


def test_images_needed__is_the_fewest() -> None:
    n = images_needed(0.6, 4)
    assert n is not None
    enough, fewer = (smallest_detectable_auc(k, k, 4) for k in (n, n - 1))
    assert enough is not None and fewer is not None and enough <= 0.6 < fewer
    with pytest.raises(ValueError, match="auc"):
        images_needed(0.5)


@pytest.mark.parametrize("controls", [1, 2, 3])
def test_smallest_detectable_auc__is_established_over_every_control(controls: int) -> None:
    """Of 400 estimates, by the interval of the difference from each control."""
    n, m = 160, 500
    least = smallest_detectable_auc(n, m, 4, control_family=4, controls=controls)
    assert least is not None
    draw = np.random.default_rng(1).standard_normal
    auc = least + planned_variance(least, n, m) ** 0.5 * draw(400)
    own, other = 0.5 + planned_variance(0.5, n, m) ** 0.5 * draw((2, 400))
    nulls = np.stack([own, 1 - own, other])[:controls]
    freedom = min(n, m) - 1.0

    def estimate(value: float) -> AucEstimate:
        return AucEstimate(value, planned_variance(value, n, m), freedom, float(min(n, m)))

    def ends(value: float) -> Interval:
        return auc_interval(estimate(value), LEVEL, 4)

    shown = [
        ends(a)[0] > 0.5 and all(mover_difference(a, ends(a), b, ends(b))[0] > 0 for b in row)
        for a, row in zip(auc, nulls.T, strict=True)
    ]
    assert 0.73 < np.mean(shown) < 0.87
