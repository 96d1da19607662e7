"""Gradient norm: against the gradient of InfoNCE written out, and what it is not touched by."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks.grad_norm import GradNorm
from fedmia.ssl.augment import Augment
from fedmia.threat import WhiteBox

AUGMENT = Augment(hue=0.1)
CPU = torch.device("cpu")
Array = NDArray[np.float64]


def pulled(z: Array, other: Array, keys: Array, T: float) -> Array:
    """Gradient at the output `z` of InfoNCE in both directions with `other`, on paper."""
    u, v = z / np.linalg.norm(z), other / np.linalg.norm(other)
    found = np.zeros_like(u)
    for query, against in ((u, v), (v, u)):
        weights = np.exp(np.concatenate([[query @ against], keys @ query]) / T)
        p = weights / weights.sum()
        found += (p[0] - 1) * v / T  # of the positive pair, whichever of the two asks
        if query is u:
            found += p[1:] @ keys / T
    return (found - u * (u @ found)) / np.linalg.norm(z)  # through the scaling to unit length


@pytest.mark.parametrize("negatives", ["held", "queue"])
def test_score__is_minus_the_mean_norm_over_pairs(
    make_moco: Any, images: Tensor, held: Tensor, serving: Tensor, negatives: str
) -> None:
    method = make_moco()
    view = WhiteBox(copy.deepcopy(method), AUGMENT, seed=0, device=CPU, held=held)
    got = GradNorm(views=6, negatives=negatives)
    got.fit(view, None, np.random.default_rng(0))  # type: ignore[arg-type]
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
        view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
        attack = GradNorm(views=views)
        attack.fit(view, None, np.random.default_rng(0))  # type: ignore[arg-type]
        scores.append(attack.score(view, images))
        assert view.queries == 20 * views + len(held)
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)
