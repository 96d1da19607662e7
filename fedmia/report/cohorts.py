"""Federations too large to list: clients by the last round in which they trained."""

from __future__ import annotations

import numpy as np

from fedmia.records import Evaluation
from fedmia.records.client_rows import COHORT, NEVER, CohortRow
from fedmia.records.fields import row_of
from fedmia.report.clients import declared_attack, leak_numbers, leak_of
from fedmia.report.selection import FEW

STRETCHES = 4  # of the rounds, as even as can be


def cohort_rows(run: Evaluation) -> list[CohortRow]:
    """The report's `client_cohorts`: the clients that no round drew, then those whose last round
    lies in each stretch of the rounds.

    Args:
        run: the scores.

    Returns:
        A row for each cohort that has clients; none of few clients, and where all train in every
        round.
    """
    honest = [client for client in run.clients if client.role == "honest"]
    last = np.array([-1 if c.last_round is None else c.last_round for c in honest])
    if len(honest) <= FEW or last.min() < 0 or not last.max():
        return []
    ends = np.unique(np.linspace(0, last.max(), STRETCHES + 1).round().astype(int))
    names = [NEVER, *(f"{low + 1}-{high}" for low, high in zip(ends, ends[1:], strict=False))]
    place = np.searchsorted(ends, last)
    by_client = dict(zip((c.id for c in honest), place.tolist(), strict=True))
    where = np.array([by_client.get(client, -1) for client in run.member_client.tolist()])
    like, attack = np.isin(*run.alike()), declared_attack(run)
    sizes = np.array([c.size for c in honest])
    scored = [np.flatnonzero((where == k) & like) for k in range(len(names))]
    family = max(1, sum(len(mine) > 0 for mine in scored))
    rows = []
    for k, (name, mine) in enumerate(zip(names, scored, strict=True)):
        leak = leak_of(run, attack, mine, "cohort-null", name) if attack and len(mine) else None
        rows.append(
            row_of(
                CohortRow,
                None,
                whose=COHORT,
                cohort=name,
                clients=int((place == k).sum()),
                images=int(sizes[place == k].sum()),
                n_members=len(mine),
                attack=attack and attack.name,
                **leak_numbers(leak, family),
            )
        )
    return [row for row in rows if row.clients]
