"""An honest client: trains as told, releases through its defence."""

from __future__ import annotations

from clients.base import Desk, Role
from fedmia.ssl.base import State


class Honest(Role):
    """Trains on its own images and uploads what its defence lets out."""

    def work(self, desk: Desk) -> tuple[State, dict[str, float]]:
        trained, metrics, _ = desk.train()
        if desk.defense is None:
            return trained, metrics
        released, more = desk.defense.release(
            desk.received, trained, desk.memory, desk.stream("release")
        )
        desk.remember()
        return released, metrics | more
