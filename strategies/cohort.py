"""Which rounds of a branch run, and which clients take part in each."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedmia.seeding import rng


@dataclass(frozen=True)
class Phase:
    """Consecutive rounds of one branch.

    Attributes:
        branch: `main`, `zero` or `placebo`; clients keep their state by branch.
        first: rounds already behind; the stretch runs first + 1 .. last.
        last: last round of the range.
        craft: whether the active attacker may craft.
        participation: share of clients in a round's cohort, in (0, 1].
        seed: of the cohorts, and of what the server draws; not the run's where none may draw them
            again (`fedmia.seeding.root`).
        total: rounds of the whole branch.
        malicious: clients in the attacker's role, to whom no privacy is promised.
    """

    branch: str
    first: int
    last: int
    craft: bool
    participation: float
    seed: int = field(repr=False)
    total: int = 0
    malicious: tuple[int, ...] = ()


def draw_cohort(phase: Phase, round: int, clients: int) -> list[int]:
    """Draw the clients of a round, seeded and without replacement.

    Args:
        phase: the rounds at work.
        round: number of the round, from 1.
        clients: number of clients.

    Returns:
        Sorted partition ids.
    """
    size = max(1, int(phase.participation * clients + 0.5))
    if size >= clients:
        return list(range(clients))
    chosen = rng(phase.seed, "cohort", round).choice(clients, size, replace=False)
    return sorted(int(c) for c in chosen)
