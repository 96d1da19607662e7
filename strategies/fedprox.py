"""FedProx: clients are pulled towards the weights they received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmia.settings import option
from fedmia.storage.snapshot import LocalTraining
from strategies.fedavg import FedAvg as _FedAvg


@dataclass
class FedProx(_FedAvg):
    """FedAvg whose clients add mu/2 ||w - w_received||^2 to their loss; mu 0 is FedAvg."""

    paper: ClassVar[str] = "Li et al., MLSys 2020, arXiv 1812.06127"

    mu: float = option(0.01, "weight of the proximal term", ge=0)

    def after_backward(self, local: LocalTraining) -> None:
        """Add mu (w - w_received) to each gradient."""
        if not self.mu:
            return
        for name, weight in local.weights.items():
            if weight.grad is not None:
                weight.grad.add_(weight.detach() - local.received[name], alpha=self.mu)
