"""The signals of LiRA and RMIA against loops over an encoder's outputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks._measure import EDGE, MembershipSignal, log_picked, logit
from fedmia.attacks.base import Known
from fedmia.options.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.threat import BlackBox
from tests.attacks.loops import naive_pairs, naive_similarity
from tests.attacks.planted import view_of


@pytest.fixture
def view(make_moco: Callable[..., Any]) -> BlackBox:
    box: BlackBox = view_of(make_moco(), Augment(hue=0.1), BlackBox)
    return box


def cosine(a: Tensor, b: Tensor) -> float:
    return naive_similarity(a.double().tolist(), b.double().tolist())


def test_similarity__is_the_mean_cosine_from_0_to_1(view: BlackBox, images: Tensor) -> None:
    got = MembershipSignal("similarity", 4, "auto", 0.2)(view, images, images[:0])
    assert view.queries == 4 * 20
    for row, p in zip(view.embed_views(images, 4), got, strict=True):
        mean = float(np.mean(naive_pairs(row)))
        assert p == pytest.approx((1 + mean) / 2)
        assert logit(np.array([p]))[0] == pytest.approx(2 * math.atanh(mean), rel=1e-4)


def test_loss__is_the_chance_of_picking_the_other_view(
    view: BlackBox, images: Tensor, known: Known
) -> None:
    """Of the image itself no negative is made, though it may be among the known."""
    others = torch.cat([known.nonmembers, images[3:5]])
    got = MembershipSignal("loss", 5, "auto", 0.3)(view, images, others)
    assert view.queries == 5 * 20 + 12
    keys = view.embed_plain(others)
    for i, row in enumerate(view.embed_views(images, 5)):
        picked = []
        for j in range(2):
            right = math.exp(cosine(row[j], row[2 + j]) / 0.3)
            wrong = [
                math.exp(cosine(row[j], key) / 0.3)
                for key, image in zip(keys, others, strict=True)
                if not torch.equal(image, images[i])
            ]
            picked.append(right / (right + sum(wrong)))
        assert got[i] == pytest.approx(math.prod(picked) ** 0.5, rel=1e-6)


def test_norm__is_relative_to_the_known_images(
    view: BlackBox, images: Tensor, known: Known
) -> None:
    got = MembershipSignal("norm", 2, "auto", 0.2)(view, images, known.members)
    assert view.queries == 20 + 12
    typical = math.prod(float(v.norm()) for v in view.embed_plain(known.members, "avgpool"))
    typical **= 1 / len(known.members)
    norms = view.embed_plain(images, "avgpool").norm(dim=1).tolist()
    np.testing.assert_allclose(got, [typical / (typical + n) for n in norms], rtol=1e-5)
    assert np.argmax(got) == np.argmin(norms)


def test_measure__stays_off_the_edges(images: Tensor) -> None:
    class Flat(BlackBox):
        def embed_views(self, images: Tensor, views: int, *rest: Any) -> Tensor:
            return torch.ones(len(images), views, 3)

    view = Flat.__new__(Flat)
    got = MembershipSignal("similarity", 4, "auto", 0.2)(view, images, images)
    assert (got == 1 - EDGE).all() and np.isfinite(logit(got)).all()


@pytest.mark.parametrize(("signal", "count"), [("loss", 1), ("norm", 0)])
def test_measure__needs_known_images(
    signal: str, count: int, view: BlackBox, images: Tensor
) -> None:
    with pytest.raises(InputError, match=f"'{signal}' needs at least"):
        MembershipSignal(signal, 4, "auto", 0.2)(view, images[5:], images[:count])


def test_log_picked__of_equal_vectors_is_chance() -> None:
    keys = torch.nn.functional.normalize(torch.ones(9, 4, dtype=torch.float64), dim=1)
    got = log_picked(torch.ones(3, 6, 4), keys, torch.zeros(3, 9, dtype=torch.bool), 0.2)
    np.testing.assert_allclose(got, math.log(1 / 10))
