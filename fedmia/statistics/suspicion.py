"""Which client stands out: one suspicion a client, of what its updates did round by round.

Values are compared within a round, by the median and the median absolute deviation of its clients,
which a minority of attackers cannot move far. A client that stands out in some rounds alone is seen
by the upper half of its rounds.

Example:
    >>> deviations(np.array([1.0, 2.0, 3.0, 4.0, 15.0])).round(2).tolist()
    [-1.35, -0.67, 0.0, 0.67, 8.09]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FEWEST = 3  # clients of a round: of two, none is the odd one
DRAWS, NUMBERS = 20_000, 4_000_000  # of the null: most draws, and about how many normal values
LEAST_DRAWS = 200
FloatArray = NDArray[np.float64]


def deviations(values: FloatArray) -> FloatArray:
    """How far each value lies from the median of its row, in robust standard deviations.

    Args:
        values: (.., C); NaN where there is none.

    Returns:
        (.., C) in units of 1.4826 median absolute deviations; 0 in a row of which more than half
        are equal, NaN where there is no value.
    """
    centred = values - np.nanmedian(values, axis=-1, keepdims=True)
    spread = 1.4826 * np.nanmedian(np.abs(centred), axis=-1, keepdims=True)
    return np.asarray(np.where(spread > 0, centred / np.where(spread > 0, spread, 1), 0 * centred))


def by_round(norms: FloatArray, cosines: FloatArray, losses: FloatArray | None) -> FloatArray:
    """How far each client's update stands out in each round.

    The sum of three deviations: of the norm's logarithm, upwards or downwards; of the cosine
    downwards; of the loss upwards.

    Args:
        norms: (R, C) L2 norms of the updates, over 0; NaN where a client sent none.
        cosines: (R, C) with the other clients' updates, in [-1, 1].
        losses: (R, C) change of the loss of public images; None: not known.

    Returns:
        (R, C).
    """
    parts = [np.abs(deviations(np.log(norms))), -deviations(cosines)]
    return np.asarray(sum(parts if losses is None else [*parts, deviations(losses)]))


def suspicions(standing: FloatArray) -> FloatArray:
    """One suspicion a client: the mean of the upper half of its rounds, among the clients'.

    Args:
        standing: (R, C) what `by_round` returned.

    Returns:
        (C,) in robust standard deviations from the median client, higher: likelier an attacker's;
        NaN of a client without rounds.
    """
    rounds = np.isfinite(standing).sum(axis=0)
    half = -(-rounds // 2)
    highest = -np.sort(-standing, axis=0)  # NaN comes last
    upper = np.where(np.arange(len(standing))[:, None] < half, highest, 0)
    means = np.where(rounds > 0, upper.sum(axis=0) / np.maximum(half, 1), np.nan)
    return deviations(means)


def p_values(suspicion: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Chance that among as many honest clients the most suspicious one is as suspicious.

    It takes honest clients to be spread normally, and holds for all clients at once: no further
    correction is needed. Few clients cannot give a small one unless one stands out far.

    Args:
        suspicion: (C,) what `suspicions` returned.
        generator: of the draws.

    Returns:
        (C,) in (0, 1]; NaN where the suspicion is.
    """
    clients = int(np.isfinite(suspicion).sum())
    draws = int(np.clip(NUMBERS // max(clients, 1), LEAST_DRAWS, DRAWS))
    part = max(1, NUMBERS // max(clients, 1))  # draws that are in memory at once
    counts = [min(part, draws - start) for start in range(0, draws, part)]
    most = np.concatenate([
        deviations(generator.standard_normal((count, clients))).max(axis=1) for count in counts
    ]) if clients else np.zeros(0)  # fmt: skip
    above = draws - np.searchsorted(np.sort(most), suspicion)
    return np.asarray(np.where(np.isfinite(suspicion), (1 + above) / (1 + draws), np.nan))
