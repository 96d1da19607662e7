"""FedEMA for MoCo: each client mixes its own encoder of last time into the global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.storage.snapshot import LocalTraining
from strategies.fedavg import FedAvg as _FedAvg


@dataclass
class FedEMA(_FedAvg):
    """FedAvg whose clients start at mu L + (1 - mu) G, mu = min(1, lambda ||L - G||).

    Published for BYOL; for MoCo it is fedmia's own reading: L and G are the query encoders, the
    key encoder follows by its own momentum. lambda = tau / ||L - G|| of the client's second
    round, then fixed, so that mu starts at min(1, tau).
    """

    paper: ClassVar[str] = "Zhuang et al., ICLR 2022, arXiv 2204.04385"

    tau: float = option(0.7, "mu of a client's second round; sets its lambda", ge=0, le=1)

    def begin(self, local: LocalTraining) -> State:
        """mu L + (1 - mu) G; G in the first round."""
        own, received = local.own_state, local.received
        if not own:
            return received
        gap = torch.stack([(own[n] - received[n]).double().norm() for n in own]).norm()
        scale = local.memory.setdefault("ema_scale", self.tau / max(float(gap), 1e-12))
        mu = local.memory["ema_mu"] = min(1.0, scale * float(gap))
        return received | {n: mu * own[n] + (1 - mu) * received[n] for n in own}

    def finish(self, local: LocalTraining, trained: State, sent: State) -> dict[str, float]:
        """Keep the trained weights, not what was sent, for the next round."""
        local.own_state = {n: trained[n] for n in local.weights}
        return {}
