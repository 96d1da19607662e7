"""A passive attacker: keeps what it receives, disturbs nothing."""

from __future__ import annotations

from clients.base import Role
from clients.client_round import ClientRound
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State
from fedmia.threat import Threat


class Passive(Role):
    """Trains like an honest client, or not at all; its attacks use the models that it received."""

    sees = Threat("white_box", "client")

    def work(self, client_round: ClientRound) -> tuple[State, Metrics]:
        if not client_round.client_setup.experiment.attacker_trains:
            return client_round.received, {}
        trained, metrics, _ = client_round.train()
        return trained, metrics
