"""SupervisedMI: the feature vector of the plain image, in a small network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from fedmia.attacks.base import Known
from fedmia.attacks.supervised_mi import SupervisedMI
from fedmia.nets.base import Backbone
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import BlackBox, Shadow

EXACT = "donot_use_mm_for_euclid_dist"
Textures = Callable[..., Tensor]


@pytest.fixture(scope="module")
def moco(make_moco: Callable[..., MomentumContrast]) -> MomentumContrast:
    return make_moco()


def a_view(method: MomentumContrast, **more: Any) -> BlackBox:
    return BlackBox(method, Augment(hue=0.1), seed=0, device=torch.device("cpu"), **more)


@pytest.mark.parametrize("layer", ["avgpool", "encoder"])
def test_inputs__are_the_features_of_the_plain_image(
    layer: str, moco: MomentumContrast, images: Tensor
) -> None:
    view = a_view(moco)
    (got,) = SupervisedMI(layer=layer).inputs(view, images)
    with torch.no_grad():
        want = moco.eval().encoder.features(images.float() / 255, [layer])[layer]
    torch.testing.assert_close(got, want)
    assert view.queries == len(images)


class Marked(Backbone):
    """A stored image's vector points along one direction, as no other's does."""

    layers = ("map",)
    width = 12

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.stored = stored.flatten(1).float() / 255
        weight = torch.randn(self.width, self.stored.shape[1], generator=torch_rng(0, "mix"))
        self.weight = weight / weight.shape[1] ** 0.5
        self.weight[5] /= 5

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        known = torch.cdist(flat, self.stored, compute_mode=EXACT).amin(dim=1) < 1e-3
        out = (flat - 0.5) @ self.weight.T
        out[:, 5] += known.float()
        return {"map": out[:, :, None, None]}


def marked(stored: Tensor, **more: Any) -> BlackBox:
    encoder = Encoder(Marked(stored), nn.Identity(), (0.0,) * 3, (1.0,) * 3)
    spec = MoCo(dim=12, queue=16, temperature=0.2)
    return a_view(MomentumContrast(encoder, spec, 16, torch_rng(0, "queue")), **more)


def test_leak__in_the_features_is_found(textures: Textures) -> None:
    pool = textures(320, seed=8)
    view, attack = marked(torch.cat([pool[:80], pool[160:240]])), SupervisedMI()
    attack.fit(view, Known(pool[:80], pool[80:160]), rng(0, "fit"))
    scores = attack.score(view, pool[160:])
    assert roc_auc_score(np.repeat([1, 0], 80), scores) > 0.95
    poser = attack.score(marked(pool[:80]), pool[160:])  # none of them stored
    assert abs(roc_auc_score(np.repeat([1, 0], 80), poser) - 0.5) < 3 * (161 / (12 * 6400)) ** 0.5


@pytest.mark.slow
def test_shadow__fits_on_the_attackers_own_encoders(textures: Textures, known: Known) -> None:
    pool, target = textures(160, seed=9), textures(160, seed=10)
    own = Shadow(marked(pool[:80]), pool[:80], pool[80:])
    view, attack = marked(target[:80], shadows=[own]), SupervisedMI(setting="shadow")
    assert not attack.learns
    attack.fit(view, known, rng(0, "fit"))
    assert roc_auc_score(np.repeat([1, 0], 80), attack.score(view, target)) > 0.95
    assert view.queries == 160
