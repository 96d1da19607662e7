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

    def work(self, desk: ClientRound) -> tuple[State, Metrics]:
        if desk.crafts:
            return desk.craft(desk.idle(), desk.received), {}
        return super().work(desk)
