"""An active attacker: passive until it may craft, then uploads what its attack crafts."""

from __future__ import annotations

from clients.base import Role
from clients.desk import Desk
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State
from fedmia.threat import Threat


class Active(Role):
    """Trains as told, or not at all, until it may craft; then uploads what its attack crafts.

    From then on it trains no more: an attack works on the weights received.
    """

    sees = Threat("white_box", "client")
    crafts = True

    def work(self, desk: Desk) -> tuple[State, Metrics]:
        if desk.crafts:
            return desk.craft(desk.idle(), desk.received), {}
        if not desk.site.attacker_trains:
            return desk.received, {}
        trained, metrics, _ = desk.train()
        return trained, metrics
