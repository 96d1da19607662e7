"""FedAvg with a server learning rate (Eq. 2 of Chen et al.)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from strategies.base import FederatedStrategy


@dataclass
class FedAvg(FederatedStrategy):
    """Federated averaging: G' = (1 - eta) G + eta mean(L), exact at eta 1."""

    paper: ClassVar[str] = "McMahan et al., AISTATS 2017; Chen et al., Eq. 2"
    neutral: ClassVar[Mapping[str, Any]] = {"server_lr": 1.0}

    weighting: str = option(
        "uniform",
        "weight of a client's update: equal, or by its number of images",
        choices=("uniform", "examples"),
    )
    server_lr: float = option(1.0, "eta, server learning rate", gt=0)

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        """Written so, not as G + eta (mean(L) - G), which differs from L in float32 at eta 1."""
        mean, eta = self.mean(updates, self.weighting), self.server_lr
        if eta == 1:
            return mean
        return {
            name: ((1 - eta) * received[name].double() + eta * new.double()).to(new.dtype)
            for name, new in mean.items()
        }
