"""LARS (You et al., 2017): SGD with momentum whose rate follows the length of each layer."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fedmia.runtime.eager import Eager

TRUST = 1e-3  # eta of Eq. 6, the paper's and that of the public code of MoCo v3


class LARS(Eager):
    """Layer-wise adaptive rate scaling (Algorithm 1, Eq. 6), as the public code of MoCo v3 has it.

    g <- g + decay w; g <- trust |w| / |g| g; v <- momentum v + g; w <- w - lr v. Weights of one
    dimension, which are biases and norms, are neither decayed nor scaled, as in SimCLR, BYOL and
    MoCo v3. Where |w| or |g| is 0, nothing is scaled. The paper divides by |g| + decay |w| in place
    of |g + decay w| and keeps lr inside v: at no decay and a constant lr, the same.

    Args:
        lr: > 0.
        momentum: in [0, 1).
        weight_decay: >= 0.
        trust: > 0, eta.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = TRUST,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step on the present gradients."""
        for group in self.param_groups:
            weights = [w for w in group["params"] if w.grad is not None]
            weights.sort(key=lambda w: w.dim() <= 1)  # layers first, in their order
            gradients: list[Tensor] = [w.grad for w in weights]
            layers = [w for w in weights if w.dim() > 1]
            if layers:
                gradients[: len(layers)] = _scaled(layers, group["weight_decay"], group["trust"])
            for weight in weights:
                if "momentum_buffer" not in self.state[weight]:
                    self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
            if weights:
                buffers = [self.state[w]["momentum_buffer"] for w in weights]
                torch._foreach_mul_(buffers, group["momentum"])
                torch._foreach_add_(buffers, gradients)
                torch._foreach_add_(weights, buffers, alpha=-group["lr"])


def _scaled(layers: list[Tensor], decay: float, trust: float) -> list[Tensor]:
    """Gradients of the layers with their decay, each as long as `trust` times its layer."""
    gradients = [w.grad for w in layers if w.grad is not None]
    directions = list(torch._foreach_add(gradients, layers, alpha=decay))
    lengths, pulls = torch._foreach_norm(layers), torch._foreach_norm(directions)
    # On the device, which is not waited for.
    ratios = [
        torch.where((length > 0) & (pull > 0), trust * length / pull, torch.ones_like(pull))
        for length, pull in zip(lengths, pulls, strict=True)
    ]
    torch._foreach_mul_(directions, ratios)
    return directions
