"""Does an attack tell more than its control on the same images? Paired differences of AUCs."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from fedmia.report.intervals import LEVEL, Interval, auc_interval, mover_difference
from fedmia.report.metrics import auc
from fedmia.report.rows import Compared, PairedRow
from fedmia.results import FloatArray, Pair, ScoredAttack


def placements(members: FloatArray, nonmembers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """DeLong's (1988) structural components: for each member the share of non-members below it,
    for each non-member the share of members above it; ties count half. Shapes (n,), (m,)."""
    n, m = len(members), len(nonmembers)
    ranks = rankdata(np.concatenate([members, nonmembers]))
    below = (ranks[:n] - rankdata(members)) / m
    above = 1 - (ranks[n:] - rankdata(nonmembers)) / n
    return below, above


def auc_correlation(attack: ScoredAttack, control: ScoredAttack) -> float:
    """Correlation in [-1, 1] of two AUCs of the same images (DeLong 1988); 0 where undefined."""
    a10, a01 = placements(attack.scores_members, attack.scores_nonmembers)
    b10, b01 = placements(control.scores_members, control.scores_nonmembers)
    if len(a10) < 2 or len(a01) < 2:
        return 0.0
    covariance = np.cov(a10, b10) / len(a10) + np.cov(a01, b01) / len(a01)
    scale = float(np.sqrt(covariance[0, 0] * covariance[1, 1]))
    if not scale > 1e-15:
        return 0.0
    return float(np.clip(covariance[0, 1] / scale, -1.0, 1.0))


def difference_interval(
    attack: ScoredAttack, control: ScoredAttack, level: float = LEVEL, family: int = 1
) -> Interval:
    """Interval of AUC(attack) - AUC(control): MOVER over two Newcombe intervals, with DeLong's
    correlation, because both AUCs come from the same images."""
    n, m = len(attack.scores_members), len(attack.scores_nonmembers)
    a = auc(attack.scores_members, attack.scores_nonmembers)
    b = auc(control.scores_members, control.scores_nonmembers)
    a_ci, b_ci = auc_interval(a, n, m, level, family), auc_interval(b, n, m, level, family)
    low, high = mover_difference(a, a_ci, b, b_ci, auc_correlation(attack, control))
    return max(-1.0, low), min(1.0, high)


def paired_row(pair: Pair, family: int) -> PairedRow:
    """One entry of the report's `paired`. Its statement rests on the simultaneous interval.

    Raises:
        ValueError: the two were not scored on the same number of images.
    """
    attack, control = pair.attack, pair.control
    sizes = [(len(s.scores_members), len(s.scores_nonmembers)) for s in (attack, control)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"attack '{attack.name}' has {sizes[0]} scores, its control '{control.name}' {sizes[1]}"
        )
    n, m = sizes[0]
    head: Compared = {
        "attack": attack.name, "control": control.name, "unit": attack.unit,
        "n_members": n, "n_nonmembers": m,
    }  # fmt: skip
    if n == 0 or m == 0:
        said = f"{attack.name}: no pairs of members and non-members to compare"
        return {
            **head, "difference": None, "ci": None, "ci_simultaneous": None, "statement": said,
        }  # fmt: skip
    a = auc(attack.scores_members, attack.scores_nonmembers)
    b = auc(control.scores_members, control.scores_nonmembers)
    together = difference_interval(attack, control, LEVEL, family)
    return {
        **head,
        "difference": a - b,
        "ci": difference_interval(attack, control),
        "ci_simultaneous": together,
        "auc": a,
        "auc_control": b,
        "auc_control_ci": auc_interval(b, n, m),
        "auc_control_ci_simultaneous": auc_interval(b, n, m, LEVEL, family),
        "statement": statement(attack.name, pair.over, a - b, together),
    }


def statement(attack: str, over: str, difference: float, ci: Interval) -> str:
    """What the interval of the difference says, in words: adds, adds nothing measurable, less."""
    numbers = f"{difference:+.2f} [{ci[0]:+.2f}, {ci[1]:+.2f}] AUC"
    if ci[0] > 0:
        return f"{attack} adds {numbers} over {over}"
    if ci[1] < 0:
        return f"{attack} tells less than {over}: {numbers}"
    return f"{attack} adds nothing measurable over {over}: {numbers}"
