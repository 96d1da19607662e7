"""Whether one subject, such as a patient, stands out among others: how likely, and beside how many.

A subject in question has the mean score of its images; its p-value is its rank among the means of
n others, (1 + others as high) / (n + 1). Before any score is known this takes all scores for
normal, with one variance, of which the share `correlation` lies between subjects, and all subjects
for as large; training shifts the scores of the subject's images by what gives single images their
AUC.

Example:
    >>> others_needed(1), others_needed(6)
    (19, 119)
    >>> round(chance_of_naming(0.5, images=4, correlation=0.3, others=19), 3)
    0.05
    >>> chance_of_naming(0.9, 20, 0.1, others=19) > chance_of_naming(0.9, 1, 0.1, others=19)
    True
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from fedmia.statistics.power import POWER

LEVEL = 0.05  # of the p-value
HIGHEST = 1 - 1e-9  # AUC at which a search ends


def others_needed(tests: int, level: float = LEVEL) -> int:
    """The fewest others beside whom a p-value can be at most `level`.

    Args:
        tests: that it is corrected for, this one of them, at least 1.
        level: in (0, 1).

    Returns:
        n, the least with tests / (n + 1) at most `level`.
    """
    return math.ceil(tests / level - 1e-9) - 1


def chance_of_naming(
    auc: float, images: int, correlation: float, others: int, tests: int = 1, level: float = LEVEL
) -> float:
    """Probability that a subject that was trained on has a p-value of at most `level`.

    Args:
        auc: of single images, in (0, 1).
        images: of each subject, at least 1.
        correlation: of the scores of two images of a subject (intraclass), in [0, 1].
        others: subjects that were not trained on, n.
        tests: that the p-value is corrected for.
        level: in (0, 1).

    Returns:
        the probability; at AUC 0.5 the level that the ranks allow, a multiple of 1 / (n + 1).
    """
    most = math.floor(level / tests * (others + 1) + 1e-9) - 1  # others that may be as high
    if most < 0:
        return 0.0
    spread = math.sqrt(correlation + (1 - correlation) / images)
    shift = math.sqrt(2) * float(scipy.special.ndtri(auc)) / spread
    z = np.linspace(-8.0, 8.0, 2001)
    passes = scipy.special.bdtr(most, others, scipy.special.ndtr(-(z + shift)))
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return float(scipy.integrate.trapezoid(density * passes, z))


def smallest_nameable_auc(
    images: int, correlation: float, others: int, tests: int = 1, power: float = POWER
) -> float | None:
    """The smallest AUC of single images at which a subject is named with probability `power`.

    Args:
        images, correlation, others, tests: as of `chance_of_naming`.
        power: the probability, in (0, 1).

    Returns:
        the AUC, in (0.5, 1); None where not even a nearly perfect attack would do.
    """

    def lacking(auc: float) -> float:
        return chance_of_naming(auc, images, correlation, others, tests) - power

    if lacking(HIGHEST) <= 0:
        return None
    return float(scipy.optimize.brentq(lacking, 0.5, HIGHEST)) if lacking(0.5) < 0 else 0.5
