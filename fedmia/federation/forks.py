"""An attacked round replayed: how it would have ended with another upload of the attacker's."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fedmia.ssl.base import State, on_device, under
from fedmia.storage.snapshot import ClientState, Update
from strategies.base import FederatedStrategy


@dataclass
class Fork:
    """The first attacked round of a branch in which the attacker's client takes part.

    Honest clients answer the weights that they received, not the attacker's upload of the same
    round. So their one training gives the end of the round for any upload.

    Attributes:
        branch: the branch of the round.
        round: number of the round.
        received: global weights of the round.
        strategy: a copy of the server's, as it stood before the round.
        holder: what the attacker's client kept then.
        malicious: clients of the round that send the attacker's upload -> images of each.
        broadcast: what the server sent beside them.
        honest: client -> the weights that it sent.
        numbers: images and metrics of each.
        digests: SHA-256 of the file of each.
    """

    branch: str
    round: int
    received: State
    strategy: FederatedStrategy
    holder: ClientState | None
    malicious: dict[int, int]
    broadcast: State = field(default_factory=dict)
    honest: Mapping[int, State] = field(default_factory=dict)
    numbers: dict[int, tuple[int, dict[str, float]]] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)

    def end_round(self, crafted: State) -> State:
        """Global weights after the round in which the attacker uploads `crafted`."""
        strategy = copy.deepcopy(self.strategy)
        return self.received | strategy.aggregate(
            self.received,
            self.updates(on_device(crafted, "cpu")),  # where a server works
        )

    def updates(self, crafted: State) -> Iterator[Update]:
        """Updates of the round in which the malicious clients upload `crafted`."""
        for client in sorted({*self.numbers, *self.malicious}):
            if client in self.malicious:
                yield Update(client, self.round, crafted, self.malicious[client], {})
            else:
                images, metrics = self.numbers[client]
                yield Update(client, self.round, self.honest[client], images, metrics)


def bank_of(local_state: ClientState | None) -> State:
    """The bank of negatives in what a client keeps; its key encoder stays with the client."""
    local = under("local.", local_state.tensors if local_state else {})
    return {name: tensor for name, tensor in local.items() if not name.startswith("key.")}
