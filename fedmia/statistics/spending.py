"""When to stop at one of several looks: an error that is spent look by look (alpha spending).

Pocock's spending function (Lan and DeMets 1983, Biometrika 70:659) gives out the error nearly
evenly, so that an early look can stop, too. Looks at a federation score the same images under one
model after another, whose increments are not independent, as the usual boundaries ask: each look
has what is newly spent to itself, and the sum bounds the chance of any false stop, whatever the
looks have to do with each other.

Example:
    >>> [round(level, 4) for level in spend(4)]
    [0.0179, 0.0131, 0.0104, 0.0086]
    >>> round(sum(spend(4)), 10)
    0.05
"""

from __future__ import annotations

import numpy as np

from fedmia.statistics.auc import AucEstimate, auc_interval
from fedmia.statistics.intervals import LEVEL

ALPHA = 1 - LEVEL  # chance of any false stop


def spend(looks: int, alpha: float = ALPHA) -> list[float]:
    """The error of each look, alpha ln(1 + (e - 1) k / looks) being spent after look k.

    Args:
        looks: planned, at least 1.
        alpha: of all looks together, in (0, 1).

    Returns:
        (looks,) errors, which sum to alpha.

    Raises:
        ValueError: no look, or alpha outside (0, 1).
    """
    if looks < 1 or not 0 < alpha < 1:
        raise ValueError(f"looks must be >= 1 and alpha in (0, 1), got {looks} and {alpha}")
    spent = alpha * np.log1p((np.e - 1) * np.arange(looks + 1) / looks)
    return [float(level) for level in np.diff(spent)]


def lower_limit(estimate: AucEstimate, error: float) -> float:
    """The limit that a true AUC lies below with probability `error` at most.

    Args:
        estimate: of an AUC.
        error: of this look, in [0, 0.5); 0: nothing is left to spend.

    Returns:
        the limit, in [0, 1].
    """
    return auc_interval(estimate, 1 - 2 * error)[0] if error > 0 else 0.0


def pool(estimates: list[tuple[AucEstimate, float]]) -> AucEstimate:
    """The mean AUC of independent sets of images, such as those of several nodes.

    Args:
        estimates: of each set, with its weight, > 0.

    Returns:
        the weighted mean, with its variance.

    Raises:
        ValueError: no estimate.
    """
    if not estimates:
        raise ValueError("no AUC from no estimates")
    weights = np.array([weight for _, weight in estimates])
    weights = weights / weights.sum()
    parts = [w**2 * one.variance for w, (one, _) in zip(weights, estimates, strict=True)]
    total = float(sum(parts))
    spread = sum(p**2 / one.freedom for p, (one, _) in zip(parts, estimates, strict=True))
    return AucEstimate(
        float(sum(w * one.value for w, (one, _) in zip(weights, estimates, strict=True))),
        total,
        total**2 / spread if spread > 0 else sum(one.freedom for one, _ in estimates),
        1 / float(sum(w**2 / one.smaller for w, (one, _) in zip(weights, estimates, strict=True))),
    )
