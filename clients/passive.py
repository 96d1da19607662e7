"""A passive attacker: keeps what it receives, disturbs nothing."""

from __future__ import annotations

from clients.base import Desk, Role
from fedmia.ssl.base import State


class Passive(Role):
    """Trains as told, or not at all; its attacks run on the models that it kept."""

    def work(self, desk: Desk) -> tuple[State, dict[str, float]]:
        if not desk.site.attacker_trains:
            return desk.received, {}
        trained, metrics, _ = desk.train()
        return trained, metrics
