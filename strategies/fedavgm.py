"""FedAvgM: momentum on the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from strategies.fedavg import FedAvg as _FedAvg


@dataclass
class FedAvgM(_FedAvg):
    """Server momentum: v' = beta v + (G - mean(L)), G' = G - eta v'; beta 0 is FedAvg."""

    paper: ClassVar[str] = "Hsu et al., 2019, arXiv 1909.06335"
    neutral: ClassVar[Mapping[str, Any]] = {**_FedAvg.neutral, "beta": 0.0}

    beta: float = option(0.9, "server momentum", ge=0, lt=1)
    velocity: State = field(default_factory=dict, init=False, repr=False)

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        """G', in the types of the updates; v is float64.

        Args:
            received: G.
            updates: one for each client.

        Returns:
            G'.
        """
        out = {}
        for name, new in self.mean(updates, self.weighting).items():
            step = received[name].double() - new.double()
            if name in self.velocity:
                step = step + self.beta * self.velocity[name]
            self.velocity[name] = step
            out[name] = (received[name].double() - self.server_lr * step).to(new.dtype)
        return out
