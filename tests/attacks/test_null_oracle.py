"""Null and oracle for every attack: nothing found where nothing was learned, all of it where a
leak was planted. Together they catch leaked truth, which nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.nets.base import Backbone
from fedmia.options import registry
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import BlackBox, ClientView

MakeView = Callable[..., Any]
CPU = torch.device("cpu")
# These train a network of their own, or read many models: their turn comes with the slow tests.
COSTLY = ("ascent-static", "baseline-c", "sd-mi", "partcrop", "partcrop-v2", "fe-mi",
          "supervised-mi", "variance-only", "lira", "lira-rounds", "rmia-rounds", "rmia",
          "ascent-algorithm1", "sslmem", "encodermi-s", "encodermi-v", "all-for-one")  # fmt: skip
every_attack = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in COSTLY)) for n in registry.names("attack")],
)
# The leak planted here is one that all of these look for; test_oracles.py plants one at a time.
CHEN = [n for n in registry.names("attack") if "Chen et al." in registry.load("attack", n).paper]
chens_attack = pytest.mark.parametrize("name", [*CHEN, "grad-norm"])


def fit_score(attack: Attack, view: Any, known: Known, images: Tensor) -> Scores:
    attack.fit(view, known, rng(0, "fit"))
    return attack.score(view, images)


# -- null: nothing was learned, so nothing may be found


@every_attack
def test_null__untrained_encoder_gives_chance(
    name: str,
    make_view: MakeView,
    make_moco: Callable[..., MomentumContrast],
    textures: Callable[..., Tensor],
) -> None:
    """Members and non-members of one distribution, and a model that saw neither. Members come
    first: an attack that reads an order is found here too."""
    n, aucs = 75, []
    attack = registry.build("attack", name, {})
    for seed in (7, 8, 9):  # one pool alone is off by three sigma for one attack in 400
        pool = textures(2 * n + 80, seed=seed)
        truth = np.repeat([1, 0], n)
        view = make_view(attack, make_moco(), pool[: 2 * n])
        if attack.learns or not aucs:  # the same shadows, model and images held fit it the same
            known = Known(pool[2 * n : 2 * n + 40], pool[2 * n + 40 :])
            attack.fit(view, known, rng(0, "fit"))
        aucs.append(roc_auc_score(truth, attack.score(view, pool[: 2 * n])))
    sigma = np.sqrt((2 * n + 1) / (12 * n * n) / len(aucs))  # of the mean AUC, 0.027
    assert abs(np.mean(aucs) - 0.5) < 3 * sigma


# -- oracle: a leak is planted, so it must be found


class Memory(Backbone):
    """A trunk that recognises its members, however a view's brightness was changed.

    A view is matched to the nearest stored member in pixel space. (a) All views of a member give
    one vector, whereas two views of another image differ; (b) that vector is peaked; (c) it does
    not move with the parameters, so a member's loss does not rise under ascent.
    """

    layers = ("layer1", "layer2", "layer3", "layer4")
    width = 32
    members: Tensor

    def __init__(self, members: Tensor, channels: int, size: int, reach: float) -> None:
        super().__init__()
        inputs = channels * size * size
        self.mix = nn.Linear(inputs, self.width)
        with torch.no_grad():
            weight = torch.randn(self.width, inputs, generator=torch_rng(0, "mix"))
            self.mix.weight.copy_(weight / inputs**0.5)
            self.mix.bias.zero_()
        self.reach = reach
        self.register_buffer("members", members.flatten(1).float() / 255, persistent=False)

    def matched(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Index of the nearest member (B,), and whether it is near enough (B, 1)."""
        far, index = torch.cdist(flat.detach(), self.members).min(dim=1)
        return index, (far < self.reach)[:, None]

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        index, member = self.matched(flat)
        remembered = 20 * nn.functional.one_hot(index % self.width, self.width).float()
        out = torch.where(member, remembered, self.mix(torch.sin(15 * flat)))
        return dict.fromkeys(self.layers, out[:, :, None, None])


@pytest.fixture(scope="module")
def oracle(textures: Callable[..., Tensor]) -> dict[str, Any]:
    """Members and non-members of one distribution, and a method with a planted leak of members.

    Its views change brightness and contrast a little, and nothing else, so that a view stays
    nearer to its own image than to any other.
    """
    n = 60
    pool = textures(2 * n + 60, seed=11)
    members, others = pool[:n], pool[n : 2 * n]
    known = Known(pool[2 * n : 2 * n + 30], pool[2 * n + 30 :])
    reach = 1.2
    backbone = Memory(torch.cat([members, known.members]), 3, pool.shape[-1], reach)
    encoder = Encoder(backbone, nn.Identity(), (0.0,) * 3, (1.0,) * 3)
    spec = MoCo(dim=backbone.width, queue=16, temperature=0.2)
    return {
        "method": MomentumContrast(encoder, spec, 16, torch_rng(0, "queue")),
        "members": members, "others": others, "known": known,
        "augment": Augment(
            crop_min=1, ratio_min=1, ratio_max=1, flip=0, brightness=0.1, contrast=0.1,
            saturation=0, hue=0, jitter_p=1, gray_p=0,
        ),
    }  # fmt: skip


