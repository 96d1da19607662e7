"""Similarity, internal layers and combination against loops transcribed from the paper."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks.base import Known
from fedmia.attacks.classifier import CLASSIFIERS, decide, fit_classifier
from fedmia.attacks.combined import Combined
from fedmia.attacks.internal import Internal, top_confidences
from fedmia.attacks.similarity import Similarity
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.ssl.moco import MomentumContrast
from fedmia.threat import WhiteBox
from tests.attacks.loops import naive_pairs, naive_views, softmax
from tests.attacks.planted import view_of

Floats = NDArray[np.float64]


@pytest.fixture
def view(method: MomentumContrast, held: Tensor) -> WhiteBox:
    return view_of(method, Augment(hue=0.1), held=held)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def naive_cosines(method: SSLMethod, view: WhiteBox, images: Tensor, M: int) -> Floats:
    """Eq. 4 over every pair of each image's views, each row sorted descending."""
    vectors = naive_views(method, view.view_pixels(images, M))
    return np.array([sorted(naive_pairs(v), reverse=True) for v in vectors])


def test_similarity__mean_needs_no_fit_and_is_the_mean_of_all_pairs(
    method: MomentumContrast, view: WhiteBox, images: Tensor, known: Known
) -> None:
    attack = Similarity(views=5)
    attack.fit(view, known, rng())
    assert view.queries == 0
    want = naive_cosines(method, view, images, 5).mean(axis=1)
    np.testing.assert_allclose(attack.score(view, images), want, atol=1e-6)
    assert view.queries == 5 * len(images)


@pytest.mark.parametrize(("pairs", "classifier"), [("all", "svm"), ("top3", "lr"), ("top3", "lda")])
def test_similarity__classifiers_see_the_sorted_cosines(
    method: MomentumContrast, view: WhiteBox, images: Tensor, known: Known,
    pairs: str, classifier: str,
) -> None:  # fmt: skip
    attack = Similarity(views=4, pairs=pairs, classifier=classifier)
    attack.fit(view, known, rng())

    def table(x: Tensor) -> Floats:
        rows = naive_cosines(method, view, x, 4)
        return rows[:, :3] if pairs == "top3" else rows

    both, truth = known.both()
    assert truth.tolist() == [1] * 12 + [0] * 10
    model = fit_classifier(classifier, table(both), truth)
    np.testing.assert_allclose(
        attack.score(view, images), decide(model, table(images)), atol=1e-3, rtol=1e-3
    )


def test_top_confidences__naive_twin_and_known_answers() -> None:
    outputs = 5 * torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    for row, got in zip(outputs.double().tolist(), top_confidences(outputs, 3), strict=True):
        want = sorted(softmax(row), reverse=True)[:3]
        np.testing.assert_allclose(np.exp(got), want, rtol=1e-10)
    even = top_confidences(torch.zeros(2, 8), 3)
    np.testing.assert_allclose(even, np.full((2, 3), -math.log(8)))
    peaked = top_confidences(torch.tensor([[800.0, 0.0, -800.0]]), 3)
    np.testing.assert_allclose(peaked, [[0.0, -800.0, -1600.0]])  # no underflow to -inf
    assert top_confidences(torch.zeros(4, 2), 5).shape == (4, 2)


def test_internal__equation_6_over_each_named_layer(
    method: MomentumContrast, view: WhiteBox, images: Tensor, known: Known
) -> None:
    layers = ("layer4", "avgpool", "encoder")
    attack = Internal(layers=layers, top=2)
    attack.fit(view, known, rng())

    @torch.no_grad()
    def table(x: Tensor) -> Floats:
        rows = []
        for image in x:
            features = method.encoder.features(image[None].float() / 255, layers)
            row: list[float] = []
            for name in layers:
                confidence = softmax(features[name].flatten().double().tolist())
                row += [math.log(p) for p in sorted(confidence, reverse=True)[:2]]
            rows.append(row)
        return np.array(rows)

    both, truth = known.both()
    model = fit_classifier("lr", table(both), truth)
    np.testing.assert_allclose(attack.score(view, images), decide(model, table(images)), atol=1e-3)
    assert view.queries == len(both) + len(images)


@pytest.mark.parametrize("negatives", ["held", "queue"])
def test_combined__equation_7_features_by_hand(
    method: MomentumContrast, view: WhiteBox, images: Tensor, known: Known, held: Tensor,
    serving: Tensor, negatives: str,
) -> None:  # fmt: skip
    attack = Combined(views=4, negatives=negatives)
    attack.fit(view, known, rng())
    view.queries = 0
    names, table = attack.features(view, images)
    assert names == ("cosine similarity", "contrastive loss", "highest confidence")
    bank = len(held) if negatives == "held" else 0
    assert view.queries == len(images) * 4 + bank
    pixels = view.view_pixels(images, 4)
    vectors, cosines = naive_views(method, pixels), naive_cosines(method, view, images, 4)
    observer = copy.deepcopy(method)
    if negatives == "held":
        observer.fill_bank(serving.float() / 255)
    for i, row in enumerate(table):
        assert row[0] == pytest.approx(cosines[i].mean(), abs=1e-6)
        with torch.no_grad():
            losses = [
                float(observer.probe_losses(pixels[p, i][None], pixels[2 + p, i][None]))
                for p in (0, 1)
            ]
        assert row[1] == pytest.approx(np.mean(losses), abs=1e-5)
        best = [max(softmax(v.double().tolist())) for v in vectors[i]]
        assert row[2] == pytest.approx(np.mean(best), abs=1e-6)
    both, truth = known.both()
    model = fit_classifier("lda", attack.features(view, both)[1], truth)
    np.testing.assert_allclose(attack.score(view, images), decide(model, table))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier__higher_means_member_whatever_the_units(name: str) -> None:
    """And beside a feature that is constant."""
    draw = rng()
    truth = np.repeat([1, 0], 60).astype(np.int64)
    features = np.hstack([draw.normal(size=(120, 3)) + 4 * truth[:, None], np.ones((120, 1))])
    for scale in (1.0, 1e-4, 1e4):
        model = fit_classifier(name, features * scale, truth)
        values = decide(model, features * scale)
        assert values.dtype == np.float64
        assert values[truth == 1].mean() > 0 > values[truth == 0].mean()
        assert ((values > 0) == (truth == 1)).mean() > 0.95
        flipped = decide(fit_classifier(name, features * scale, 1 - truth), features * scale)
        assert flipped[truth == 1].mean() < 0 < flipped[truth == 0].mean()
