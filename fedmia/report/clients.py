"""Leakage by client, with classes held equal, beside its null.

Under non-IID splits a client's members differ from the non-members in class, and a naive AUC
measures that. So each client is scored against non-members weighted to its own class mix, or,
where images belong to clients, against non-members of its own (`Evaluation.alike`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.records import ClientInfo, Evaluation, FloatArray, IntArray, ScoredAttack
from fedmia.records.attack_rows import with_auc
from fedmia.records.client_rows import CLIENT, ClientCounts, ClientDistribution, ClientRow
from fedmia.records.fields import row_of
from fedmia.report.lowerbounds import bounds_family, with_bounds
from fedmia.report.metrics import auc_fields
from fedmia.report.selection import FEW, LARGE, MOST
from fedmia.seeding import rng
from fedmia.statistics.auc import AucEstimate, auc_estimate
from fedmia.statistics.matching import (
    DRAWS,
    NullDistribution,
    effective_size,
    mix_weights,
    null_distribution,
    share_over,
    subject_null,
)

DECLARED = ("combined", "similarity")


def declared_attack(run: Evaluation) -> ScoredAttack | None:
    """The attack that clients are compared by, fixed before any score is seen: `combined`, else
    `similarity`, else the first on a model not under attack, else the first."""
    usable = [a for a in run.attacks if len(a.scores_members)]
    declared = [a for name in DECLARED for a in usable if a.name == name]
    return next(iter([*declared, *(a for a in usable if not a.under_attack), *usable]), None)


# AUC of some members against weighted non-members, Kish's number of these, and what non-members
# score that pose as the members, None where there are too few.
Leak = tuple[AucEstimate, float, NullDistribution | None]


def leak_numbers(leak: Leak | None, family: int) -> dict[str, Any]:
    """The numbers of a `LeakRow`.

    Args:
        leak: of some members; None: they have none.
        family: number of intervals that hold together.

    Returns:
        Field -> number; nothing of no leakage.
    """
    if leak is None:
        return {}
    estimate, effective, null = leak
    return {
        **auc_fields(estimate, family),
        "n_nonmembers_effective": effective,
        **({"null_auc": null.mean, "null_ci": null.band} if null else {}),
    }


def leak_of(
    run: Evaluation,
    attack: ScoredAttack,
    mine: NDArray[np.bool_] | IntArray,
    *stream: str | int,
    shared: dict[bytes, NullDistribution | None] | None = None,
) -> Leak:
    """Leakage of the members `mine`, one at least, each of a kind that a non-member has.

    Args:
        run: the scores.
        attack: whose scores are compared.
        mine: which members: a mask (n,), or places.
        stream: names the draws of the null.
        shared: nulls by mix of kinds, filled in; None: each draws its own.

    Returns:
        Their leakage.
    """
    kinds, others = run.alike()
    mix, scores = kinds[mine], attack.scores_nonmembers
    weights = mix_weights(mix, others)
    of = run.subjects and (run.subjects[0][mine], run.subjects[1])
    estimate = auc_estimate(attack.scores_members[mine], scores, weights, of)
    if of is not None:
        draw, count = rng(run.seed, *stream), len(np.unique(of[0]))
        return estimate, effective_size(weights), subject_null(count, scores, others, of[1], draw)
    key = np.sort(mix).tobytes()
    if shared is None:
        shared = {}
    else:
        stream = stream[0], "mix", key.hex()
    if key not in shared:
        shared[key] = null_distribution(mix, scores, others, rng(run.seed, *stream))
    return estimate, effective_size(weights), shared[key]


def client_leaks(
    run: Evaluation, attack: ScoredAttack | None
) -> dict[int, tuple[int, Leak | None]]:
    """Of each client that has any: how many of its scored members can be compared, and their
    leakage.

    A null depends on the mix of classes alone. Of more than MOST clients, those of one mix share
    its draws, which would take longer than all else.

    Args:
        run: the scores.
        attack: the declared attack; None where there is none, and no leakage either.

    Returns:
        Client -> number of members, and leakage or None.
    """
    # Members of a kind that no scored non-member is of cannot be compared with their like.
    kinds, others = run.alike()
    alike = np.isin(kinds, others)
    places = np.argsort(run.member_client, kind="stable")
    groups = np.unique(run.member_client[places], return_index=True, return_counts=True)
    shared: dict[bytes, NullDistribution | None] | None = {} if len(run.clients) > MOST else None
    leaks: dict[int, tuple[int, Leak | None]] = {}
    for client, first, count in zip(*(numbers.tolist() for numbers in groups), strict=True):
        mine = places[first : first + count]
        like = mine if attack is None else mine[alike[mine]]
        leak = None
        if attack is not None and len(like):
            leak = leak_of(run, attack, like, "client-null", client, shared=shared)
        leaks[client] = len(like), leak
    return leaks


def client_rows(run: Evaluation) -> tuple[list[ClientRow], ClientDistribution | None]:
    """The report's `clients` and, of more than FEW, `client_distribution`; simultaneous intervals
    hold over all clients together. Of more than MOST clients only those that set themselves apart
    have a row: by scored members, a defence, a role or many images."""
    leaks = client_leaks(run, declared_attack(run))
    clients = run.clients
    if (counts := client_counts(run)) is not None:
        large = LARGE * counts.median_size
        clients = [
            c for c in clients if c.id in leaks or c.defence or c.role != "honest" or c.size > large
        ]
    known = [leak for c in clients if (leak := leaks.get(c.id, (0, None))[1])]
    rows = list(_rows(run, clients, leaks))
    nulls = [null.aucs for _, _, null in known if null is not None]
    return rows, distribution(rows, nulls) if len(known) > FEW else None


def client_counts(run: Evaluation) -> ClientCounts | None:
    """The report's `client_counts`, its sentences not yet written; None of at most MOST clients."""
    if len(run.clients) <= MOST:
        return None
    sizes = [client.size for client in run.clients]
    return ClientCounts(clients=len(sizes), median_size=float(np.median(sizes)), defended=[])


