"""Krum: the one update that lies closest to its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from fedmia.defenses.sensitivity import protected
from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ExpectedRound, Update
from strategies.base import FederatedStrategy, Metrics
from strategies.failure_policy import Adversary

HALVINGS = 12  # of the interval in which an attacker looks for its largest update that is chosen


@dataclass
class Krum(FederatedStrategy):
    """The update with the least sum of squared distances to its n - f - 2 nearest ones.

    Distances are of float weights alone and of differences, not of norms of weights: those are so
    much larger than the updates that little is left of them in float32. It holds the updates of
    all clients of a round at once.
    """

    paper: ClassVar[str] = "Blanchard et al., NeurIPS 2017, Section 4"
    singles: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    malicious: int = option(1, "f, malicious clients a round that it has to withstand", ge=0)
    # client -> rounds in which it was taken, of those in which malicious clients may craft
    taken: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    @property
    def least(self) -> int:
        """2 f + 2 < n of Proposition 2."""
        return 2 * self.malicious + 3

    def count_averaged(self, clients: int) -> int:
        """How many updates are averaged."""
        return 1

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        ordered = sorted(updates, key=lambda update: update.client)  # equals go by partition id
        chosen = self.chosen_updates([update.state for update in ordered])
        if self.phase.craft:
            for i in chosen:
                name = str(ordered[i].client)
                self.taken[name] = self.taken.get(name, 0) + 1
        return self.mean(ordered[i] for i in chosen)

    def chosen_updates(self, states: Sequence[State]) -> list[int]:
        """Places of the updates that are averaged, ascending."""
        scores = krum_scores(states, self.malicious)
        order = sorted(range(len(states)), key=lambda i: scores[i])
        return sorted(order[: self.count_averaged(len(states))])

    def aggregation_metrics(self, against: Adversary) -> Metrics:
        """The malicious clients' share of all updates that were averaged in rounds in which they
        might craft."""
        if not (count := sum(self.taken.values())):
            return {}
        took = sum(self.taken.get(str(client), 0) for client in against.malicious)
        return {"malicious_share": took / count}

    def passing(self, crafted: State, expected: ExpectedRound) -> State:
        """The guesses' mean and a part of the crafted update: half the largest part with which it
        would be chosen, since they are guesses, and no more than all of it."""
        received, guesses = expected.received, expected.guesses
        if not guesses:
            return crafted
        ours = len(guesses)
        middle = {n: torch.stack([g[n] for g in guesses]).mean(dim=0) for n in crafted}

        def at(part: float) -> State:
            return {n: middle[n] + part * (t - received[n]) for n, t in crafted.items()}

        low, high = 0.0, 2.0
        for _ in range(HALVINGS):
            part = (low + high) / 2
            accepted = max(self.chosen_updates([*guesses, *[at(part)] * expected.fellows])) >= ours
            low, high = (part, high) if accepted else (low, part)
        return at(low / 2)


def krum_scores(states: Sequence[State], malicious: int) -> list[float]:
    """Of each update the sum of squared distances to its n - f - 2 nearest others (at least one);
    in float64, a tensor at a time.

    Args:
        states: uploaded weights of the n clients.
        malicious: f, the assumed number of malicious clients.

    Returns:
        (n,) scores; less is better.
    """
    n = len(states)
    squared = torch.zeros(n, n, dtype=torch.float64)
    for name in protected(states[0]):
        rows = torch.stack([s[name].flatten() for s in states]).double()
        squared = squared.to(rows.device)
        gaps = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
        squared += gaps**2
    squared.fill_diagonal_(torch.inf)
    nearest = min(max(1, n - malicious - 2), n - 1)
    scores: list[float] = squared.sort(dim=1).values[:, :nearest].sum(dim=1).tolist()
    return scores
