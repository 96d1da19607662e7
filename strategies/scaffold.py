"""SCAFFOLD: control variates take the drift of each client out of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from fedmia.ssl.base import State
from fedmia.storage.snapshot import LocalTraining, Update
from strategies.fedavg import FedAvg as _FedAvg

METRIC = "scaffold_reach"  # W of a client's round, beside its upload


@dataclass
class Scaffold(_FedAvg):
    """FedAvg whose clients add c - c_i to each gradient (Algorithm 1, option II, uniform controls).

    After a round from x, client i sets c_i+ = c_i - c + (x - y) / W: y is what it really sent and
    W the sum of its learning rates over 1 - momentum, K eta_l for plain SGD at a constant rate
    (with momentum the last steps' part that is still to come is counted in). The server takes the
    same differences from the uploads, c+ = c + |S|/N mean_S[(x - y) / W - c], so nothing but the
    upload and W leaves a client. Hence it runs under every defence and costs no privacy: controls
    rest on noised uploads alone, given that W tells no more than the number of steps. Their noise
    is the upload's over W. Only parameters have controls.
    """

    paper: ClassVar[str] = "Karimireddy et al., ICML 2020, arXiv 1910.06378"
    gradients: ClassVar[bool] = True

    control: State = field(default_factory=dict, init=False, repr=False)

    def broadcast(self) -> State:
        """The server's control variate c."""
        return self.control

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        """The mean of the uploads; the control c moves as the class says.

        Args:
            received: x.
            updates: of the cohort; the metric of each is its W, 0 where it took no step.

        Returns:
            The mean of the uploads.
        """
        slopes, count, stepped = State(), 0, 0

        def add_slopes() -> Iterator[Update]:
            nonlocal count, stepped
            for update in updates:
                count += 1
                if (reach := update.metrics.get(METRIC, 0.0)) > 0:
                    stepped += 1
                    for name, sent in update.state.items():
                        slope = (received[name].double() - sent.double()) / reach
                        slopes[name] = slopes[name] + slope if name in slopes else slope
                yield update

        merged = super().aggregate(received, add_slopes())
        share = stepped / max(len(self.nodes), count, 1)
        for name, summed in slopes.items():
            if ".running_" in name:  # batch norm's statistics take no steps
                continue
            c = self.control.get(name, torch.zeros_like(received[name])).double()
            self.control[name] = (c + share * (summed / stepped - c)).to(received[name].dtype)
        return merged

    def after_backward(self, local: LocalTraining) -> None:
        """Add c - c_i to each gradient."""
        for control, sign in ((local.broadcast, 1), (local.own_state, -1)):
            for name, weight in local.weights.items():
                if weight.grad is not None and name in control:
                    weight.grad.add_(control[name], alpha=sign)

    def finish(self, local: LocalTraining, trained: State, sent: State) -> dict[str, float]:
        """Update the client's control variate c_i (option II of the paper).

        Args:
            local: holds x, c, c_i and W.
            trained: not read.
            sent: y.

        Returns:
            W.
        """
        for name in local.weights if local.reach > 0 else ():
            slope = (local.received[name].double() - sent[name].double()) / local.reach
            for control, sign in ((local.own_state, 1), (local.broadcast, -1)):
                if name in control:
                    slope += sign * control[name]
            local.own_state[name] = slope.to(sent[name].dtype)
        return {METRIC: local.reach}
