"""Many small ReLU networks of one shape, trained side by side: heads, and attack classifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Optimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


class HeadStack:
    """K networks: linear layers with ReLU between them, no batch norm, nothing but weights.

    Args:
        weights: of each layer, float32 (K, inputs, outputs).
        biases: of each layer, float32 (K, 1, outputs).
    """

    def __init__(self, weights: tuple[Tensor, ...], biases: tuple[Tensor, ...]) -> None:
        self.weights = weights
        self.biases = biases

    def __len__(self) -> int:
        return len(self.biases[0])

    def tensors(self) -> list[Tensor]:
        """Weights and bias of each layer, the first first."""
        return [t for pair in zip(self.weights, self.biases, strict=True) for t in pair]

    def flat(self) -> Tensor:
        """(K, d) all weights of each network, float64."""
        return torch.cat([t.double().flatten(1) for t in self.tensors()], dim=1)

    def take(self, networks: Sequence[int]) -> HeadStack:
        """The networks at these places; one place may be named several times."""
        rows = list(networks)
        return HeadStack(tuple(w[rows] for w in self.weights), tuple(b[rows] for b in self.biases))

    def plus(self, noise: Tensor) -> HeadStack:
        """The networks with (K, d) `noise` added to what `flat` returns, in their own type."""
        tensors, at = [], 0
        for tensor in self.tensors():
            count = tensor[0].numel()
            own = noise[:, at : at + count].view_as(tensor)
            tensors.append((tensor.double() + own).to(tensor.dtype))
            at += count
        return HeadStack(tuple(tensors[::2]), tuple(tensors[1::2]))

    def logits(self, inputs: Tensor) -> Tensor:
        """(K, N, classes) of inputs (N, D) that all networks see, or (K, N, D), each its own."""
        hidden = inputs.expand(len(self), *inputs.shape[-2:])
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias, hidden if i == 0 else hidden.relu(), weight)
        return hidden


def init_heads(count: int, widths: Sequence[int], generator: torch.Generator) -> HeadStack:
    """`count` times the same network: Glorot and Bengio's (2010) uniform weights, no biases.

    Args:
        count: K.
        widths: inputs, hidden layers, classes.
        generator: draws the weights.

    Returns:
        K equal networks.
    """
    weights, biases = [], []
    for before, after in zip(widths, widths[1:], strict=False):
        bound = (6 / (before + after)) ** 0.5
        weight = torch.rand(before, after, generator=generator) * 2 * bound - bound
        weights.append(weight.repeat(count, 1, 1))
        biases.append(torch.zeros(count, 1, after))
    return HeadStack(tuple(weights), tuple(biases))


def train_heads(
    inputs: Tensor, labels: Tensor, rows: Tensor, widths: Sequence[int], *,
    optimizer: Optimizer, epochs: int, batch: int, seed: int,
) -> HeadStack:  # fmt: skip
    """Networks trained on cross-entropy, each on its own rows of the inputs.

    All draw the same randomness: first weights, and order of the places in `rows`. So two networks
    whose rows differ in one place differ by that image alone.

    Args:
        inputs: float32 (N, D).
        labels: int64 (N,), 0..classes-1.
        rows: int64 (K, n), the rows of `inputs` that each network is trained on.
        widths: inputs, hidden layers, classes.
        optimizer: of a list of tensors; its rate stays as it is.
        epochs: passes over `rows`.
        batch: rows a step; the last step of an epoch may have fewer.
        seed: of the initial weights and the order.

    Returns:
        K trained networks.
    """
    generator = torch.Generator().manual_seed(seed)
    stack = init_heads(len(rows), widths, generator)
    for tensor in stack.tensors():
        tensor.requires_grad_()
    stepper = optimizer(stack.tensors())
    for _ in range(epochs):
        for places in torch.randperm(rows.shape[1], generator=generator).split(batch):
            chosen = rows[:, places]
            logits = stack.logits(inputs[chosen]).flatten(0, 1)
            # The mean of each network's batch; the networks share no weight, so sums do not mix.
            loss = F.cross_entropy(logits, labels[chosen].flatten(), reduction="sum") / len(places)
            stepper.zero_grad(set_to_none=True)
            loss.backward()
            stepper.step()
    for tensor in stack.tensors():
        tensor.requires_grad_(False)
    return stack
