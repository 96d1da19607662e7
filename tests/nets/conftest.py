"""What every encoder is checked for: gradients of each image, and an export."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture
def per_sample() -> Callable[[nn.Module, Tensor], None]:
    """Asserts that Opacus' gradients of each image equal those of a loop."""
    opacus = pytest.importorskip("opacus")

    def check(net: nn.Module, x: Tensor) -> None:
        loop = []
        for image in x:
            net.zero_grad()
            net(image[None]).square().sum().backward()
            loop.append([p.grad.clone() for p in net.parameters()])
        net.zero_grad()
        hooked = opacus.GradSampleModule(net, loss_reduction="sum", strict=True)
        hooked(x).square().sum().backward()
        for n, parameter in enumerate(net.parameters()):
            want = torch.stack([grads[n] for grads in loop])
            torch.testing.assert_close(parameter.grad_sample, want)

    return check


@pytest.fixture
def exported() -> Callable[[nn.Module, Callable[[int], Tensor]], None]:
    """Asserts that an export with a dynamic batch computes what the net does."""

    def check(net: nn.Module, pixels: Callable[[int], Tensor]) -> None:
        batch = torch.export.Dim("batch", min=1, max=64)
        program = torch.export.export(net, (pixels(4),), dynamic_shapes={"x": {0: batch}})
        for count in (2, 7):
            torch.testing.assert_close(program.module()(pixels(count)), net(pixels(count)))

    return check
