"""Null and oracle for every attack: nothing found where nothing was learned, all of it where a
leak was planted. Together they catch leaked truth, which nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from fedmia.attacks.base import Known
from fedmia.nets.base import Backbone
from fedmia.seeding import torch_rng
from fedmia.settings import registry
from fedmia.ssl.moco import MomentumContrast
from fedmia.threat import ClientView
from tests.attacks.planted import MILD, auc_of, brisk, chance, fitted, method_of, mixing, view_of

MakeView = Callable[..., Any]
# These train a network of their own, or read many models: their turn comes with the slow tests.
COSTLY = ("ascent-climb", "ascent-static", "baseline-c", "sd-mi", "partcrop", "partcrop-v2",
          "fe-mi", "supervised-mi", "variance-only", "bavaria", "lira", "lira-rounds",
          "rmia-rounds", "semi-rounds", "rmia", "ascent-algorithm1", "sslmem", "encodermi-s",
          "encodermi-v", "all-for-one", "baseline-a", "baseline-b", "baseline-d",
          "stacking-rounds")  # fmt: skip
every_attack = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in COSTLY)) for n in registry.names("attack")],
)
# The leak planted here is one that all of these look for; test_oracles.py plants one at a time.
CHEN = [n for n in registry.names("attack") if "Chen et al." in registry.load("attack", n).paper]
chens_attack = pytest.mark.parametrize("name", [*CHEN, "grad-norm"])


# -- null: nothing was learned, so nothing may be found


@every_attack
def test_null__untrained_encoder_gives_chance(
    name: str, make_view: MakeView, make_moco: Callable[..., MomentumContrast],
    textures: Callable[..., Tensor],
) -> None:  # fmt: skip
    """Members and non-members of one distribution, and a model that saw neither. Members come
    first: an attack that reads an order is found here too."""
    n, aucs, attack = 60, [], brisk(name)
    for seed in (7, 8, 9):  # one pool alone is off by three sigma for one attack in 400
        pool = textures(2 * n + 60, seed=seed)
        view = make_view(attack, make_moco(), pool[: 2 * n])
        if attack.learns or not aucs:  # the same shadows, model and images held fit it the same
            fitted(attack, view, Known(*pool[2 * n :].chunk(2)))
        aucs.append(roc_auc_score(np.repeat([1, 0], n), attack.score(view, pool[: 2 * n])))
    assert np.mean(aucs) == chance(n, n, len(aucs))


# -- oracle: a leak is planted, so it must be found


class Memory(Backbone):
    """A trunk that recognises its members, however a view's brightness was changed.

    A view is matched to the nearest stored member in pixel space. (a) All views of a member give
    one vector, whereas two views of another image differ; (b) that vector is peaked; (c) it does
    not move with the parameters, so a member's loss does not rise under ascent.
    """

    layers = ("layer1", "layer2", "layer3", "layer4")
    width = 32

    def __init__(self, members: Tensor) -> None:
        super().__init__()
        self.members = members.flatten(1).float() / 255
        self.mix = nn.Linear(self.members.shape[1], self.width)
        with torch.no_grad():
            self.mix.weight.copy_(mixing(self.width, self.members.shape[1]))
            self.mix.bias.zero_()

    def matched(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Index of the nearest member (B,), and whether it is near enough (B, 1)."""
        far, index = torch.cdist(flat.detach(), self.members).min(dim=1)
        return index, (far < 1.2)[:, None]

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        index, member = self.matched(flat)
        remembered = 20 * nn.functional.one_hot(index % self.width, self.width).float()
        out = torch.where(member, remembered, self.mix(torch.sin(15 * flat)))
        return dict.fromkeys(self.layers, out[:, :, None, None])


@dataclass
class Oracle:
    """Members and non-members of one distribution, known ones, and the leak of all the members."""

    members: Tensor
    others: Tensor
    known: Known

    def memory(self, kind: type[Memory] = Memory) -> Memory:
        return kind(torch.cat([self.members, self.known.members]))


