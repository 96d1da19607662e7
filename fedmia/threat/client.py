"""Also what a client saw: the global model of each of its rounds, and what it sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod, State
from fedmia.threat._rows import CHUNK
from fedmia.threat.needs import Threat
from fedmia.threat.signals import Signals
from fedmia.threat.whitebox import WhiteBox

OutputLoss = Callable[[SSLMethod, Tensor, Tensor], Tensor]


class ClientView(WhiteBox):
    """A client's view of a federation.

    Args:
        received: round -> aggregated weights after it; may load them when asked.
        sent: attack round -> crafted upload.
        targets: uint8, the images it attacked, in its own order.
        rest: arguments of `BlackBox`.
    """

    threat = Threat("white_box", "client")

    def __init__(
        self,
        method: SSLMethod,
        augment: Augment,
        *,
        received: Mapping[int, State] | None = None,
        sent: Mapping[int, State] | None = None,
        targets: Tensor | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(method, augment, **rest)
        self._read: dict[int, State] = {}  # keeps the states: their ids must stay their own
        self._under = Signals()
        self._earlier: dict[int, WhiteBox] = {}
        self.received: Mapping[int, State] = {} if received is None else received
        self.sent = dict(sent or {})
        self.targets = targets

    def at(self, round: int) -> WhiteBox:
        """The global model after `round`, one of `received`; its queries are counted here.

        Raises:
            KeyError: a round that this client did not see.
        """
        if round not in self._earlier:
            rows = self._signals.of_round(round)
            self._earlier[round] = self.of_weights(self.received[round], signals=rows)
        return self._earlier[round]

    @torch.no_grad()
    def losses_under(
        self,
        states: Sequence[State],
        images: Tensor,
        pairs: int,
        negatives: str,
        name: str,
        loss: OutputLoss,
    ) -> Tensor:
        """Loss of each image under each of `states`, (len(states), N): the trajectory.

        The views are the same under every state. 2 N pairs queries a state, and those of
        `holder(negatives)`.

        Args:
            states: weights that this client holds (`received`, `sent`).
            images: uint8 (N, C, H, W).
            pairs: pairs of views over which an image's loss is averaged.
            negatives: `queue` or `held`, keyed by each state itself.
            name: of the loss; equal names share what is computed.
            loss: of (method, z1, z2) -> (B,) from outputs (B, P).
        """
        self.charge((2 * pairs * len(images) + self.bank_queries(negatives)) * len(states))
        method, rows = self.copy_method(), [torch.zeros(0, len(images))]

        def compute(x: Tensor) -> Tensor:
            def read(some: Tensor) -> Tensor:
                columns = []
                for part in x[some].split(max(1, CHUNK // (2 * pairs))):
                    pixels = self.view_pixels(part, 2 * pairs).flatten(0, 1)
                    z = torch.cat([method.encoder(one) for one in self.passes(pixels)])
                    z = z.view(2 * pairs, len(part), -1)
                    each = [loss(method, z[i], z[pairs + i]) for i in range(pairs)]
                    columns.append(torch.stack(each).mean(dim=0).float().cpu())
                return torch.cat(columns)

            return self.by_negatives(method, negatives, x, read)

        for state in states:
            self._read[id(state)] = state
            method.load_shared(state)
            rows.append(self._under.get((id(state), pairs, negatives, name), images, compute)[None])
        return torch.cat(rows)
