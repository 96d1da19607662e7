"""Also what a client saw: the global models that it received, and what it noted of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod, State
from fedmia.storage.states import States
from fedmia.threat.needs import Threat
from fedmia.threat.whitebox import Sightings, WhiteBox

Table = NDArray[np.float64]


@dataclass(frozen=True)
class Trajectory:
    """What an active client noted of N images in the R rounds of its uploads.

    Attributes:
        rounds: of its uploads, ascending.
        before: (R, N) readings of the model that it received for the round.
        sent: (R or 1, N) readings of its own uploads, or of the first alone.
        after: (R, N) readings of the next model that it received.
    """

    rounds: list[int]
    before: Table
    sent: Table
    after: Table


class ClientView(WhiteBox):
    """A client's view of a federation.

    Args:
        method: the released model; its bank of negatives is the holder's own.
        augment: augmentation of the attacker's views.
        received: round -> aggregated weights after it; may load them when asked.
        noted: of (this view, uint8 (N, C, H, W)): what an active client noted of the images.
        rest: arguments of `BlackBox`.
    """

    threat = Threat("white_box", "client")

    def __init__(
        self,
        method: SSLMethod,
        augment: Augment,
        *,
        received: Mapping[int, State] | None = None,
        noted: Callable[[ClientView, Tensor], Trajectory] | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(method, augment, **rest)
        self._earlier: dict[int, WhiteBox] = {}
        self.received: Mapping[int, State] = {} if received is None else received
        self._noted = noted

    @classmethod
    def granted(
        cls, rounds: Sightings, branch: str, last: int, some: Collection[int] | None
    ) -> dict[str, Any]:
        models = rounds.models(branch)
        received = [r for r in models if r <= last and (some is None or r in some or r == last)]
        return {"received": States(received, models.__getitem__)}

    def at(self, round: int) -> WhiteBox:
        """The global model after `round`, one of `received`; its queries are counted here.

        Raises:
            KeyError: a round that this client did not see.
        """
        if round not in self._earlier:
            rows = self._signals.of_round(round)
            self._earlier[round] = self.of_weights(self.received[round], signals=rows)
        return self._earlier[round]

    def of_notes(self, noted: Callable[[ClientView, Tensor], Trajectory]) -> ClientView:
        """The same view, with other notes of an active client.

        Args:
            noted: as of the view.

        Returns:
            A view that shares all else.
        """
        other = copy.copy(self)
        other._noted = noted
        return other

    def trajectory(self, images: Tensor) -> Trajectory:
        """What the client noted of uint8 (N, C, H, W) while its active attack ran.

        Raises:
            RuntimeError: this client crafted no update.
        """
        if self._noted is None:
            raise RuntimeError("this client crafted no update")
        return self._noted(self, images)
