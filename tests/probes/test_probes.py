"""Probes against loops and against data whose answer is known."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fedmia.probes.pixels import pixel_features, pixel_scores
from fedmia.probes.utility import knn_accuracy, linear_accuracy, mean_cosine, weighted_knn


def blobs(count: int, seed: int, apart: float) -> tuple[Tensor, Tensor]:
    """Three Gaussian classes in five dimensions, their centres `apart` along the axes."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, count)
    features = draw.normal(size=(count, 5)) + apart * np.eye(5)[labels]
    return torch.from_numpy(features).float(), torch.from_numpy(labels)


@pytest.mark.parametrize(("k", "T"), [(1, 0.1), (5, 0.1), (7, 1.0), (100, 0.5)])
def test_weighted_knn__naive_twin(k: int, T: float) -> None:
    bank, labels = blobs(30, 0, 1.0)
    features, _ = blobs(25, 1, 1.0)
    got = weighted_knn(bank, labels, features, k, T)
    for query, predicted in zip(features.double().numpy(), got.tolist(), strict=True):
        cosines = []
        for row in bank.double().numpy():
            cosines.append(query @ row / math.sqrt(query @ query) / math.sqrt(row @ row))
        nearest = sorted(range(30), key=lambda i: -cosines[i])[:k]
        votes = [0.0, 0.0, 0.0]
        for i in nearest:
            votes[int(labels[i])] += math.exp(cosines[i] / T)
        assert predicted == max(range(3), key=votes.__getitem__)


def test_knn__nearer_neighbours_weigh_more() -> None:
    bank = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    labels = torch.tensor([0, 1, 1])
    query = torch.tensor([[1.0, 0.1]])
    assert weighted_knn(bank, labels, query, k=3, T=0.1).tolist() == [0]
    assert weighted_knn(bank, labels, query, k=3, T=100.0).tolist() == [1]  # a plain majority


def test_knn__length_of_features_plays_no_part() -> None:
    bank, labels = blobs(40, 0, 1.0)
    features, _ = blobs(20, 1, 1.0)
    want = weighted_knn(bank, labels, features)
    assert torch.equal(weighted_knn(bank * 7, labels, features * 0.01), want)


def test_probes__known_answers() -> None:
    train, train_labels = blobs(300, 0, 50.0)
    test, test_labels = blobs(200, 1, 50.0)
    assert knn_accuracy(train, train_labels, test, test_labels) == 1.0
    assert linear_accuracy(train, train_labels, test, test_labels) == 1.0
    wrong = (test_labels + 1) % 3
    assert knn_accuracy(train, train_labels, test, wrong) == 0.0
    assert linear_accuracy(train, train_labels, test, wrong) == 0.0


def test_probes__chance_where_features_say_nothing() -> None:
    train, train_labels = blobs(400, 0, 0.0)
    test, test_labels = blobs(600, 1, 0.0)
    sigma = math.sqrt(1 / 3 * 2 / 3 / 600)
    assert abs(knn_accuracy(train, train_labels, test, test_labels) - 1 / 3) < 4 * sigma
    assert abs(linear_accuracy(train, train_labels, test, test_labels) - 1 / 3) < 4 * sigma


def test_linear__needs_no_scaling_and_depends_on_no_order() -> None:
    train, train_labels = blobs(100, 0, 2.0)
    test, test_labels = blobs(100, 1, 2.0)
    scale, offset = torch.tensor([1e-3, 1e3, 1.0, 5.0, 0.1]), 100.0
    want = linear_accuracy(train, train_labels, test, test_labels)
    got = linear_accuracy(
        (train + offset) * scale, train_labels, (test + offset) * scale, test_labels
    )
    assert 0.6 < want < 1 and got == pytest.approx(want, abs=0.02)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert linear_accuracy(train[order], train_labels[order], test, test_labels) == pytest.approx(
        want, abs=0.011
    )


def test_linear__one_class_is_predicted_everywhere() -> None:
    train, test = blobs(10, 0, 1.0)[0], blobs(4, 1, 1.0)[0]
    labels = torch.zeros(10, dtype=torch.int64)
    assert linear_accuracy(train, labels, test, torch.tensor([0, 1, 0, 0])) == 0.75


def shift_auc(pool: Tensor, moved: Tensor) -> float:
    """AUC of the pixels-only classifier, fitted on 60 known a side, on 100 others a side."""
    scores = pixel_scores(pool[:60], moved[:60], torch.cat([pool[60:160], moved[60:160]]))
    assert scores.shape == (200,) and scores.dtype == np.float64
    return float(roc_auc_score([1] * 100 + [0] * 100, scores))


def test_pixels__chance_where_the_sets_are_alike(textures: Callable[..., Tensor]) -> None:
    pool = textures(320)
    assert abs(shift_auc(pool[:160], pool[160:]) - 0.5) < 3 * math.sqrt(201 / (12 * 100 * 100))


@pytest.mark.parametrize("shift", ["brighter", "smoother", "flatter"])
def test_pixels__see_a_shift_between_the_sets(textures: Callable[..., Tensor], shift: str) -> None:
    pool = textures(320)
    moved = pool[160:].float()
    if shift == "brighter":
        moved = moved + 60
    elif shift == "smoother":
        moved = torch.nn.functional.avg_pool2d(moved, 3, 1, 1)
    else:
        moved = 128 + (moved - 128) / 2
    assert shift_auc(pool[:160], moved.clamp(0, 255).to(torch.uint8)) > 0.9


def test_pixels__features_of_any_size_and_channels() -> None:
    for channels, side, width in ((1, 4, 16 + 4), (1, 8, 64 + 4), (3, 32, 3 * 64 + 4)):
        images = torch.zeros(2, channels, side, side, dtype=torch.uint8)
        images[1] = 255
        features = pixel_features(images)
        assert features.shape == (2, width)
        np.testing.assert_allclose(features[0], 0)
        np.testing.assert_allclose(features[1, :-3], 1)  # pixels and their mean
        np.testing.assert_allclose(features[1, -3:], 0)  # spread and roughness


def test_mean_cosine__is_the_loop_over_pairs() -> None:
    features = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    pairs = [
        float(torch.cosine_similarity(features[i], features[j], dim=0))
        for i in range(7)
        for j in range(7)
        if i != j
    ]
    assert mean_cosine(features) == pytest.approx(np.mean(pairs), abs=1e-6)
    assert mean_cosine(torch.ones(4, 3) * torch.tensor([[1.0], [2], [3], [4]])) == pytest.approx(1)


def test_linear__of_many_classes_warns_of_nothing() -> None:
    draw = np.random.default_rng(0)
    train, labels = torch.from_numpy(draw.normal(size=(240, 4))), torch.arange(240) % 200
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        linear_accuracy(train, labels, train, labels)