@pytest.fixture(scope="module")
def oracle(textures: Callable[..., Tensor]) -> Oracle:
    members, others, first, second = textures(180, seed=11).split([60, 60, 30, 30])
    return Oracle(members, others, Known(first, second))


def auc(
    oracle: Oracle, make_view: MakeView, name: str, posers: bool = False, **options: Any
) -> float:
    attack = brisk(name, **options)
    sides = oracle.others.chunk(2) if posers else (oracle.members, oracle.others)
    view = make_view(attack, method_of(oracle.memory()), torch.cat(sides), MILD)
    return auc_of(attack, view, oracle.known, *sides)


def test_oracle__knows_its_members_and_no_one_else(oracle: Oracle) -> None:
    """The leak is in the model, not in the images: every view of a member is recognised, no view
    of another image is, and the two sets differ in no pixel statistic."""
    backbone, means = oracle.memory(), []
    for group, want in ((oracle.members, True), (oracle.others, False)):
        pixels = view_of(backbone).view_pixels(group, 16).flatten(0, 1)
        assert bool((backbone.matched(pixels.flatten(1))[1] == want).all())
        means.append(group.float().mean(dim=(1, 2, 3)))
    assert roc_auc_score(np.repeat([1, 0], 60), torch.cat(means)) == chance(60, 60)


@chens_attack
def test_oracle__planted_leak_is_found(name: str, make_view: MakeView, oracle: Oracle) -> None:
    assert auc(oracle, make_view, name) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("similarity", {"pairs": "all", "classifier": "svm"}),
        ("internal", {"layers": ("layer1",)}),
        ("combined", {"classifier": "svm"}),
        ("ascent", {"reading": "rise", "steps": 5}),
        ("ascent", {"reading": "line23"}),
        ("ascent", {"reading": "level", "steps": 5, "lr": 0.1}),
        ("ascent-algorithm1", {"reading": "rise"}),
        ("ascent-static", {"loss": "algorithm1"}),
    ],
)
def test_oracle__planted_leak_is_found_in_every_reading(
    name: str, make_view: MakeView, options: dict[str, Any], oracle: Oracle
) -> None:
    assert auc(oracle, make_view, name, **options) > 0.95


@pytest.mark.slow
@chens_attack
def test_oracle__of_other_members_gives_chance(
    name: str, make_view: MakeView, oracle: Oracle
) -> None:
    """The same model, but the images posing as members were never stored: only the stored ones
    leak, so what the oracle test found was the leak and not the harness."""
    assert auc(oracle, make_view, name, posers=True) == chance(30, 30)


class Learning(Memory):
    """What it remembers of its members grows with a weight that the federation shares."""

    def __init__(self, members: Tensor) -> None:
        super().__init__(members)
        self.learnt = nn.Parameter(torch.ones(()))

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        index, member = self.matched(x.flatten(1))
        remembered = 20 * nn.functional.one_hot(index % self.width, self.width).float()
        share = torch.where(member, self.learnt, 0.0)
        out = share * remembered + (1 - share) * self.mix(torch.sin(15 * x.flatten(1)))
        return dict.fromkeys(self.layers, out[:, :, None, None])


@pytest.mark.parametrize("learns", [True, False])
def test_oracle__loss_slope_finds_what_the_rounds_learn_and_nothing_that_stays(
    oracle: Oracle, learns: bool
) -> None:
    # Remembered from the first round on, a member's loss is low but does not fall.
    method, received = method_of(oracle.memory(Learning)), {}
    for round, share in enumerate((0.0, 0.1, 0.2) if learns else (0.2, 0.2, 0.2)):
        state = method.shared_state() | {"backbone.learnt": torch.tensor(share)}
        drift = torch.randn(state["backbone.mix.bias"].shape, generator=torch_rng(round, "drift"))
        received[10 * round] = state | {"backbone.mix.bias": 0.3 * drift}
    view = view_of(method, kind=ClientView, received=received, held=oracle.known.both()[0])
    attack = registry.build("attack", "loss-slope", {})
    value = auc_of(attack, view, oracle.known, oracle.members, oracle.others)
    assert value > 0.95 if learns else value == chance(60, 60)
