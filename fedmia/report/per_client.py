"""Whose image was it: how often an attack names the client that holds a scored member; and did
this client train on this image: an attack's scores of pairs (image, client), judged.

The second is the test of FedMIA (Zhu et al., CVPR 2025, arXiv 2402.06289), which knows the client
it asks about. A positive is a pair of a scored member and the client that holds it. A negative is
a pair of a scored non-member and any client that holds scored members. Pairs of a member and
a client that does not hold it are neither, as in FedMIA: whether those are told apart, naming does.
"""

from __future__ import annotations

import numpy as np

from fedmia.options.seeding import rng
from fedmia.records import FloatArray, IntArray, RunScores, ScoredAttack
from fedmia.report.clients import effective_size, mix_weights
from fedmia.report.delong import AucEstimate, auc_interval
from fedmia.report.intervals import Interval, clopper_pearson, wilson
from fedmia.report.naming import named_null
from fedmia.report.rows import NamedCounts, NamedRow, PerClientRow

DRAWS = 1000
TARGET = 0.01  # false-positive rate


def named_rows(run: RunScores) -> list[NamedRow]:
    """The report's `named_clients`: one row for each attack that names clients.

    `placebo` holds the same counts and the same test where the clients never saw the images: there
    nothing but chance can be right. `null` is what the images' classes alone name right.
    """
    rows: list[NamedRow] = []
    for attack in run.attacks:
        if attack.named_members is None or not len(attack.named_members):
            continue
        counts = np.unique(run.member_client, return_counts=True)[1]
        row: NamedRow = {
            "attack": attack.name,
            **_counts(attack.named_members, run.member_client),
            "null": named_null(run, attack),
            "chance": float(counts.max() / counts.sum()),
            "per_client": per_client(run, attack),
            "placebo": None,
        }
        for control in run.controls.get("placebo", ()):
            if control.name == attack.name and control.named_members is not None:
                row["placebo"] = {
                    **_counts(control.named_members, run.member_client),
                    "null": named_null(run, control),
                    "per_client": per_client(run, control, "placebo"),
                }
        rows.append(row)
    return rows


def _counts(named: IntArray, truth: IntArray) -> NamedCounts:
    correct, n = int(np.sum(named == truth)), len(truth)
    return {"correct": correct, "n": n, "accuracy": correct / n, "ci": wilson(correct, n)}


def per_client(run: RunScores, attack: ScoredAttack, *stream: str) -> PerClientRow | None:
    """The numbers of `attack`, None where it gives no scores by client or nothing to compare.

    A member is compared with the non-members asked about the same client, weighted to the class
    mix of that client's members: neither a client whose update fits all images nor one that holds
    few classes looks like a leak. So `auc` is the mean over members of that weighted share of
    non-members whose score of the member's client is lower (ties half), and `tpr_at_fpr` the
    share of members that at most 1 % of them reach; null where 1 % of them (Kish's effective
    number) is less than one image.

    `auc_ci` is of 95 % by a bootstrap over images (see `interval_over_images`), by itself: it is
    none of the simultaneous intervals, and no verdict rests on it. `tpr_at_fpr_ci` is
    Clopper-Pearson's at those thresholds.

    Members whose client sent nothing that the attack read, or whose class no non-member has, are
    left out.

    Args:
        stream: names the bootstrap's stream beside the attack's name.
    """
    if attack.client_ids is None:
        return None
    assert attack.by_client_members is not None and attack.by_client_nonmembers is not None
    asked = np.isin(run.member_client, attack.client_ids)
    kinds, like = run.alike()
    asked &= np.isin(kinds, like)
    if not asked.any():
        return None
    clients, kinds = run.member_client[asked], kinds[asked]
    order = np.argsort(attack.client_ids)
    columns = order[np.searchsorted(attack.client_ids, clients, sorter=order)]
    mine = attack.by_client_members[asked, columns][:, None]  # (n, 1)
    others = attack.by_client_nonmembers[:, columns].T  # (n, m), of each member's client
    ids, at = np.unique(clients, return_inverse=True)
    mixes = np.stack([mix_weights(kinds[clients == k], like) for k in ids])
    weights = mixes[at]
    wins = weights * ((mine > others) + (mine == others) / 2)
    value = min(float(wins.sum(axis=1).mean()), 1.0)
    n, m = wins.shape
    resolved = min(map(effective_size, mixes)) * TARGET >= 1 - 1e-9
    reached = (weights * (others >= mine)).sum(axis=1) <= TARGET + 1e-12
    hits = int(reached.sum())
    generator = rng(run.seed, "per-client", attack.name, *stream)
    return {
        "auc": value,
        "auc_ci": interval_over_images(wins, weights, generator),
        "tpr_at_fpr": {str(TARGET): hits / n if resolved else None},
        "tpr_at_fpr_ci": {str(TARGET): clopper_pearson(hits, n) if resolved else None},
        "n_members": n,
        "n_nonmembers": m,
        "clients": len(ids),
        "positive_pairs": n,
        "negative_pairs": m * len(ids),
    }


def interval_over_images(
    wins: FloatArray, weights: FloatArray, generator: np.random.Generator
) -> Interval | None:
    """95 % percentile interval of sum(wins) / sum(weights), both (n, m), resampling images.

    Each draw takes n members and m non-members with replacement. A non-member comes with its
    pairs of all clients, which are not independent; each pair keeps its weight. None where a side
    has fewer than two images. Where the value is 0 or 1 every draw repeats it: `auc_interval`
    stands in, with the effective number of non-members of the client that has fewest.
    """
    n, m = wins.shape
    if n < 2 or m < 2:
        return None
    value = wins.sum() / weights.sum()
    if min(value, 1 - value) < 1e-9:
        fewest = min(map(effective_size, weights / weights.sum(axis=1, keepdims=True)))
        smaller = min(float(n), fewest)
        at_end = AucEstimate(float(np.clip(value, 0, 1)), 0.0, max(smaller - 1, 1.0), smaller)
        return auc_interval(at_end)
    members = generator.multinomial(n, np.full(n, 1 / n), DRAWS)
    nonmembers = generator.multinomial(m, np.full(m, 1 / m), DRAWS).astype(np.float64)
    won = ((nonmembers @ wins.T) * members).sum(axis=1)
    drawn = ((nonmembers @ weights.T) * members).sum(axis=1)
    low, high = np.quantile(won[drawn > 0] / drawn[drawn > 0], [0.025, 0.975])
    return float(low), float(high)
