"""Every method and optimizer on a device that is not the CPU.

torch's `meta` device stands for a GPU: it computes shapes alone, and refuses as a GPU does to
compute with tensors that were left on the CPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedmia.nets.vit import ViTTiny
from fedmia.seeding import torch_rng
from fedmia.settings import registry
from fedmia.ssl.base import SSLMethod, TrainingData
from fedmia.ssl.optimizers import OPTIMIZERS
from fedmia.ssl.progress import load_training, training_state
from fedmia.ssl.train import Train, make_optimizer

HARDER: dict[str, dict[str, Any]] = {name: {} for name in registry.names("ssl")}
HARDER |= {name: {"mixup": 1.0, "adversarial": 0.03} for name in ("moco", "simclr", "byol")}
HARDER["swav"] = {"queue": 0}  # which rows a queue holds is no question of shapes
ELSEWHERE = torch.device("meta")
pytestmark = pytest.mark.slow  # the first step there imports much of torch


def method_elsewhere(name: str) -> SSLMethod:
    training_data, draw = TrainingData((0.5,) * 3, (0.25,) * 3, 40), torch_rng(0, "test")
    method: SSLMethod = registry.build("ssl", name, HARDER[name]).build(
        ViTTiny(width=16, heads=2, depth=4).build(3, 16), training_data, draw
    )
    method.begin_first_round()
    return method.to(ELSEWHERE)


@pytest.mark.parametrize("name", HARDER)
def test_step__leaves_no_tensor_on_the_cpu(name: str) -> None:
    method, views = method_elsewhere(name), torch.rand(4, 3, 16, 16, device=ELSEWHERE)
    method.step_losses(views, views).mean().backward()
    make_optimizer(method, Train(lr=0.1)).step()
    method.after_step()
    if name != "swav":
        outputs = method.encoder(views)
        assert method.output_losses(outputs, outputs).is_meta
    assert all(tensor.is_meta for tensor in method.state_dict().values())
    assert all(tensor.is_meta for tensor in method.shared_state().values())


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training__goes_on_where_the_weights_are(name: str) -> None:
    """Progress is read to the CPU."""
    method = method_elsewhere("moco")
    optimizer = make_optimizer(method, Train(lr=0.1, optimizer=name))
    for weight in method.trainable():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    before = training_state(method, optimizer)
    read = {n: torch.zeros(t.shape, dtype=t.dtype) for n, t in before.items()}
    load_training(method, read, optimizer)
    after = training_state(method, optimizer)
    assert after.keys() == before.keys() and any(n.startswith("optimizer.") for n in after)
    assert {n: t.device for n, t in after.items()} == {n: t.device for n, t in before.items()}
    optimizer.step()
