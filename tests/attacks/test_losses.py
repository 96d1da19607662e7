"""Attacks on the contrastive loss: its gradient written out, its slope over the rounds."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks.grad_norm import GradNorm
from fedmia.attacks.loss_slope import LossSlope, slope
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.testing.material import earlier
from fedmia.threat import ClientView
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
def test_score__is_minus_the_mean_norm_over_pairs_and_leaves_out_an_odd_view(
    make_moco: Any, images: Tensor, held: Tensor, serving: Tensor, negatives: str
) -> None:
    method = make_moco()
    view = view_of(copy.deepcopy(method), AUGMENT, held=held)
    got = fitted(GradNorm(views=7, negatives=negatives), view)
    if negatives == "held":
        method.fill_bank(serving.float() / 255)
    keys, T = method.queue.double().numpy(), method.spec.temperature
    rows = view.embed_views(images, 7).double().numpy()
    want = [
        -np.mean([
            np.linalg.norm([pulled(z[i], z[3 + i], keys, T), pulled(z[3 + i], z[i], keys, T)])
            for i in range(3)
        ])
        for z in rows
    ]  # fmt: skip
    view.queries = 0
    np.testing.assert_allclose(got.score(view, images), want, rtol=2e-4)
    assert view.queries == 20 * 7 + len(held) * (negatives == "held")


def client(method: Any, received: dict[int, Any], held: Tensor) -> Any:
    return view_of(method, AUGMENT, ClientView, received=received, held=held)


def test_slope__of_lines_is_theirs() -> None:
    at = np.array([0.0, 7.0, 13.0, 40.0])
    want = np.array([-0.5, 0.0, 2.0])
    np.testing.assert_allclose(slope(at, 3 + at[:, None] * want), want)
    assert (slope(np.array([5.0]), np.ones((1, 3))) == 0).all()


@pytest.mark.parametrize("negatives", ["held", "queue"])
def test_score__is_a_fit_for_each_image(
    make_moco: Any, images: Tensor, held: Tensor, negatives: str
) -> None:
    method, states = make_moco(), earlier(make_moco())
    received = dict(zip((10, 0, 25), states.values(), strict=True))  # in no order, unevenly spread
    losses = {}
    for round, state in received.items():
        method.load_shared(state)
        alone = view_of(method, AUGMENT, held=held)
        losses[round] = alone.losses(images, 2, negatives).double().numpy()
    want = [
        -np.polyfit(list(losses), [values[i] for values in losses.values()], 1)[0]
        for i in range(20)
    ]
    view = client(make_moco(), received, held)
    got = fitted(LossSlope(pairs=2, negatives=negatives), view).score(view, images)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)


def test_score__one_round_tells_nothing_and_none_is_refused(
    make_moco: Any, images: Tensor, held: Tensor
) -> None:
    view = client(make_moco(), {5: make_moco().shared_state()}, held)
    assert (fitted(LossSlope(), view).score(view, images) == 0).all()
    view = client(make_moco(), {}, held)
    with pytest.raises(InputError, match="loss-slope needs the models of a federation's rounds"):
        fitted(LossSlope(), view).score(view, images)
