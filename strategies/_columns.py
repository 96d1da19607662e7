"""Each weight by itself, over all clients."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedmia.ssl.base import State


def average_middle(states: Sequence[State], cut: int) -> State:
    """Mean of each weight's values less the `cut` smallest and the `cut` largest of them, or as
    many of them as leave one or two; in float64, a tensor at a time."""
    cut = min(cut, (len(states) - 1) // 2)
    means = State()
    for name, first in states[0].items():
        rows = torch.stack([s[name] for s in states]).double().sort(dim=0).values
        means[name] = rows[cut : len(rows) - cut].mean(dim=0).to(first.dtype)
    return means


def clamp_between(state: State, states: Sequence[State], cut: int) -> State:
    """`state` with each weight moved to where at least `cut` of `states` (all of them, if they are
    fewer) lie on either side of it, if it is not there."""
    cut = max(1, min(cut, (len(states) + 1) // 2))
    clamped = State()
    for name, value in state.items():
        rows = torch.stack([s[name] for s in states]).sort(dim=0).values
        clamped[name] = value.clamp(rows[cut - 1], rows[-cut])
    return clamped
