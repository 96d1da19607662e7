"""Members against non-members alike: weights and the null, against loops."""

from __future__ import annotations

import numpy as np
import pytest

from fedmia.records import FloatArray
from fedmia.seeding import rng
from fedmia.statistics.matching import effective_size, mix_weights, null_distribution


def weighted_loop(members: FloatArray, others: FloatArray, weights: FloatArray) -> float:
    """The weighted AUC, pair by pair."""
    total = 0.0
    for a in members:
        for b, w in zip(others, weights, strict=True):
            total += w * ((a > b) + 0.5 * (a == b)) / len(members)
    return total


def test_mix_weights__give_the_clients_class_shares() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2])
    weights = mix_weights(np.array([0, 1, 1, 1]), labels)
    np.testing.assert_allclose(weights, [1 / 16] * 4 + [3 / 8] * 2 + [0])
    assert effective_size(weights) == pytest.approx(1 / (4 / 16**2 + 2 * 9 / 64))
    assert effective_size(np.full(8, 1 / 8)) == pytest.approx(8)
    # A class that no label has: the others share its weight.
    shared = mix_weights(np.array([0, 0, 0, 1, 5]), np.array([1, 0, 0, 2]))
    np.testing.assert_allclose(shared, [1 / 4, 3 / 8, 3 / 8, 0])
    assert mix_weights(np.array([5]), labels).sum() == 0


def test_null_of__shrinks_where_a_class_has_too_few() -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1], 10)
    null = null_distribution(
        np.repeat([0, 1], [20, 1]), generator.normal(size=20), labels, generator
    )
    assert null is not None and null.posers == 5
    assert null_distribution(np.zeros(4, int), np.zeros(1), np.zeros(1, int), generator) is None


def test_null_of__is_a_loop_over_draws() -> None:
    """With ties, a class too small for its members, and one that has none."""
    draw = np.random.default_rng(0)
    scores, labels = np.round(draw.normal(size=60) * 2), np.repeat([0, 1, 2], [40, 15, 5])
    mix = np.repeat([0, 1, 2], [12, 3, 6])
    null = null_distribution(mix, scores, labels, rng(4, "null"))
    assert null is not None and null.posers == 5 + 1 + 2
    order = np.argsort(scores, kind="stable")
    scores, labels, stream = scores[order], labels[order], rng(4, "null")
    for got in null.aucs:
        pools = [np.flatnonzero(labels == k) for k in range(3)]
        draws = zip(pools, (5, 1, 2), strict=True)
        posing = np.concatenate([stream.choice(p, c, replace=False) for p, c in draws])
        rest = np.setdiff1d(np.arange(60), posing)
        counts = [(labels[posing] == k).sum() / (labels[rest] == k).sum() for k in labels[rest]]
        weights = np.array(counts) / np.sum(counts)
        assert got == pytest.approx(weighted_loop(scores[posing], scores[rest], weights))
