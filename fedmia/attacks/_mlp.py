"""A small network as attack classifier: features of an image in, a logit of membership out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.attacks.base import Scores
from fedmia.runtime.threads import limit_threads

# Products of weights and images in a step up to which threads wait longer for each other than
# they compute: on a busy machine ten times as long.
SMALL = 1 << 24

Start = Callable[[nn.Module, torch.Generator], None]


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + 1e-6) over the last axis, without a gain."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6)


class UnitNorm(nn.Module):
    """x / |x| over the last axis, without a gain."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "leaky-relu": nn.LeakyReLU,
    "silu": nn.SiLU,
}
# What stands before an activation, from the number of its inputs.
NORMS: dict[str, Callable[[int], tuple[nn.Module, ...]]] = {
    "none": lambda width: (),
    "rms": lambda width: (RMSNorm(),),
    "l2": lambda width: (UnitNorm(),),
    "layer": lambda width: (nn.LayerNorm(width),),
}


def mlp(widths: Sequence[int], activation: str = "relu", norm: str = "none") -> nn.Sequential:
    """Linear layers of `widths` (inputs first, then the hidden ones), then one logit.

    A norm and an activation stand after each but the last.
    """
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after), *NORMS[norm](after), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1))


def init_uniform(module: nn.Module, generator: torch.Generator) -> None:
    """PyTorch's own start of linear layers, uniform within 1/sqrt(inputs), from `generator`."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            for tensor in (layer.weight, layer.bias):
                nn.init.uniform_(tensor, -bound, bound, generator=generator)


def train_logits(
    model: nn.Module,
    inputs: Tensor | Sequence[Tensor],
    truth: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    epochs: int,
    batch: int | None,
    start: Start = init_uniform,
    rate: Callable[[int], float] | None = None,
    balanced: bool = False,
) -> nn.Module:
    """Train `model` on binary cross-entropy, in place, on these inputs alone.

    The two classes weigh the same, however many known images there are of each. A small model is
    trained in one thread.

    Args:
        model: the network, one logit an image.
        inputs: features, float32 `(N, ...)`, or several draws of them, which epochs take in turn.
        truth: labels, `(N,)`, 1 = member.
        rng: of the initial weights and of the order of the images.
        optimizer: builds the optimizer over the trained parameters.
        epochs: passes over the inputs.
        batch: images a step, or None for all of them.
        start: sets every weight from a generator.
        rate: epoch -> factor on the learning rate.
        balanced: every batch holds each class in its overall proportion.

    Returns:
        `model` in evaluation mode, without gradients.
    """
    start(model, torch.Generator().manual_seed(int(rng.integers(2**63 - 1))))
    labels = torch.from_numpy(truth).float()
    share = labels.mean().clamp(1e-6, 1 - 1e-6)
    weights = torch.where(labels == 1, 0.5 / share, 0.5 / (1 - share))
    parameters = [w for w in model.parameters() if w.requires_grad]
    opt = optimizer(parameters)
    initial_lrs = [group["lr"] for group in opt.param_groups]
    model.train()
    draws = [inputs] if isinstance(inputs, Tensor) else inputs
    size = len(truth) if batch is None else batch
    products = size * sum(w.numel() for w in parameters)
    with limit_threads(1 if products <= SMALL else torch.get_num_threads()):
        for epoch in range(epochs):
            for group, lr in zip(opt.param_groups, initial_lrs, strict=True):
                group["lr"] = lr * (1.0 if rate is None else rate(epoch))
            order = alternate_classes(truth, rng) if balanced else rng.permutation(len(truth))
            for rows in torch.from_numpy(order).split(size):
                logits = model(draws[epoch % len(draws)][rows]).flatten()
                loss = F.binary_cross_entropy_with_logits(
                    logits, labels[rows], weights[rows], reduction="mean"
                )
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
    return model.eval().requires_grad_(False)


def alternate_classes(truth: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A random order of the images in which the two classes alternate, in their proportion."""
    order = rng.permutation(len(truth))
    place = np.empty(len(truth))
    for label in (0, 1):
        own = truth[order] == label
        place[own] = (np.arange(own.sum()) + 0.5) / max(1, own.sum())
    return np.asarray(order[np.argsort(place, kind="stable")], dtype=np.int64)


@torch.no_grad()
def logits(model: nn.Module, inputs: Tensor) -> Scores:
    """(N,) logits, higher = member; equal rows have equal ones, wherever they stand."""
    rows = [model(part).flatten() for part in inputs.split(4096)]
    # A product of matrices rounds a row by its place; of a float64 network no digit of it is left.
    return np.asarray(torch.cat(rows).to(torch.float32).numpy(), dtype=np.float64)
