"""Does an attack tell more than its control on the same images? Paired differences of AUCs."""

from __future__ import annotations

import numpy as np

from fedmia.records import Pair, ScoredAttack
from fedmia.report.delong import AucEstimate, auc_estimate, auc_interval, placements
from fedmia.report.intervals import LEVEL, Interval, mover_difference
from fedmia.report.rows import Compared, PairedRow


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


def estimate_of(scored: ScoredAttack) -> AucEstimate:
    """The AUC of an attack that has scores on both sides."""
    return auc_estimate(scored.scores_members, scored.scores_nonmembers)


def difference_interval(
    attack: ScoredAttack, control: ScoredAttack, level: float = LEVEL, family: int = 1
) -> Interval:
    """Interval of AUC(attack) - AUC(control): MOVER over the intervals of the two, with DeLong's
    correlation, because both AUCs come from the same images."""
    a, b = estimate_of(attack), estimate_of(control)
    a_ci, b_ci = auc_interval(a, level, family), auc_interval(b, level, family)
    low, high = mover_difference(a.value, a_ci, b.value, b_ci, auc_correlation(attack, control))
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
        "attack": attack.name, "control": control.name, "n_members": n, "n_nonmembers": m,
    }  # fmt: skip
    if n == 0 or m == 0:
        said = f"{attack.name}: no pairs of members and non-members to compare"
        return {
            **head, "difference": None, "ci": None, "ci_simultaneous": None, "statement": said,
        }  # fmt: skip
    a, b = estimate_of(attack), estimate_of(control)
    together = difference_interval(attack, control, LEVEL, family)
    return {
        **head,
        "difference": a.value - b.value,
        "ci": difference_interval(attack, control),
        "ci_simultaneous": together,
        "auc": a.value,
        "auc_control": b.value,
        "auc_control_ci": auc_interval(b),
        "auc_control_ci_simultaneous": auc_interval(b, LEVEL, family),
        "statement": statement(attack.name, pair.over, a.value - b.value, together),
    }


def statement(attack: str, over: str, difference: float, ci: Interval) -> str:
    """What the interval of the difference says, in words: adds, adds nothing measurable, less."""
    numbers = f"{difference:+.2f} [{ci[0]:+.2f}, {ci[1]:+.2f}] AUC"
    if ci[0] > 0:
        return f"{attack} adds {numbers} over {over}"
    if ci[1] < 0:
        return f"{attack} tells less than {over}: {numbers}"
    return f"{attack} adds nothing measurable over {over}: {numbers}"
