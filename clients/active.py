"""An active attacker: passive until told to craft, then uploads what its attack crafts."""

from __future__ import annotations

from clients.base import Role
from clients.desk import Desk
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State
from fedmia.threat import Threat


class Active(Role):
    """Trains as told, or not at all, and uploads what its active attack crafts of it."""

    sees = Threat("white_box", "client")
    crafts = True

    def work(self, desk: Desk) -> tuple[State, Metrics]:
        if desk.site.attacker_trains:
            trained, metrics, method = desk.train()
        else:
            trained, metrics, method = desk.received, {}, desk.idle()
        return desk.craft(method, trained), metrics
