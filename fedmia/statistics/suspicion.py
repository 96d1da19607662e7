"""Which client stands out: one suspicion a client, of what its updates did round by round.

Values are compared within a round, by the median and the median absolute deviation of its clients,
which a minority of attackers cannot move far. A client that stands out in some rounds alone is seen
by the upper half of its rounds. One of few rounds is compared with what as few rounds give an
honest client, and the unit is the same for every number of clients.

Example:
    >>> deviations(np.array([1.0, 2.0, 3.0, 4.0, 15.0])).round(2).tolist()
    [-1.35, -0.67, 0.0, 0.67, 8.09]
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

FEWEST = 3  # clients of a round: of two, none is the odd one
# By clients, then rounds: the largest suspicion of all honest federations that were measured for it
# (research/results/suspects_few.json; of ten clients suspects.json). A size that is missing was
# not measured, or attackers were not shown to lie over its threshold oftener than honest clients.
THRESHOLDS = {
    4: {4: 3.20, 8: 3.25},
    5: {6: 3.78, 7: 3.26, 8: 3.16},
    7: {4: 4.06, 6: 4.23, 7: 4.03, 8: 3.90},
    10: {8: 3.88},
}  # fmt: skip
DRAWS = 1000  # of an honest client with so many rounds
FAR = 1e9  # over the median, the norm by which an update that is not finite stands out
SMALLEST = 1e-300  # chance; a normal deviate of 37
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
    downwards; of the loss upwards. An update that is zero or not finite stands out by a norm FAR
    under or over the median alone.

    Args:
        norms: (.., R, C) L2 norms of the updates; 0 of one that is zero, infinite of one that is
            not finite, NaN where a client sent none.
        cosines: (.., R, C) with the other clients' updates, in [-1, 1].
        losses: (.., R, C) change of the loss of public images; None: not known.

    Returns:
        (.., R, C).
    """
    sound = np.isfinite(norms) & (norms > 0)
    broken = ~sound & ~np.isnan(norms)
    median = np.nanmedian(np.where(sound, norms, np.nan), axis=-1, keepdims=True)
    norms = np.where(broken, median * np.where(norms > 0, FAR, 1 / FAR), norms)
    others = [-deviations(cosines), *([] if losses is None else [deviations(losses)])]
    parts = [np.abs(deviations(np.log(norms))), *(np.where(broken, 0, part) for part in others)]
    return np.asarray(sum(parts))


def suspicions(standing: FloatArray, generator: np.random.Generator) -> FloatArray:
    """One suspicion a client: the mean of the upper half of its rounds, among the clients'.

    The mean of a client is centred and scaled by what honest clients with as many rounds have.
    These are drawn from all values of the federation: each has a part that its rounds share, as
    large as the rounds of a client are more alike than those of two clients.

    Args:
        standing: (R, C) what `by_round` returned.
        generator: draws the honest clients.

    Returns:
        (C,) as of `to_normal`, higher: likelier an attacker's; NaN of a client without rounds.
    """
    rounds, means = np.isfinite(standing).sum(axis=0), upper_mean(standing)
    centred = np.full(len(means), np.nan)
    pool, alike = standing[np.isfinite(standing)], _likeness(standing, generator)
    middle = np.median(pool) if len(pool) else 0.0
    for count in np.unique(rounds[rounds > 0]):
        shared, own = (generator.choice(pool, (n, DRAWS)) - middle for n in (1, count))
        honest = upper_mean(middle + alike**0.5 * shared + (1 - alike) ** 0.5 * own)
        centre = np.median(honest)
        scale = 1.4826 * np.median(np.abs(honest - centre))
        centred[rounds == count] = (means[rounds == count] - centre) / (scale or 1.0)
    return to_normal(deviations(centred))


def alarm_threshold(clients: int, rounds: int) -> float | None:
    """The suspicion over which an alarm is raised.

    It is the largest of n honest federations of each kind that was measured. The next honest one of
    such a kind, exchangeable with them, lies over it with a chance of at most 1 / (n + 1), whatever
    the distribution: the rank of the last of n + 1 is uniform. Ranks within one federation give no
    such threshold: of C clients who are alike, each comes first with a chance of 1 / C.

    Args:
        clients: who all sent an update in each of the rounds.
        rounds: that are compared, with the loss of public images.

    Returns:
        A standard normal value, as of `suspicions`; None where no alarm is given for this size.
    """
    return THRESHOLDS.get(clients, {}).get(rounds)


def upper_mean(values: FloatArray) -> FloatArray:
    """The mean of the upper half of each column: of three values, two.

    Args:
        values: (R, C); NaN where there is none.

    Returns:
        (C,); NaN of a column without values.
    """
    rounds = np.isfinite(values).sum(axis=0)
    half = -(-rounds // 2)
    highest = -np.sort(-values, axis=0)  # NaN comes last
    upper = np.where(np.arange(len(values))[:, None] < half, highest, 0).sum(axis=0)
    return np.asarray(np.where(rounds > 0, upper / np.maximum(half, 1), np.nan))


def to_normal(values: FloatArray) -> FloatArray:
    """Deviations as standard normal values, so that one number is as rare among 3 clients as
    among 100.

    Among C normal values a deviation is nearly Student's with C // 2 degrees of freedom: so many
    values and one more have to lie close together for their median absolute deviation to be small.

    Args:
        values: (C,) of `deviations`; NaN where there is none.

    Returns:
        (C,) in standard deviations, in [-37.1, 37.1], in the order of the deviations.
    """
    freedom = max(1, int(np.isfinite(values).sum()) // 2)
    beyond = np.maximum(scipy.stats.t.sf(np.abs(values), freedom), SMALLEST)
    return np.asarray(np.sign(values) * scipy.stats.norm.isf(beyond))


def _likeness(standing: FloatArray, generator: np.random.Generator) -> float:
    """Correlation, in [0, 1], of two rounds of a client, by median distances; 0 if none has two."""
    one, other = np.triu_indices(len(standing), 1)
    within = np.abs(standing[one] - standing[other])
    within = within[np.isfinite(within)]
    if not within.size:
        return 0.0
    pairs = generator.choice(standing[np.isfinite(standing)], (2, 10 * DRAWS))
    across = np.median(np.abs(pairs[0] - pairs[1]))
    return max(0.0, 1 - float((np.median(within) / across) ** 2)) if across > 0 else 0.0
