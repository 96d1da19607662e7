"""A passive attacker: keeps what it receives, disturbs nothing."""

from __future__ import annotations

from clients.base import Role
from clients.client_round import ClientRound
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State
from fedmia.threat import Threat


class Passive(Role):
    """Trains as told, or not at all; its attacks run on the models that it kept."""

    sees = Threat("white_box", "client")

    def work(self, desk: ClientRound) -> tuple[State, Metrics]:
        if not desk.site.attacker_trains:
            return desk.received, {}
        trained, metrics, _ = desk.train()
        return trained, metrics
