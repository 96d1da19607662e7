"""torch's optimizers without its compiler, whose import takes longer than all of fedmia's own.

`torch.optim` imports `torch._dynamo` at the first optimizer and at each step, to tell it what not
to compile. Nothing is compiled here. So these call the methods inside torch's wrappers: the same
arithmetic, in less time and memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


class Eager(Optimizer):
    """What an optimizer inherits first, to be used without the compiler."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with its options."""
        inspect.unwrap(super().add_param_group)(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients: set them to None, or to zero."""
        for weight in (w for group in self.param_groups for w in group["params"]):
            gradient = None if set_to_none else weight.grad
            weight.grad = None if gradient is None else torch.zeros_like(gradient)


class EagerStep(Eager):
    """Likewise for torch's own optimizers, whose steps have a wrapper too."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step on the present gradients, or on those of `closure`, whose loss is returned."""
        loss: float | None = inspect.unwrap(super().step)(self, closure)
        return loss


class SGD(EagerStep, torch.optim.SGD):
    """`torch.optim.SGD` without Nesterov's momentum and dampening. A small encoder's step spent a
    tenth of its time in torch's preparations of one."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """As of torch, to the bit."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            weights = [w for w in group["params"] if w.grad is not None]
            changes = [w.grad for w in weights]
            if weights and group["weight_decay"]:
                changes = [*torch._foreach_add(changes, weights, alpha=group["weight_decay"])]
            if weights and group["momentum"]:
                for weight in weights:
                    if not self.state[weight]:
                        self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
                momenta = [self.state[weight]["momentum_buffer"] for weight in weights]
                torch._foreach_mul_(momenta, group["momentum"])
                torch._foreach_add_(momenta, changes)
                changes = momenta
            if weights:
                torch._foreach_add_(weights, changes, alpha=-group["lr"])
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it for its profiler


class Adam(EagerStep, torch.optim.Adam):
    """`torch.optim.Adam`."""


class AdamW(EagerStep, torch.optim.AdamW):
    """`torch.optim.AdamW`."""