def _rows(
    run: Evaluation, clients: Sequence[ClientInfo], leaks: Mapping[int, tuple[int, Leak | None]]
) -> Iterator[ClientRow]:
    attack, bounds = declared_attack(run), bounds_family(run)
    family = sum(leaks.get(c.id, (0, None))[1] is not None for c in clients)
    for client in clients:
        n, leak = leaks.get(client.id, (0, None))
        yield row_of(
            ClientRow,
            client,
            whose=CLIENT,
            defence=client.defence and with_bounds(client.defence, bounds),
            classes=list(client.classes) or None,
            n_members=n,
            attack=attack and attack.name,
            null_n=leak[2].posers if leak and leak[2] else None,
            **leak_numbers(leak, family),
        )


def distribution(rows: Sequence[ClientRow], nulls: Sequence[FloatArray]) -> ClientDistribution:
    """How the AUCs of all clients spread, beside those of their nulls' draws.

    Args:
        rows: of all clients.
        nulls: AUCs of each client's null draws.

    Returns:
        The row of `report.json`.
    """
    scored = with_auc(rows)
    bands = [(row.auc, row.null_ci) for row in scored if row.null_ci is not None]
    percent = np.arange(101)
    return ClientDistribution(
        clients=len(scored),
        over_half=sum((row.low or 0.0) > 0.5 for row in scored),
        under_half=sum((row.high or 1.0) < 0.5 for row in scored),
        with_null=len(bands),
        over_null=sum((value or 0.0) > band[1] for value, band in bands),
        over_null_expected=share_over(DRAWS) * len(bands),
        percentiles=np.percentile([row.auc for row in scored], percent).tolist(),
        null_percentiles=np.percentile(np.concatenate(nulls), percent).tolist() if nulls else None,
    )
