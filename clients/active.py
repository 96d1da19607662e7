"""An active attacker: passive until the attacked rounds, then it uploads crafted weights."""

from __future__ import annotations

from clients.client_round import ClientRound
from clients.passive import Passive as _Passive
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State


class Active(_Passive):
    """Passive until the attacked rounds; then uploads the weights that its attack crafts.

    From then on it does not train: the attack starts from the weights that it receives.
    """

    crafts = True

    def work(self, client_round: ClientRound) -> tuple[State, Metrics]:
        """Work as a passive attacker; in an attacked round, upload what the attack crafts."""
        if client_round.crafts:
            return client_round.craft(client_round.idle(), client_round.received), {}
        return super().work(client_round)
