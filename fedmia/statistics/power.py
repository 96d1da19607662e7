"""What a number of images could have shown: the smallest AUC that would have been established.

An interval that does not lie over 0.5 says little where the images are few. The smallest AUC that
they would have shown with a power of 80 % says how far "not established" reaches.

Example:
    >>> round(smallest_detectable_auc(100, 100), 3)
    0.614
    >>> images_needed(0.55) > images_needed(0.6)
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import scipy

from fedmia.statistics.auc import AucEstimate, auc_interval
from fedmia.statistics.intervals import LEVEL, Interval, mover_difference

POWER = 0.8
MOST = 10**7  # images a side, at which a search ends


def planned_variance(auc: float, n: int, m: int) -> float:
    """Variance of an AUC before any score is known, by Hanley and McNeil (1982, Radiology 143:29).

    At 0.5 it is the exact variance under the hypothesis that nothing leaks, (n + m + 1) / (12 n m).

    Args:
        auc: the true AUC, in [0, 1].
        n: number of members, at least 1.
        m: number of non-members, at least 1.

    Returns:
        the variance.
    """
    two_members, two_others = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    square = auc**2
    sums = auc * (1 - auc) + (n - 1) * (two_members - square) + (m - 1) * (two_others - square)
    return max(sums, 0.0) / (n * m)


@cache  # a report asks for the same few again and again
def smallest_detectable_auc(
    n: int, m: int, family: int = 1, power: float = POWER, level: float = LEVEL,
    control_family: int | None = None, subjects: tuple[int, int] | None = None, controls: int = 1,
) -> float | None:  # fmt: skip
    """The smallest true AUC whose interval (`auc_interval`) lies over 0.5 with probability `power`.

    With c the smallest AUC on the scored images whose interval lies over 0.5, it is the A with
    A - z sd(A) = c, where z is the quantile of the standard normal distribution at `power` and
    sd(A) the root of `planned_variance`. It is exact for many images, an approximation for few.
    Where the AUC must also lie over those of controls, `power` is the probability of all.

    Args:
        n: number of scored members.
        m: number of scored non-members.
        family: number of intervals that hold together at `level`, at least 1.
        power: probability that the leak is established, in (0, 1).
        level: confidence level, in (0, 1).
        control_family: number of intervals of the difference from a control, 0.5 and independent,
            that hold together at `level`; its own must lie over 0, too. None: there is no control.
        subjects: of the members and of the non-members, on which degrees of freedom rest; `n` and
            `m` are then images divided by the design effect. None: each image is its own.
        controls: 1, or 2: a control and its reverse, 1 minus its AUC; more: others, too.

    Returns:
        the AUC, in (0.5, 1); None where not even a nearly perfect attack would be established.

    Raises:
        ValueError: `power` outside (0, 1).
    """
    if not 0 < power < 1:
        raise ValueError(f"power must be in (0, 1), got {power}")
    a, b = subjects or (n, m)
    if min(n, m, a, b) < 2:
        return None
    sides = 1 / a, 1 / b
    freedom = sum(sides) ** 2 / (sides[0] ** 2 / (a - 1) + sides[1] ** 2 / (b - 1))
    highest, solve = 1 - 1e-9, scipy.optimize.brentq

    def ends(auc: float, tests: int) -> Interval:
        estimate = AucEstimate(auc, planned_variance(auc, n, m), freedom, float(min(n, m)))
        return auc_interval(estimate, level, tests)

    def over_half(auc: float) -> float:
        return ends(auc, family)[0] - 0.5

    def over_control(auc: float) -> float:
        tests = control_family or 1
        return mover_difference(auc, ends(auc, tests), 0.5, ends(0.5, tests))[0]

    limits = [over_half] if control_family is None else [over_half, over_control]
    if any(limit(highest) <= 0 for limit in limits):
        return None
    thresholds = [float(solve(limit, 0.5, highest)) for limit in limits]

    def lacking(auc: float) -> float:
        return _chance(auc, n, m, controls, *thresholds) - power

    if lacking(highest) <= 0 or lacking(0.5) >= 0:
        return None if lacking(highest) <= 0 else thresholds[-1]
    return float(solve(lacking, 0.5, highest))


def _chance(
    auc: float, n: int, m: int, controls: int, over: float, over_control: float | None = None
) -> float:
    """Probability that an estimate of `auc` exceeds `over`, and that it exceeds `over_control` by
    more than the independent estimate of each control, whose AUC is 0.5, exceeds 0.5."""
    own, beside = (math.sqrt(planned_variance(a, n, m)) for a in (auc, 0.5))
    least = (over - auc) / own
    if over_control is None:
        return float(scipy.special.ndtr(-least))
    z = np.linspace(min(max(least, -8.0), 8.0), 8.0, 401)
    one = scipy.special.ndtr((auc + z * own - over_control) / beside)
    both = np.maximum(2 * one - 1, 0)  # a control and its reverse
    passes = one if controls == 1 else one ** (controls - 2) * both
    return float(
        scipy.integrate.trapezoid(np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * passes, z)
    )


def images_needed(
    auc: float, family: int = 1, power: float = POWER, level: float = LEVEL,
    control_family: int | None = None, controls: int = 1, worth: float | None = None,
) -> int | None:  # fmt: skip
    """The fewest members, with as many non-members, that would show a leak of this AUC.

    Args:
        auc: the true AUC, in (0.5, 1).
        family: number of intervals that hold together, at least 1.
        power: probability that the leak is established, in (0, 1).
        level: confidence level, in (0, 1).
        control_family, controls: as of `smallest_detectable_auc`.
        worth: images of a subject over the design effect, where what is drawn is a subject; None:
            it is an image.

    Returns:
        images, or subjects, of each side; None where more than ten million would be needed.

    Raises:
        ValueError: `auc` outside (0.5, 1).
    """
    if not 0.5 < auc < 1:
        raise ValueError(f"auc must be in (0.5, 1), got {auc}")

    def enough(n: int) -> bool:
        images = n if worth is None else round(n * worth)
        subjects = None if worth is None else (n, n)
        least = smallest_detectable_auc(
            images, images, family, power, level, control_family, subjects, controls
        )
        return least is not None and least <= auc

    return fewest(enough, MOST)


def fewest(enough: Callable[[int], bool], most: int) -> int | None:
    """The least number, from 2 on, that is enough, by bisection.

    Args:
        enough: whether a number is; once it is, so are all greater ones.
        most: number at which the search ends.

    Returns:
        The number; None where none up to `most` is enough.
    """
    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if high > most:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
