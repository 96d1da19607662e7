"""torch's optimizers without its compiler: the same numbers, and no import of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.runtime import eager

ALIKE: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "foreach": True}),
    ("SGD", {"lr": 0.1}),
    ("Adam", {"lr": 0.01, "fused": True}),
    ("AdamW", {"lr": 0.01, "betas": (0.8, 0.99), "weight_decay": 0.1, "foreach": True}),
]


def trained(optimizer: Any, weights: list[Tensor]) -> list[Tensor]:
    """The weights after a few steps, the last by a closure, at another rate and with another
    group of weights from the second on."""
    for step in range(4):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss = sum(((step + 1) * w).sin().square().sum() for w in weights)
        loss.backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5
        if step == 0:
            optimizer.add_param_group({"params": [weights[-1]]})

    def closure() -> float:
        optimizer.zero_grad()
        loss = sum(w.cos().sum() for w in weights)
        loss.backward()
        return float(loss.detach())

    with torch.enable_grad():
        assert isinstance(optimizer.step(closure), float)
    return [w.detach().clone() for w in weights]


@pytest.mark.parametrize(("name", "options"), ALIKE)
def test_step__bit_for_bit_that_of_torch(name: str, options: dict[str, Any]) -> None:
    sides = []
    for source in (torch.optim, eager):
        generator = torch.Generator().manual_seed(0)
        weights = [torch.randn(5, 3, generator=generator).requires_grad_() for _ in range(3)]
        before = [w.detach().clone() for w in weights]
        sides.append(trained(getattr(source, name)(weights[:2], **options), weights))
        assert not any(torch.equal(a, b) for a, b in zip(before, sides[-1], strict=True))
    assert all(torch.equal(theirs, ours) for theirs, ours in zip(*sides, strict=True))


UNUSED = """
import sys, torch
from fedmia.nets.base import check_network
from fedmia.nets.vit import ViTTiny
from fedmia.settings import registry
from fedmia.runtime import eager
from fedmia.ssl.base import TrainingData
from fedmia.ssl.optimizers import OPTIMIZERS, build
makers = [lambda w, n=n: build(n, w, lr=.1, momentum=.9, beta2=.9, decay=.1) for n in OPTIMIZERS]
makers += [lambda w: eager.Adam(w, lr=.1, fused=True), lambda w: eager.SGD(w, lr=.1)]
for make in makers:
    weights = [torch.ones(3, 3, requires_grad=True)]
    optimizer = make(weights)
    optimizer.zero_grad()
    weights[0].sin().sum().backward()
    optimizer.step()
for name in registry.names("ssl"):
    def network():
        recipe = TrainingData((.5,) * 3, (.25,) * 3)
        method = registry.build("ssl", name, {})
        methods.append(method.build(ViTTiny().build(3, 32), recipe, torch.Generator()))
        return methods[-1]
    methods = []
    check_network("a file", network, 1 << 30)
    assert all(tensor.is_meta for tensor in methods[0].state_dict().values()), name
sys.exit("torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
def test_compiler__is_not_imported() -> None:
    subprocess.run([sys.executable, "-c", UNUSED], check=True)
