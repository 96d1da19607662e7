"""An honest client: trains as told, releases through its defence."""

from __future__ import annotations

from clients.base import Role
from clients.desk import Desk
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State


class Honest(Role):
    """Trains on its own images and uploads what its defence lets out; attacks nothing."""

    def work(self, desk: Desk) -> tuple[State, Metrics]:
        trained, metrics, _ = desk.train()
        if desk.defense is None:
            return trained, metrics
        released, more = desk.defense.release(
            desk.received, trained, desk.memory, desk.stream("release")
        )
        return released, metrics | more
