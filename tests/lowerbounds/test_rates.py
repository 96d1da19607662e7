"""Bounds out of an attack's two error rates: known answers, and no alarm where all is spent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from fedmia.lowerbounds.rates import RATES, TRIED, rates_bound
from fedmia.seeding import rng


def test_bound__of_scores_told_apart_is_that_of_the_smallest_rate() -> None:
    members, others = np.arange(1000, 2000.0), np.arange(1000.0)
    each = 0.05 / TRIED
    assert binom.ppf(each / 2, 1000, RATES[0]) > 0  # 1,000 resolve a rate of 1 %
    low = (each / 2) ** (1 / 1000)  # Clopper and Pearson's limit of 1,000 in 1,000
    epsilon, rate, _ = rates_bound(members, others, 1e-3, 0.05)
    assert epsilon == pytest.approx(math.log((low - 1e-3) / 0.01))
    assert rate == 0.01


def test_bound__looks_from_both_sides() -> None:
    """A tenth of the non-members lies where no member does: only "not a member" is ever sure."""
    stream = rng(0, "sides")
    members, others = stream.random(2000), stream.random(2000)
    others[:200] -= 1
    epsilon, _, says = rates_bound(members, others, 0.0, 0.05)
    assert says == "non-member" and epsilon > 1
    turned, _, says = rates_bound(-others, -members, 0.0, 0.05)
    assert says == "member" and turned == epsilon


def test_bound__is_nothing_of_ties_few_images_or_a_coin() -> None:
    stream = rng(0, "coin")
    for members, others in (
        (np.ones(500), np.ones(500)), (np.ones(3), np.zeros(3)),
        (stream.random(500), stream.random(500)),
    ):  # fmt: skip
        assert rates_bound(members, others, 0.0, 0.05)[0] == 0.0


def test_bound__exceeds_a_true_epsilon_no_more_often_than_its_level() -> None:
    """The law of members is e^epsilon times that of the others at one rate exactly, 0.1. Audits at
    a level of a half, so that few of them tell."""
    stream, epsilon = rng(0, "rates"), 1.0
    bounds = [
        rates_bound(
            stream.random(400) + (stream.random(400) < 0.1 * math.e),
            stream.random(400) + (stream.random(400) < 0.1), 0.0, 0.5,
        )[0]
        for _ in range(40)
    ]  # fmt: skip
    assert np.mean([bound > epsilon for bound in bounds]) <= 0.5
    assert np.mean(bounds) > 0.2
