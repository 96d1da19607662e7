"""One client's round as its half of the strategy sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from fedmia.ssl.base import State


@dataclass
class Local:
    """What the client's half of a strategy works on.

    Attributes:
        received: the global weights as they came, by name.
        broadcast: tensors that the server's half sent beside them.
        kept: tensors of the strategy's own that stay with the client between the rounds of a
            branch; empty before its first round.
        memory: JSON-able, kept likewise, shared with the client's defence.
        weights: the parameters in training, by their names in `received`.
        reach: the learning rates of the steps so far, summed, over 1 - momentum: how far a
            gradient of 1 in every step moves a weight in the end.
    """

    received: State
    broadcast: State
    kept: State
    memory: dict[str, Any]
    weights: dict[str, nn.Parameter]
    reach: float = 0.0
