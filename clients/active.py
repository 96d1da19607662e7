"""An active attacker: passive until it may craft, then uploads what its attack crafts."""

from __future__ import annotations

from clients.client_round import ClientRound
from clients.passive import Passive as _Passive
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State


class Active(_Passive):
    """Trains as told, or not at all, until it may craft; then uploads what its attack crafts.

    From then on it trains no more: an attack works on the weights received.
    """

    crafts = True

    def work(self, client_round: ClientRound) -> tuple[State, Metrics]:
        """Train as told, or not at all; then upload what the attack crafts, where it may."""
        if client_round.crafts:
            return client_round.craft(client_round.idle(), client_round.received), {}
        return super().work(client_round)
