"""SupervisedMI: the feature vector of the plain image, in a small network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Known
from fedmia.attacks.supervised_mi import SupervisedMI
from fedmia.nets.base import Backbone
from fedmia.statistics.auc import auc
from fedmia.threat import Shadow
from tests.attacks.planted import EXACT, auc_of, chance, mixing, view_of

Textures = Callable[..., Tensor]


@pytest.mark.parametrize("layer", ["avgpool", "encoder"])
def test_inputs__are_the_features_of_the_plain_image(
    layer: str, make_moco: Any, images: Tensor
) -> None:
    moco = make_moco()
    (got,) = SupervisedMI(layer=layer).inputs(view_of(moco), images)
    with torch.no_grad():
        want = moco.eval().encoder.features(images.float() / 255, [layer])[layer]
    torch.testing.assert_close(got, want)


class Marked(Backbone):
    """A stored image's vector points along one direction, as no other's does."""

    layers = ("map",)
    width = 12

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.stored = stored.flatten(1).float() / 255
        self.weight = mixing(self.width, self.stored.shape[1])
        self.weight[5] /= 5

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        known = torch.cdist(flat, self.stored, compute_mode=EXACT).amin(dim=1) < 1e-3
        out = (flat - 0.5) @ self.weight.T
        out[:, 5] += known.float()
        return {"map": out[:, :, None, None]}


def test_leak__in_the_features_is_found(textures: Textures) -> None:
    pool = textures(320, seed=8)
    known, members, others = Known(pool[:80], pool[80:160]), pool[160:240], pool[240:]
    view, attack = view_of(Marked(torch.cat([known.members, members]))), SupervisedMI()
    assert auc_of(attack, view, known, members, others) > 0.95
    poser = view_of(Marked(known.members))  # none of them stored
    assert auc(*(attack.score(poser, side) for side in (members, others))) == chance(80, 80)


@pytest.mark.slow
def test_shadow__fits_on_the_attackers_own_encoders(textures: Textures, known: Known) -> None:
    pool, target = textures(160, seed=9), textures(160, seed=10)
    shadow = Shadow(view_of(Marked(pool[:80])), pool[:80], pool[80:])
    view, attack = view_of(Marked(target[:80]), shadows=[shadow]), SupervisedMI(setting="shadow")
    assert not attack.learns
    assert auc_of(attack, view, known, target[:80], target[80:]) > 0.95
    assert view.queries == 160
