"""Which of two regimes a report is of: whether the encoder knows its members, or leaks weakly."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records.attack_rows import AttackRow
from fedmia.records.rows import RegimeRow

BY, OVERFIT = "similarity", 0.85  # the attack, and the AUC over which an encoder is overfitted


def regime_row(attacks: Sequence[AttackRow]) -> RegimeRow | None:
    """The report's `regime`: a measure of the scored model, no judgement on it.

    Returns:
        None where `similarity` was not run, or has no AUC.
    """
    auc = next((row.auc for row in attacks if row.name == BY), None)
    if auc is None:
        return None
    return RegimeRow(name="overfit" if auc > OVERFIT else "weak", auc=auc, bound=OVERFIT)
