"""Gradient norm: against the gradient of InfoNCE written out, and what it is not touched by."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks.grad_norm import GradNorm
from fedmia.ssl.augment import Augment
from tests.attacks.planted import fitted, view_of

AUGMENT = Augment(hue=0.1)
Array = NDArray[np.float64]


def pulled(z: Array, other: Array, keys: Array, T: float) -> Array:
    """Gradient at the output `z` of InfoNCE in both directions with `other`, on paper."""
    u, v = z / np.linalg.norm(z), other / np.linalg.norm(other)
    slope = np.zeros_like(u)
    for query, against in ((u, v), (v, u)):
        weights = np.exp(np.concatenate([[query @ against], keys @ query]) / T)
        p = weights / weights.sum()
        slope += (p[0] - 1) * v / T  # of the positive pair, whichever of the two asks
        if query is u:
            slope += p[1:] @ keys / T
    return (slope - u * (u @ slope)) / np.linalg.norm(z)  # through the scaling to unit length


@pytest.mark.parametrize("negatives", ["held", "queue"])
def test_score__is_minus_the_mean_norm_over_pairs(
    make_moco: Any, images: Tensor, held: Tensor, serving: Tensor, negatives: str
) -> None:
    method = make_moco()
    view = view_of(copy.deepcopy(method), AUGMENT, held=held)
    got = fitted(GradNorm(views=6, negatives=negatives), view)
    if negatives == "held":
        method.fill_bank(serving.float() / 255)
    keys, T = method.queue.double().numpy(), method.spec.temperature
    rows = view.embed_views(images, 6).double().numpy()
    want = [
        -np.mean([
            np.linalg.norm([pulled(z[i], z[3 + i], keys, T), pulled(z[3 + i], z[i], keys, T)])
            for i in range(3)
        ])
        for z in rows
    ]  # fmt: skip
    np.testing.assert_allclose(got.score(view, images), want, rtol=2e-4)


def test_score__an_odd_view_is_left_out(make_moco: Any, images: Tensor, held: Tensor) -> None:
    scores = []
    for views in (2, 3):
        view = view_of(make_moco(), AUGMENT, held=held)
        scores.append(fitted(GradNorm(views=views), view).score(view, images))
        assert view.queries == 20 * views + len(held)
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)
