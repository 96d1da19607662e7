"""Whose image was it: how often an attack names the client that holds a scored member; and did
this client train on this image: an attack's scores of pairs (image, client).

A positive is a pair of a scored member and the client that holds it. A negative is a pair of
a scored non-member and any client that holds scored members. Pairs of a member and a client that
does not hold it are neither, as in FedMIA: whether those are told apart, naming does.
"""

from __future__ import annotations

import numpy as np

from fedmia.records import Evaluation, ScoredAttack
from fedmia.records.client_rows import NamingNull, NamingRow, PerClientRow
from fedmia.seeding import rng
from fedmia.statistics.by_client import client_auc, matched_naming_rate
from fedmia.statistics.intervals import clopper_pearson, wilson
from fedmia.statistics.matching import mix_weights

TARGET = 0.01  # false-positive rate


def named_rows(run: Evaluation) -> list[NamingRow]:
    """The report's `named_clients`: one row for each attack that names clients.

    `placebo` holds the same counts and the same test where the clients never saw the images: there
    nothing but chance can be right. `null` is what the images' classes alone name right. None where
    images belong to subjects: the counts are of images that are drawn one by one.
    """
    rows: list[NamingRow] = []
    for attack in run.attacks:
        if attack.named_members is None or not len(attack.named_members) or run.subjects:
            continue
        counts = np.unique(run.member_client, return_counts=True)[1]
        chance = float(counts.max() / counts.sum())
        controls = [
            _named_row(run, control, None, None, "placebo")
            for control in run.controls.get("placebo", ())
            if control.name == attack.name and control.named_members is not None
        ]
        rows.append(_named_row(run, attack, chance, controls[-1] if controls else None))
    return rows


def _named_row(
    run: Evaluation, attack: ScoredAttack, chance: float | None, placebo: NamingRow | None,
    *stream: str,
) -> NamingRow:  # fmt: skip
    assert attack.named_members is not None
    correct, n = int(np.sum(attack.named_members == run.member_client)), len(run.member_client)
    return NamingRow(
        attack=attack.name, correct=correct, n=n, accuracy=correct / n, ci=wilson(correct, n),
        chance=chance, null=named_null(run, attack), per_client=per_client(run, attack, *stream),
        placebo=placebo,
    )  # fmt: skip


def per_client(run: Evaluation, attack: ScoredAttack, *stream: str) -> PerClientRow | None:
    """The numbers of `attack`, None where it gives no scores by client or nothing to compare; see
    `fedmia.statistics.by_client.client_auc`.

    `tpr_at_fpr` is the share of members that at most 1 % of their non-members reach; null where 1 %
    of them (Kish's effective number) is less than one image. `auc_ci` is of 95 % by a bootstrap
    over images, by itself: it is none of the simultaneous intervals, and no verdict rests on it.
    `tpr_at_fpr_ci` is Clopper-Pearson's at those thresholds.

    Members whose client sent nothing that the attack read, or whose class no non-member has, are
    left out.

    Args:
        run: the scores.
        attack: with scores by client.
        stream: names the draws of the interval.

    Returns:
        The row of `report.json`.
    """
    if attack.client_ids is None:
        return None
    assert attack.by_client_members is not None and attack.by_client_nonmembers is not None
    kinds, like = run.alike()
    members = np.isin(run.member_client, attack.client_ids) & np.isin(kinds, like)
    if not members.any():
        return None
    clients, kinds = run.member_client[members], kinds[members]
    order = np.argsort(attack.client_ids)
    columns = order[np.searchsorted(attack.client_ids, clients, sorter=order)]
    others = attack.by_client_nonmembers[:, columns].T  # (n, m), of each member's client
    ids, at = np.unique(clients, return_inverse=True)
    weights = np.stack([mix_weights(kinds[clients == k], like) for k in ids])[at]
    generator = rng(run.seed, "per-client", attack.name, *stream)
    mine = attack.by_client_members[members, columns]
    auc, auc_ci, reached, resolved = client_auc(mine, others, weights, TARGET, generator)
    n, m = others.shape
    rate, ci = reached / n, clopper_pearson(reached, n)
    return PerClientRow(
        auc=auc,
        auc_ci=auc_ci,
        tpr_at_fpr={str(TARGET): rate if resolved else None},
        tpr_at_fpr_ci={str(TARGET): ci if resolved else None},
        n_members=n,
        n_nonmembers=m,
        clients=len(ids),
        positive_pairs=n,
        negative_pairs=m * len(ids),
    )


def named_null(run: Evaluation, attack: ScoredAttack) -> NamingNull | None:
    """The null of the clients that `attack` names, and what it names right beyond it; None without
    scores by client, or with fewer than two images of a side to compare. Members that no
    non-member is like are left out. See `fedmia.statistics.by_client.matched_naming_rate`.

    Args:
        run: the scores.
        attack: that names clients.

    Returns:
        The row of `report.json`.
    """
    ids, named_clients = attack.client_ids, attack.named_members
    others = attack.by_client_nonmembers
    kinds, like = run.alike()
    members = np.isin(kinds, like)
    n = int(members.sum())
    if ids is None or named_clients is None or others is None or min(n, len(like)) < 2:
        return None
    owners, same = run.member_client[members], kinds[members, None] == like
    value, ci, difference, difference_ci = matched_naming_rate(
        named_clients[members] == owners, owners, ids[others.argmax(axis=1)], same, like
    )
    return NamingNull(
        accuracy=value,
        ci=ci,
        difference=difference,
        difference_ci=difference_ci,
        n_members=n,
        alike="class" if run.whose is None else "client",
    )
