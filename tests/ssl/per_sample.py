"""Gradients of each image as `dpsgd` finds them, beside those of a loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor


def check_per_sample_gradients(method: Any, x: Tensor, **backward: Any) -> None:
    """Opacus' gradients of each image equal those of the image's loss alone.

    Args:
        method: a self-supervised method.
        x: images (B, C, H, W) in [0, 1].
        backward: options of the way back from the losses' sum.
    """
    opacus = pytest.importorskip("opacus")
    weights = method.trainable()
    loop = [torch.autograd.grad(method.losses(i[None], i[None]).sum(), weights) for i in x]
    hooked = opacus.GradSampleModule(method, loss_reduction="sum", strict=True)
    method.losses(x.requires_grad_(), x).sum().backward(**backward)
    for n, weight in enumerate(weights):
        want = torch.stack([g[n] for g in loop])
        torch.testing.assert_close(weight.grad_sample, want, atol=1e-5, rtol=1e-4)
    hooked.to_standard_module()
