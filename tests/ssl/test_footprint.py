"""Bytes of a training in a step, against sums by hand and against what torch counts itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmia.nets.base import Backbone
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.ssl.base import TrainingData
from fedmia.ssl.footprint import size, training_bytes
from fedmia.ssl.train import Job, Train, make_optimizer

IMAGES, PIXELS, BATCH = 12, 8, 5


class OneLayer(Backbone):
    """One linear map of the pixels: what autograd saves of it can be counted by hand."""

    layers = ()

    def __init__(self) -> None:
        super().__init__()
        self.map, self.width = nn.Linear(3 * PIXELS * PIXELS, 7, bias=False), 7

    def forward(self, pixels: Tensor) -> Tensor:
        out: Tensor = self.map(pixels.flatten(1))
        return out


def make_job(name: str, backbone: Backbone, batch: int = BATCH, **options: Any) -> Job:
    spec = registry.build("ssl", name, {"dim": 4, **options})
    data = TrainingData((0.5,) * 3, (0.5,) * 3, IMAGES, batch=batch)
    method = spec.build(backbone, data, torch_rng(0, "test"))
    train = Train(local_epochs=1, batch_size=batch).fill_rate(0.01)
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, 3, PIXELS, PIXELS), np.uint8)
    return Job(
        method, make_optimizer(method, train), images, spec.augment, train, rng(0, "test"), 0, 10,
        torch.device("cpu"),
    )  # fmt: skip


def test_parts__of_moco_are_the_sums_by_hand() -> None:
    job = make_job("moco", OneLayer(), queue=6)
    parts = training_bytes(job)
    floats = sum(w.numel() for w in job.method.encoder.parameters())
    assert parts["weights"] == parts["gradients"] == parts["momenta"] == 4 * floats
    constants = 2 * 2 * 3  # mean and deviation of each channel, of both encoders
    assert parts["momentum_encoder"] == 4 * (floats + constants)
    assert parts["bank"] == 4 * 6 * 4
    assert parts["views"] == 4 * 2 * IMAGES * 3 * PIXELS**2  # of all batches drawn at once


def test_activations__are_what_the_layers_save_and_grow_with_the_batch() -> None:
    few, many = (
        training_bytes(make_job("simclr", OneLayer(), batch))["activations"] for batch in (4, 12)
    )
    one = 4 * 3 * PIXELS**2 * 2  # the normalised pixels of both views, which the map's weights need
    assert few > 4 * one and many > 12 * one
    assert many - few < 8 * one * 2 and many / few == pytest.approx(3, rel=0.2)


def test_activations__of_a_network_are_those_that_hooks_of_its_layers_see() -> None:
    """A twin: of all outputs of the layers, most are needed on the way back, and little else is."""
    net = registry.build("model", "smallnet", {"width": 8}).build(3, PIXELS)
    job, saved = make_job("simclr", net), dict[int, Tensor]()

    def note(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        saved[id(output)] = output

    hooks = [m.register_forward_hook(note) for m in net.modules() if not [*m.children()]]
    parts = training_bytes(job)
    for hook in hooks:
        hook.remove()
    assert 0.6 * size(saved.values()) <= parts["activations"] <= size(saved.values())
