"""Leakage by client, with classes held equal, and a null of non-members who pose as members.

Under non-IID splits a client's members differ from the non-members in class, and a naive AUC
measures that. So each client is scored against non-members weighted to its own class mix, or,
where images belong to clients, against non-members of its own (`RunScores.alike`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

import numpy as np

from fedmia.report.delong import AucEstimate, auc_estimate, auc_interval, share_below
from fedmia.report.intervals import LEVEL, Interval
from fedmia.report.rows import ClientRow, DefenceRow, EpsilonRow, with_auc
from fedmia.results import ClientDefence, ClientInfo, FloatArray, IntArray, RunScores, ScoredAttack
from fedmia.seeding import rng

DECLARED = ("combined", "similarity")
DRAWS = 200


def declared_attack(run: RunScores) -> ScoredAttack | None:
    """The attack that clients are compared by, fixed before any score is seen: `combined`, else
    `similarity`, else the first on a model not under attack, else the first."""
    usable = [a for a in run.attacks if len(a.scores_members)]
    declared = [a for name in DECLARED for a in usable if a.name == name]
    return next(iter([*declared, *(a for a in usable if not a.under_attack), *usable]), None)


def mix_weights(mix: IntArray, labels: IntArray) -> FloatArray:
    """(m,) weights that give `labels` the class shares of `mix`; they sum to 1.

    Every image of a class weighs the same. A class that `labels` lacks gets nothing; all zero
    where no class is shared.
    """
    weights = np.zeros(len(labels))
    for label, count in zip(*np.unique(mix, return_counts=True), strict=True):
        here = labels == label
        if here.any():
            weights[here] = count / here.sum()
    total = weights.sum()
    return weights / total if total > 0 else weights


def weighted_auc(members: FloatArray, nonmembers: FloatArray, weights: FloatArray) -> float:
    """AUC against non-members that carry `weights` (m,), which sum to 1; ties count half."""
    return float(np.clip(share_below(members, nonmembers, weights).mean(), 0.0, 1.0))


def effective_size(weights: FloatArray) -> float:
    """Kish's effective number of weighted images: 1 / sum of squares, weights summing to 1."""
    return float(1 / np.sum(weights**2))


def null_band(
    mix: IntArray, scores: FloatArray, labels: IntArray, generator: np.random.Generator
) -> tuple[float, Interval, int] | None:
    """(mean AUC, its 2.5 to 97.5 % band, posers a draw) of non-members who pose as members.

    Each draw takes, class by class, as many non-members as `mix` holds and scores them against
    the rest, weighted to the same mix. Where a class has too few, all counts shrink by one factor
    so that at least half of every class stays behind, and classes left with none are dropped.
    None where nobody is left to pose.
    """
    order = np.argsort(scores, kind="stable")  # sorted once, so that each draw sorts in one pass
    scores, labels = scores[order], labels[order]
    kinds, wanted = np.unique(mix, return_counts=True)
    pools = [np.flatnonzero(labels == k) for k in kinds]
    shrink = min([1.0, *(len(p) / 2 / w for p, w in zip(pools, wanted, strict=True))])
    counts = np.floor(wanted * shrink + 1e-9).astype(int)
    if counts.sum() == 0:
        return None
    values = np.empty(DRAWS)
    for draw in range(DRAWS):
        picked = [generator.choice(p, c, replace=False) for p, c in zip(pools, counts, strict=True)]
        posing = np.concatenate(picked)
        rest = np.ones(len(scores), dtype=bool)
        rest[posing] = False
        weights = mix_weights(labels[posing], labels[rest])
        values[draw] = weighted_auc(scores[posing], scores[rest], weights)
    low, high = np.quantile(values, [0.025, 0.975])
    return float(values.mean()), (float(low), float(high)), int(counts.sum())


def client_row(
    run: RunScores, attack: ScoredAttack | None, client: ClientInfo
) -> tuple[ClientRow, AucEstimate | None]:
    """One entry of the report's `clients`, without the simultaneous interval, and its AUC."""
    mine = run.member_client == client.id
    kinds, others = run.alike()
    # Members of a class that no scored non-member has cannot be compared with their like.
    like = mine & np.isin(kinds, others)
    n = int((mine if attack is None else like).sum())
    row: ClientRow = {
        "id": client.id, "size": client.size, "role": client.role,
        "defence": _defence(client.defence), "classes": list(client.classes) or None,
        "n_members": n, "n_nonmembers_effective": None,
        "auc": None, "auc_ci": None, "auc_ci_simultaneous": None,
        "null_auc": None, "null_ci": None, "null_n": None,
        "attack": attack.name if attack else None,
    }  # fmt: skip
    if attack is None or n == 0:
        return row, None
    mix, scores = kinds[like], attack.scores_nonmembers
    weights = mix_weights(mix, others)
    found = auc_estimate(attack.scores_members[like], scores, weights)
    row["n_nonmembers_effective"], row["auc"] = effective_size(weights), found.value
    row["auc_ci"] = auc_interval(found)
    null = null_band(mix, scores, others, rng(run.seed, "client-null", client.id))
    if null is not None:
        row["null_auc"], row["null_ci"], row["null_n"] = null
    return row, found


def client_rows(run: RunScores) -> list[ClientRow]:
    """The report's `clients`; simultaneous intervals hold over all clients together."""
    attack = declared_attack(run)
    held = [client_row(run, attack, client) for client in run.clients]
    clients = sum(found is not None for _, found in held)
    for row, found in held:
        if found is not None:
            row["auc_ci_simultaneous"] = auc_interval(found, LEVEL, clients)
    return [row for row, _ in held]


def _defence(defence: ClientDefence | None) -> DefenceRow | None:
    if defence is None:
        return None
    spent = None if defence.epsilon is None else cast(EpsilonRow, asdict(defence.epsilon))
    return {"name": defence.name, "epsilon": spent, "metrics": dict(defence.metrics)}


def ranking(rows: Sequence[ClientRow]) -> str | None:
    """A sentence where simultaneous intervals of two clients separate, else None: no ranking."""
    scored = sorted(with_auc(rows), key=lambda s: -s[1].value)
    parts = []
    for row, auc in scored:
        under = [(r["id"], a.value) for r, a in scored if a.together[1] < auc.together[0]]
        if under:
            names = ", ".join(f"{client} ({value:.2f})" for client, value in under)
            parts.append(f"client {row['id']} ({auc.value:.2f}) more than {names}")
    if not parts:
        return None
    return f"By {scored[0][0]['attack']} AUC, leaks separate: " + "; ".join(parts) + "."
