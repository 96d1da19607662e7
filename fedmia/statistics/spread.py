"""Numbers over independent models: mean, Student's interval, a test that the mean is 0.

Example:
    >>> row = spread([0.6, 0.7, 0.65])
    >>> row["mean"], row["ci"]
    (0.65, (0.525793, 0.774207))
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import scipy

from fedmia.statistics.intervals import LEVEL, Interval

DIGITS = 6


def spread(values: Iterable[float | None], low: float = 0.0, high: float = 1.0) -> dict[str, Any]:
    """Numbers over the models of one point, as files of results have them; rounded.

    Args:
        values: one value a model; None where a model lacks it.
        low, high: least and greatest value there may be; the interval is cut to them.

    Returns:
        `n`, the models that have the value; over these `mean`, `ci` (Student's 95 % interval of the
        mean; None below two models, or where all are equal), `sd` (standard deviation between
        models), `least` and `greatest`; None where no model has it.
    """
    known = [value for value in values if value is not None]
    return {
        "n": len(known),
        "mean": _rounded(statistics.fmean(known)) if known else None,
        "ci": clip_interval(t_interval(known), low, high),
        "sd": _rounded(statistics.stdev(known)) if len(known) > 1 else None,
        "least": min(known, default=None),
        "greatest": max(known, default=None),
    }


def clip_interval(ci: Interval | None, low: float = 0.0, high: float = 1.0) -> Interval | None:
    """An interval rounded, and cut to what its values can be; None where rounding leaves a point.

    Args:
        ci: an interval, or None.
        low: least possible value.
        high: greatest possible value.

    Returns:
        the interval, or None.
    """
    if ci is None:
        return None
    ends = _rounded(max(ci[0], low)), _rounded(min(ci[1], high))
    return ends if ends[0] < ends[1] else None


def t_interval(values: Sequence[float], together: int = 1) -> Interval | None:
    """Student's interval of the mean of independent values; None below two of them, and where all
    are equal, as three AUCs of exactly 1: it would be a point.

    Args:
        values: one value a model.
        together: intervals that shall hold at the level together (Bonferroni).

    Returns:
        lower and upper limit, or None.
    """
    if len(values) < 2 or not (deviation := statistics.stdev(values)) > 0:
        return None
    mean, error = statistics.fmean(values), deviation / math.sqrt(len(values))
    tail = (1 - LEVEL) / 2 / together
    half = -float(scipy.stats.t.ppf(tail, len(values) - 1)) * error
    return mean - half, mean + half


def p_value(values: Sequence[float]) -> float | None:
    """Two-sided t test that the mean of independent values is 0; None where there is no interval
    either."""
    if clip_interval(t_interval(values), -math.inf, math.inf) is None:
        return None
    return float(scipy.stats.ttest_1samp(values, 0.0).pvalue)


def _rounded(value: float) -> float:
    return round(value, DIGITS)
