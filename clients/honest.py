"""An honest client: trains as told, releases through its defences."""

from __future__ import annotations

from clients.base import Role
from clients.client_round import ClientRound
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State


class Honest(Role):
    """Trains on its own images and uploads its defended update; does not attack."""

    def work(self, client_round: ClientRound) -> tuple[State, Metrics]:
        if client_round.sits_out:
            return client_round.received, {}
        trained, metrics, _ = client_round.train()
        released, more = client_round.release(trained)
        return released, metrics | more
