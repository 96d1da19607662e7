"""A finished round played again: how it would have ended with another upload of the attacker's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from fedmia.federation.answered import AnsweredGrid
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ClientState, Update
from strategies.base import FederatedStrategy
from strategies.cohort import Phase
from strategies.failure_policy import FailurePolicy


class Replay:
    """A round of a branch that can be played again; no honest client trains for it again.

    Honest clients answer the weights that they received, not the attacker's upload of the same
    round. So what they sent in it gives the end of the round for any upload.

    Args:
        phase: the one round, and its branch.
        received: global weights of the round.
        strategy: the server's, as it stood before the round; it is copied.
        holder: what the attacker's client kept then.
        malicious: clients of the round that send the attacker's upload -> images of each.
        clients: number of clients.
        gone: those that were dropped.

    Attributes:
        honest: client -> what it sent in the round; set once the round is finished.
    """

    def __init__(
        self, phase: Phase, received: State, strategy: FederatedStrategy,
        holder: ClientState | None, malicious: Mapping[int, int], clients: int,
        gone: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.phase, self.received, self.holder = phase, received, copy.deepcopy(holder)
        self.malicious, self.clients, self.gone = malicious, clients, gone
        self.honest: Callable[[int], Update]
        self._strategy = copy.deepcopy(strategy)
        self._strategy.phase, self._strategy.nodes = phase, {}

    @property
    def branch(self) -> str:
        return self.phase.branch

    @property
    def round(self) -> int:
        return self.phase.last

    def broadcast(self) -> State:
        """What the server sent beside the weights."""
        return copy.deepcopy(self._strategy).broadcast()

    def play(self, crafted: State) -> State:
        """Play the round in which the malicious clients upload `crafted`.

        Args:
            crafted: weights by name, those that leave a client.

        Returns:
            The global weights after it.

        Raises:
            FederationError: the server refuses the upload, as one that is not finite.
        """

        def answer(client: int, round: int, received: State) -> Update:
            if client in self.malicious:
                return Update(client, round, crafted, self.malicious[client], {})
            return self.honest(client)

        policy = FailurePolicy(self.clients, gone={*self.gone})
        device = str(next(iter(self.received.values())).device)  # as in the round itself
        grid, strategy = AnsweredGrid(self.clients, answer, device), copy.deepcopy(self._strategy)
        (done,) = strategy.rounds(grid, self.phase, self.received, policy)
        return done.state


def one_round(phase: Phase, round: int) -> Phase:
    """A round of a phase, by itself."""
    return replace(phase, first=round - 1, last=round)
