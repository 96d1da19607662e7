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
        inspect.unwrap(super().zero_grad)(self, set_to_none)


class EagerStep(Eager):
    """Likewise for torch's own optimizers, whose steps have a wrapper too."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step on the present gradients, or on those of `closure`, whose loss is returned."""
        loss: float | None = inspect.unwrap(super().step)(self, closure)
        return loss


class SGD(EagerStep, torch.optim.SGD):
    """`torch.optim.SGD`."""


class Adam(EagerStep, torch.optim.Adam):
    """`torch.optim.Adam`."""


class AdamW(EagerStep, torch.optim.AdamW):
    """`torch.optim.AdamW`."""
