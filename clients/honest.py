"""An honest client: trains as told, releases through its defences."""

from __future__ import annotations

from clients.base import Role
from clients.client_round import ClientRound
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State


class Honest(Role):
    """Trains on its own images and uploads what its defences let out; attacks nothing."""

    def work(self, desk: ClientRound) -> tuple[State, Metrics]:
        if desk.sits_out:
            return desk.received, {}
        trained, metrics, _ = desk.train()
        released, more = desk.release(trained)
        return released, metrics | more
