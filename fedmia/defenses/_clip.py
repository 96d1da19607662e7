"""What of a state is released, its norm, and clipping; in float64."""

from __future__ import annotations

import torch

from fedmia.ssl.base import State


def protected(state: State) -> list[str]:
    """Names of the tensors that are clipped, noised and released: the float weights.

    Integer counters and batch norm's running statistics are not: a count of 1000 steps would
    fill the norm, and noise makes a variance negative.
    """
    return [n for n, t in state.items() if t.is_floating_point() and ".running_" not in n]


def difference(after: State, before: State, names: list[str]) -> State:
    """after - before, float64."""
    return {n: after[n].double() - before[n].double() for n in names}


def norm(update: State, order: int) -> float:
    """L1 (order 1) or L2 (order 2) norm over all tensors together."""
    parts = [torch.linalg.vector_norm(t, order) for t in update.values()]
    return float(torch.linalg.vector_norm(torch.stack(parts), order)) if parts else 0.0


def size(state: State, names: list[str]) -> int:
    """Number of weights in the named tensors."""
    return sum(state[n].numel() for n in names)
