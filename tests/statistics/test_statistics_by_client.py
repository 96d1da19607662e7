"""Whose image was it: the bootstrap over images against a loop, and its coverage."""

from __future__ import annotations

import numpy as np
import pytest

from fedmia.seeding import rng
from fedmia.statistics.auc import auc_estimate, auc_interval
from fedmia.statistics.by_client import interval_over_images


def test_interval__is_the_loop_over_a_thousand_draws() -> None:
    """A resampled image comes with all its pairs."""
    weights = rng(0, "weights").random((6, 9))
    wins = weights * (rng(0, "wins").random((6, 9)) < 0.6)
    got = interval_over_images(wins, weights, rng(3, "bootstrap"))
    draw = rng(3, "bootstrap")
    members = draw.multinomial(6, [1 / 6] * 6, 1000)
    others = draw.multinomial(9, [1 / 9] * 9, 1000)
    values = []
    for b in range(1000):
        rows, columns = np.repeat(range(6), members[b]), np.repeat(range(9), others[b])
        won = sum(wins[i, x] for i in rows for x in columns)
        values.append(won / sum(weights[i, x] for i in rows for x in columns))
    np.testing.assert_allclose(got, np.quantile(values, [0.025, 0.975]))


@pytest.mark.slow
def test_interval__holds_the_truth_as_often_as_it_says_where_pairs_of_an_image_agree() -> None:
    """Every client gives a non-member nearly one score, so its pairs are one observation; taken
    as independent, m K of them would give an interval too narrow."""
    covering, alone, n, m, K = 0, 0, 60, 30, 6
    for seed in range(100):
        draw = rng(seed, "coverage")
        members = draw.normal(0, 1, n)
        others = draw.normal(0, 1, (m, 1)) + draw.normal(0, 0.1, (m, K))
        client = np.arange(n) % K
        wins = (members[:, None] > others[:, client].T) / m
        interval = interval_over_images(wins, np.full((n, m), 1 / m), draw)
        assert interval is not None
        covering += interval[0] <= 0.5 <= interval[1]
        low, high = auc_interval(auc_estimate(members, others.ravel()))
        alone += low <= 0.5 <= high
    assert covering >= 89 and alone < 85
