"""Images that belong to subjects, such as patients: what is drawn anew is a subject.

The images of one subject resemble each other, so a side of J subjects says less than as many
images of J x k subjects would. Intervals that count images cover far less than they promise
(`research/measurements/coverage.py`, part `subjects`).

Example:
    >>> parts, weights = subject_means(np.array([1.0, 0.0, 1.0]), np.full(3, 1 / 3),
    ...                                np.array([7, 7, 9]))
    >>> parts.tolist(), weights.round(3).tolist()
    ([0.5, 1.0], [0.667, 0.333])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmia.statistics.intervals import FloatArray, IntArray

Subjects = tuple[IntArray, IntArray]  # of the members (n,) and of the non-members (m,)


def subject_means(
    parts: FloatArray, weights: FloatArray, subjects: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Weighted mean of each subject's parts, and the weight of each subject.

    Args:
        parts: of the images, `(n,)`.
        weights: of the images, `(n,)`; they sum to 1.
        subjects: of the images, `(n,)`.

    Returns:
        means and weights of the subjects that weigh anything, `(J,)` each.
    """
    places = np.unique(subjects, return_inverse=True)[1]
    totals = np.bincount(places, weights).astype(np.float64)
    sums = np.bincount(places, weights * parts)
    heavy = totals > 0
    return sums[heavy] / totals[heavy], totals[heavy]


def intraclass_correlation(sides: Sequence[tuple[FloatArray, IntArray]]) -> float | None:
    """How alike the values of two images of one subject are: their correlation.

    The estimate of one-way analysis of variance (Donner 1986, Int. Stat. Rev. 54:67), with means of
    each side's own and variances of all.

    Args:
        sides: values (n,) and subjects (n,) of each side.

    Returns:
        the correlation, in [0, 1]; None where it cannot be known: no two subjects of a side, none
        with two images, or all values equal.
    """
    between = inside = 0.0
    groups = images = 0
    squares = 0.0  # of the sizes, over the images of their side
    used = 0
    for values, subjects in sides:
        of, sizes = np.unique(subjects, return_inverse=True, return_counts=True)[1:]
        if len(sizes) < 2:
            continue
        means = np.bincount(of, values) / sizes
        between += float(np.sum(sizes * (means - values.mean()) ** 2))
        inside += float(np.sum((values - means[of]) ** 2))
        groups, images, used = groups + len(sizes), images + len(values), used + 1
        squares += float(np.sum(sizes**2)) / len(values)
    if not used or images == groups or between + inside <= 0:
        return None
    each = (images - squares) / (groups - used)
    apart, within = between / (groups - used), inside / (images - groups)
    return float(np.clip((apart - within) / (apart + (each - 1) * within), 0.0, 1.0))


def design_effect(sizes: IntArray, correlation: float) -> float:
    """By how much the variance of a mean over images exceeds that of as many independent ones:
    1 + (k - 1) correlation, where k is the size of a subject that an image is of (Kish 1965).

    Args:
        sizes: images of each subject, `(J,)`.
        correlation: of the values of two images of a subject, in [0, 1].

    Returns:
        the factor, at least 1.
    """
    return 1 + (float(np.sum(sizes**2) / np.sum(sizes)) - 1) * correlation


def halves(subjects: IntArray, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Places of the images of half of the subjects, drawn at random, and of the others.

    Args:
        subjects: of the images, `(n,)`.
        generator: of the draw.

    Returns:
        places in order, of the two halves.
    """
    each = np.unique(subjects)
    first = np.isin(subjects, each[generator.permutation(len(each))[: len(each) // 2]])
    return np.flatnonzero(first), np.flatnonzero(~first)


def nearest_end(sizes: Sequence[int] | IntArray, target: int, least: int, rest: int) -> int:
    """How many of the first subjects have the number of images that is nearest to a target.

    Args:
        sizes: images of each subject, `(J,)`.
        target: number of images.
        least: fewest subjects to take.
        rest: fewest subjects to leave.

    Returns:
        number of subjects, `least` to J - `rest`.
    """
    nearest = int(np.abs(np.cumsum([0, *sizes]) - target).argmin())
    return min(max(nearest, least), len(sizes) - rest)


def effective_trials(hits: NDArray[np.bool_], subjects: IntArray, end: float) -> float:
    """Independent trials that say as much on a rate as these images of these subjects.

    Korn and Graubard (1998, Survey Methodology 24:193): p (1 - p) over the variance between
    subjects, less what its few degrees of freedom cost. Never less than the effective number of
    subjects, which is the answer where all images of a subject share one fate, and never more than
    the images.

    Args:
        hits: of each image whether it counts, `(n,)`.
        subjects: of the images, `(n,)`.
        end: probability beyond the end of the interval to come, in (0, 0.5).

    Returns:
        number of trials, at least 1.
    """
    n = len(hits)
    means, weights = subject_means(hits.astype(np.float64), np.full(n, 1 / n), subjects)
    squares = float(np.sum(weights**2))
    least, rate = 1 / squares, float(np.mean(hits))
    variance = float(np.sum(weights**2 * (means - rate) ** 2)) / max(1 - squares, 1e-12)
    if variance <= 0 or len(means) < 2:
        return least
    freedom = max(least - 1, 1.0)
    shrink = float(scipy.stats.norm.isf(end) / scipy.stats.t.isf(end, freedom)) ** 2
    return float(np.clip(rate * (1 - rate) / variance, least, n)) * shrink if n > 1 else least
