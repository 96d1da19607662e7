"""Steps and rate of a static ascent: the gentlest climb that separates known images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmia.attacks.base import Scores


def choose_gentlest(
    losses_by_rate: Mapping[float, Scores],
    steps: Sequence[int],
    truth: NDArray[np.int64],
    reading: str,
) -> tuple[int, float]:
    """Steps and rate, chosen by the AUC of the reading on known images.

    Of those within one standard error of the best the fewest steps, then the lowest rate: some
    dozen known images cannot rank better ones, and too strong a climb separates nothing. One
    after which the mean loss is no higher than before is no climb, and taken only if all are so.

    Args:
        losses_by_rate: rate -> losses of the known images by step, (G + 1, K),
        G the most steps at it.
        truth: (K,), 1 = member.
        reading: `rise` or `level`.
    """
    settings = sorted(
        (g, lr) for g in steps for lr, losses in losses_by_rate.items() if g < len(losses)
    )
    rises = {(g, lr): losses_by_rate[lr][g] - losses_by_rate[lr][0] for g, lr in settings}
    rising = [one for one in settings if rises[one].mean() > 0] or settings
    readings = {
        (g, lr): rises[g, lr] if reading == "rise" else losses_by_rate[lr][g] for g, lr in rising
    }
    from sklearn.metrics import roc_auc_score

    aucs = {one: float(roc_auc_score(truth, -losses)) for one, losses in readings.items()}
    n, m = truth.sum(), len(truth) - truth.sum()
    error = float(np.sqrt((n + m + 1) / (12 * n * m)))  # of an AUC of so many images under the null
    return next(one for one, auc in aucs.items() if auc >= max(aucs.values()) - error)
