"""Networks from outside under DP-SGD: a layer that it cannot take is named before the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmia.defenses.base import Defense
from fedmia.defenses.dpsgd import DPSGD
from fedmia.defenses.logit_dp import LogitDP
from fedmia.nets.smallnet import SmallConvNet, SmallNet
from fedmia.seeding import rng, torch_rng
from fedmia.settings.errors import InputError
from fedmia.simulate import main
from fedmia.ssl.base import SSL, SSLMethod, TrainingData
from fedmia.ssl.byol import BYOL
from fedmia.ssl.dino import DINO
from fedmia.ssl.moco import MoCo
from fedmia.ssl.simclr import SimCLR
from fedmia.ssl.train import Job, Train, make_optimizer

Change = Callable[[SmallConvNet], object]


class BatchMean(nn.Module):
    """No norm layer by its type."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0, keepdim=True)


class Scale(nn.Module):
    """A weight that no layer of torch's holds."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by


def frozen(part: str, parameter: str) -> Change:
    return lambda net: getattr(net.get_submodule(part), parameter).requires_grad_(False)


def replaced(part: str, layer: nn.Module) -> Change:
    return lambda net: net.set_submodule(part, layer)


def method(spec: SSL, change: Change, images: int | None = None) -> SSLMethod:
    net = SmallNet(width=4).build(3, 8)
    change(net)
    training_data = TrainingData((0.5,) * 3, (0.25,) * 3, images)
    built: SSLMethod = spec.build(net, training_data, torch_rng(0, "layers"))
    return built


PLAIN = BYOL(head_norm="none")


MIXES = "layer 'encoder.backbone.layer2.1' mixes"


REFUSED = {
    "frozen weight": (frozen("layer2.0", "weight"), "weight 'backbone.layer2.0.weight' is frozen"),
    "frozen bias": (frozen("layer2.1", "bias"), "weight 'backbone.layer2.1.bias' is frozen"),
    "unused": (
        lambda net: net.add_module("more", nn.Linear(2, 2)),
        "weight 'backbone.more.weight' is not used",
    ),
    "batch norm": (replaced("layer2.1", nn.BatchNorm2d(8)), MIXES),
    "batch norm without state": (
        replaced("layer2.1", nn.BatchNorm2d(8, affine=False, track_running_stats=False)), MIXES,
    ),
    "batch mean": (replaced("layer2.2", BatchMean()), "a layer of the network mixes"),
    "buffers": (
        replaced("layer2.1", nn.InstanceNorm2d(8, affine=True, track_running_stats=True)),
        "no gradient of one image can be found: .*encoder.backbone.layer2.1:InstanceNorm2d",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_dpsgd__names_the_layer_that_it_cannot_take(what: str) -> None:
    """Logit-DP's loss couples outputs, and its network no images either."""
    change, said = REFUSED[what]
    for defense, spec in ((DPSGD(), PLAIN), (LogitDP(), SimCLR())):
        trial = method(spec, change)
        before = {n: t.clone() for n, t in trial.state_dict().items()}
        with pytest.raises(InputError, match=said):
            defense.check_method(trial, 3, 8)
        assert all(torch.equal(t, before[n]) for n, t in trial.state_dict().items())


@pytest.mark.parametrize(("defense", "spec"), [(DPSGD(), PLAIN), (LogitDP(), SimCLR())])
def test_dpsgd__refuses_steps_that_minimise_more_than_the_losses(
    defense: Defense, spec: SSL
) -> None:
    """A method from outside: it would train without what its steps add, in silence."""
    trial = method(spec, id)

    def step_losses(self: SSLMethod, view1: Tensor, view2: Tensor) -> Tensor:
        return self.losses(view1, view2) + self.encoder(view1).square().sum(dim=1)

    trial.__class__ = type("Longer", (type(trial),), {"step_losses": step_losses})
    with pytest.raises(InputError, match=r"what Longer\.step_losses adds has no gradient"):
        defense.check_method(trial, 3, 8)
    train, images = Train(), np.zeros((4, 3, 8, 8), np.uint8)
    optimizer, device = make_optimizer(trial, train), torch.device("cpu")
    job = Job(trial, optimizer, images, spec.augment, train, rng(0, "layers"), 0, 1, device)
    with pytest.raises(InputError, match=r"what Longer\.step_losses adds has no gradient"):
        defense.train(job, {})


@pytest.mark.parametrize(
    ("defense", "spec", "change", "images"),
    [
        (DPSGD(), PLAIN, replaced("layer2.2", Scale()), None),
        (DPSGD(), MoCo(), id, None),
        (DPSGD(), DINO(head_norm="none", prototypes=8, freeze_epochs=1), id, 12),
        (LogitDP(), SimCLR(), id, None),
        (LogitDP(), PLAIN, id, None),
    ],
)
def test_check__lets_pass_what_has_a_gradient_of_each_image(
    defense: Defense, spec: SSL, change: Change, images: int | None
) -> None:
    """Prototypes that stay still at first have one, of zeros; `id` changes nothing."""
    defense.check_method(method(spec, change, images), 3, 8)


@dataclass(frozen=True)
class OwnNorm(SmallNet):
    """Batch norm that no option names."""

    def build(self, channels: int, size: int) -> SmallConvNet:
        net = super().build(channels, size)
        net.set_submodule("layer1.1", nn.BatchNorm2d(self.width))
        return net


def test_run__is_refused_before_anything_is_written(tmp_path: Path, capsys: Any) -> None:
    flags = "--clients 2 --split.members 24 --split.nonmembers 40 --split.known 6 --split.test 20"
    own = ["--model", f"{__name__}:OwnNorm", "--defense", "dpsgd", "--out", str(tmp_path / "run")]
    assert main([*flags.split(), *own]) == 2
    said = capsys.readouterr().err
    assert "defense dpsgd: layer 'encoder.backbone.layer1.1' mixes the images of a batch" in said
    assert not (tmp_path / "run").exists()