def test_oracle__knows_its_members_and_no_one_else(oracle: dict[str, Any]) -> None:
    """The leak is in the model, not in the images: every view of a member is recognised, no view
    of another image is, and the two sets differ in no pixel statistic."""
    view = BlackBox(oracle["method"], oracle["augment"], seed=0, device=CPU)
    backbone = oracle["method"].encoder.backbone
    for group, want in (("members", True), ("others", False)):
        pixels = view.view_pixels(oracle[group], 16).flatten(0, 1)
        assert bool((backbone.matched(pixels.flatten(1))[1] == want).all())
    means = [oracle[g].float().mean(dim=(1, 2, 3)).numpy() for g in ("members", "others")]
    auc = roc_auc_score([1] * 60 + [0] * 60, np.concatenate(means))
    assert abs(auc - 0.5) < 3 * np.sqrt(121 / (12 * 3600))


def oracle_auc(oracle: dict[str, Any], attack: Attack, make_view: MakeView) -> float:
    order = rng(0, "order").permutation(120)
    truth = np.repeat([1, 0], 60)[order]
    images = torch.cat([oracle["members"], oracle["others"]])[torch.from_numpy(order)]
    view = make_view(attack, oracle["method"], images, oracle["augment"])
    return float(roc_auc_score(truth, fit_score(attack, view, oracle["known"], images)))


@chens_attack
def test_oracle__planted_leak_is_found(
    name: str, make_view: MakeView, oracle: dict[str, Any]
) -> None:
    assert oracle_auc(oracle, registry.build("attack", name, {}), make_view) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("similarity", {"pairs": "top3"}),
        ("similarity", {"pairs": "all", "classifier": "svm"}),
        ("internal", {"layers": ("layer1",)}),
        ("combined", {"classifier": "svm"}),
        ("combined", {"classifier": "lr"}),
        ("ascent", {"reading": "rise", "steps": 5}),
        ("ascent", {"reading": "line23"}),
        ("ascent", {"reading": "level", "steps": 5, "lr": 0.1}),
        ("ascent-algorithm1", {}),
        ("ascent-algorithm1", {"reading": "rise"}),
        ("ascent-algorithm1", {"reading": "level", "pairs": 4}),
        ("ascent-static", {"batch": 8}),
        ("ascent-static", {"loss": "algorithm1"}),
    ],
)
def test_oracle__planted_leak_is_found_in_every_reading(
    name: str, make_view: MakeView, options: dict[str, Any], oracle: dict[str, Any]
) -> None:
    assert oracle_auc(oracle, registry.build("attack", name, options), make_view) > 0.95


@pytest.mark.slow
@chens_attack
def test_oracle__of_other_members_gives_chance(
    name: str, make_view: MakeView, oracle: dict[str, Any]
) -> None:
    """The same model, but the images posing as members were never stored: only the stored ones
    leak, so what the oracle test found was the leak and not the harness."""
    attack = registry.build("attack", name, {})
    images = oracle["others"]
    view = make_view(attack, oracle["method"], images, oracle["augment"])
    truth = rng(0, "poser").permutation(np.repeat([1, 0], 30))
    auc = roc_auc_score(truth, fit_score(attack, view, oracle["known"], images))
    assert abs(auc - 0.5) < 3 * np.sqrt(61 / (12 * 900))


class Learning(Memory):
    """What it remembers of its members grows with a weight that the federation shares."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.learnt = nn.Parameter(torch.ones(()))

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        index, member = self.matched(flat)
        remembered = 20 * nn.functional.one_hot(index % self.width, self.width).float()
        share = torch.where(member, self.learnt, 0.0)
        out = share * remembered + (1 - share) * self.mix(torch.sin(15 * flat))
        return dict.fromkeys(self.layers, out[:, :, None, None])


@pytest.mark.parametrize("learns", [True, False])
def test_oracle__loss_slope_finds_what_the_rounds_learn_and_nothing_that_stays(
    oracle: dict[str, Any], learns: bool
) -> None:
    members, others, known = (oracle[k] for k in ("members", "others", "known"))
    # Remembered from the first round on, a member's loss is low but does not fall.
    backbone = Learning(torch.cat([members, known.members]), 3, members.shape[-1], 1.2)
    encoder = Encoder(backbone, nn.Identity(), (0.0,) * 3, (1.0,) * 3)
    spec = MoCo(dim=backbone.width, queue=16, temperature=0.2)
    method = MomentumContrast(encoder, spec, 16, torch_rng(0, "queue"))
    received = {}
    for round, share in enumerate((0.0, 0.1, 0.2) if learns else (0.2, 0.2, 0.2)):
        state = method.shared_state() | {"backbone.learnt": torch.tensor(share)}
        drawn = torch.randn(state["backbone.mix.bias"].shape, generator=torch_rng(round, "drift"))
        received[10 * round] = state | {"backbone.mix.bias": 0.3 * drawn}
    view = ClientView(
        method, oracle["augment"], seed=0, device=CPU, received=received, held=known.both()[0]
    )
    images = torch.cat([members, others])
    scores = fit_score(registry.build("attack", "loss-slope", {}), view, known, images)
    auc = roc_auc_score(np.repeat([1, 0], 60), scores)
    sigma = np.sqrt(121 / (12 * 3600))
    assert auc > 0.95 if learns else abs(auc - 0.5) < 3 * sigma
