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
# No client of 78 honest federations was over it (benchmarks/results/suspects.json), each of so many
# clients and rounds. Others need their own: the largest of more clients is larger.
THRESHOLD, CLIENTS, ROUNDS = 11.06, 10, 8
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
        norms: (.., R, C) L2 norms of the updates, over 0; NaN where a client sent none.
        cosines: (.., R, C) with the other clients' updates, in [-1, 1].
        losses: (.., R, C) change of the loss of public images; None: not known.

    Returns:
        (.., R, C).
    """
    parts = [np.abs(deviations(np.log(norms))), -deviations(cosines)]
    return np.asarray(sum(parts if losses is None else [*parts, deviations(losses)]))


def suspicions(standing: FloatArray) -> FloatArray:
    """One suspicion a client: the mean of the upper half of its rounds, among the clients'.

    Args:
        standing: (.., R, C) what `by_round` returned.

    Returns:
        (.., C) in robust standard deviations from the median client, higher: likelier an
        attacker's; NaN of a client without rounds.
    """
    rounds = np.isfinite(standing).sum(axis=-2)
    half = -(-rounds // 2)
    highest = -np.sort(-standing, axis=-2)  # NaN comes last
    places = np.arange(standing.shape[-2])[:, None]
    upper = np.where(places < half[..., None, :], highest, 0).sum(axis=-2)
    return deviations(np.where(rounds > 0, upper / np.maximum(half, 1), np.nan))
