"""What a role is: what a client does with a round, and what that lets an attacker see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from clients.client_round import ClientRound
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ClientState, Update
from fedmia.threat import Threat


@dataclass(frozen=True)
class Role(ABC):
    """A role of clients. One subclass a file of this package, found by the registry."""

    sees: ClassVar[Threat | None] = None  # what its attacks are granted; None: no attacker's role
    crafts: ClassVar[bool] = False  # whether it uploads what an active attack crafts

    @abstractmethod
    def work(self, client_round: ClientRound) -> tuple[State, Metrics]:
        """Work one round: the weights to upload, and metrics."""

    def answer(self, client_round: ClientRound) -> tuple[Update, ClientState | None]:
        """Work the whole round: the upload, and what the client keeps; None: as before."""
        return client_round.final(*self.work(client_round))
