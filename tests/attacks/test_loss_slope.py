"""Loss slope: the least squares written out, and which rounds it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.loss_slope import LossSlope, slope
from fedmia.options.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.testing.material import earlier
from fedmia.threat import ClientView, WhiteBox

AUGMENT = Augment(hue=0.1)
CPU = torch.device("cpu")


def client(method: Any, received: dict[int, Any], held: Tensor) -> ClientView:
    return ClientView(method, AUGMENT, seed=0, device=CPU, received=received, held=held)


def fitted(view: ClientView, **options: Any) -> LossSlope:
    attack = LossSlope(**options)
    attack.fit(view, None, np.random.default_rng(0))  # type: ignore[arg-type]
    return attack


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
    got = fitted(client(method, received, held), pairs=2, negatives=negatives)
    losses = {}
    for round, state in received.items():
        method.load_shared(state)
        alone = WhiteBox(method, AUGMENT, seed=0, device=CPU, held=held)
        losses[round] = alone.losses(images, 2, negatives).double().numpy()
    want = [
        -np.polyfit(list(losses), [values[i] for values in losses.values()], 1)[0]
        for i in range(20)
    ]
    view = client(make_moco(), received, held)
    np.testing.assert_allclose(got.score(view, images), want, rtol=1e-3, atol=1e-6)


def test_score__one_round_tells_nothing_and_none_is_refused(
    make_moco: Any, images: Tensor, held: Tensor
) -> None:
    view = client(make_moco(), {5: make_moco().shared_state()}, held)
    assert (fitted(view).score(view, images) == 0).all()
    view = client(make_moco(), {}, held)
    with pytest.raises(InputError, match="loss-slope needs the models of a federation's rounds"):
        fitted(view).score(view, images)
