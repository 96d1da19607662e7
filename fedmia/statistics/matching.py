"""Members against non-members of the same kinds: weights, and the AUC if nothing leaked.

Under non-IID splits a client's members differ from the non-members in class, and a naive AUC
measures that. So non-members are weighted to the members' mix of classes.

The null says what the AUC would be if nothing leaked: non-members pose as the members. Each draw
takes, class by class, as many non-members as the client has scored members and scores them against
the rest, weighted to the same mix. Where a class has too few, all counts shrink by one factor so
that at least half of every class stays behind; classes left with none are dropped.

Example:
    >>> mix_weights(np.array([0, 0, 1]), np.array([0, 1, 1])).round(3).tolist()
    [0.667, 0.167, 0.167]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmia.statistics.auc import share_below
from fedmia.statistics.intervals import FloatArray, IntArray, Interval

DRAWS = 200


def share_over(draws: int) -> float:
    """Share of further draws over the band of so many, whose upper end is the 0.975 (draws - 1)-th
    of them, from 0."""
    return 1 - (0.975 * (draws - 1) + 1) / (draws + 1)


def mix_weights(mix: IntArray, labels: IntArray) -> FloatArray:
    """(m,) weights that give `labels` the class shares of `mix`; they sum to 1.

    Every image of a class weighs the same. A class that `labels` lacks gets nothing; all zero
    where no class is shared.

    Args:
        mix: classes of the client's members, `(n,)`.
        labels: classes of the non-members, `(m,)`.

    Returns:
        weights, `(m,)`.
    """
    weights = np.zeros(len(labels))
    for label, count in zip(*np.unique(mix, return_counts=True), strict=True):
        here = labels == label
        if here.any():
            weights[here] = count / here.sum()
    total = weights.sum()
    return weights / total if total > 0 else weights


def effective_size(weights: FloatArray) -> float:
    """Kish's effective number of weighted images: 1 / sum of squares, weights summing to 1."""
    return float(1 / np.sum(weights**2))


@dataclass(frozen=True, eq=False)
class NullDistribution:
    """AUCs (DRAWS,) of posers, `posers` non-members a draw.

    Attributes:
        aucs: AUC of each draw of posers, `(DRAWS,)`, in [0, 1].
        posers: number of non-members in a draw.
    """

    aucs: FloatArray
    posers: int

    @property
    def mean(self) -> float:
        return float(self.aucs.mean())

    @property
    def band(self) -> Interval:
        """From the 2.5th to the 97.5th percentile."""
        low, high = np.quantile(self.aucs, [0.025, 0.975])
        return float(low), float(high)


def null_distribution(
    mix: IntArray, scores: FloatArray, labels: IntArray, generator: np.random.Generator
) -> NullDistribution | None:
    """The null of a client whose scored members have the classes `mix` (n,); None where no
    non-member is left to pose.

    Args:
        mix: classes of the client's scored members, `(n,)`.
        scores, labels: (m,) of the scored non-members.
        generator: of the draws.

    Returns:
        the AUCs of the posers, or None.
    """
    order = np.argsort(scores, kind="stable")
    scores, labels = scores[order], labels[order]
    kinds, class_counts = np.unique(mix, return_counts=True)
    pools = [np.flatnonzero(labels == k) for k in kinds]
    shrink = min([1.0, *(len(p) / 2 / w for p, w in zip(pools, class_counts, strict=True))])
    counts = np.floor(class_counts * shrink + 1e-9).astype(int)
    if (posers := int(counts.sum())) == 0:
        return None
    weights = np.zeros(len(scores))  # of a non-member that stays behind
    for pool, count in zip(pools, counts, strict=True):
        weights[pool] = count / max(len(pool) - count, 1) / posers
    chosen = drawn([len(p) for p in pools], counts, generator)
    posing = np.sort(np.hstack([p[c] for p, c in zip(pools, chosen, strict=True)]), axis=1)
    # A poser is compared with those who stay behind: with all, less the posers of its own draw.
    every = share_below(scores, scores, weights)[posing]
    ties = np.searchsorted(scores, scores)  # equal scores share their first place
    places = (ties[posing] + len(scores) * np.arange(DRAWS)[:, None]).ravel().astype(float)
    before = np.arange(DRAWS)[:, None] * weights[posing[0]].sum()  # of the draws that came first
    own = share_below(places, places, weights[posing].ravel()).reshape(posing.shape) - before
    return NullDistribution(np.clip((every - own).mean(axis=1), 0.0, 1.0), posers)


def subject_null(
    count: int, scores: FloatArray, labels: IntArray, subjects: IntArray,
    generator: np.random.Generator,
) -> NullDistribution | None:  # fmt: skip
    """The null of a client whose scored members are of so many subjects: as many non-member
    subjects pose, at most half of all, against the others of the posers' mix of classes.

    Args:
        count: subjects of the client.
        scores: of the scored non-members, `(m,)`.
        labels: classes of them, `(m,)`.
        subjects: of them, `(m,)`.
        generator: of the draws.

    Returns:
        the AUCs of the posers, or None with fewer than two non-member subjects.
    """
    names, at, sizes = np.unique(subjects, return_inverse=True, return_counts=True)
    posers = min(count, len(names) // 2)
    if not posers:
        return None
    aucs = np.empty(DRAWS)
    for draw in range(DRAWS):
        posing = np.isin(at, generator.permutation(len(names))[:posers])
        others = scores[~posing]
        weights = mix_weights(labels[posing], labels[~posing])
        if weights.any():
            aucs[draw] = share_below(scores[posing], others, weights).mean()
        else:  # no class is shared
            aucs[draw] = 0.5
    return NullDistribution(aucs, round(posers * float(sizes.mean())))


def drawn(
    sizes: Sequence[int], counts: Sequence[int] | IntArray, generator: np.random.Generator
) -> list[IntArray]:
    """Of each pool of `sizes` places, (DRAWS, count) distinct ones, at random: Floyd's algorithm
    (Bentley and Floyd, CACM 30:754, 1987), all draws side by side.

    The numbers are read off the stream draw by draw, in the order of `Generator.choice`, which also
    draws a shuffle: the sets are those of a loop over it (up to 10,000 places), in little of its
    time.

    Args:
        sizes: number of places of each pool.
        counts: how many places to draw from each pool.
        generator: of the draws.

    Returns:
        for each pool, indices `(DRAWS, count)`.
    """
    spans = [np.r_[s - c : s, c - 1 : 0 : -1] for s, c in zip(sizes, counts, strict=True)]
    highest = np.concatenate(spans).astype(np.int64)
    numbers = generator.integers(0, np.tile(highest, (DRAWS, 1)), endpoint=True)
    places, at, rows = list[IntArray](), 0, np.arange(DRAWS)
    for size, count, span in zip(sizes, counts, spans, strict=True):
        picked = numbers[:, at : at + count]
        at += len(span)
        if count > 1:
            chosen = np.zeros((DRAWS, size), dtype=bool)
            for j in range(count):
                again = chosen[rows, picked[:, j]]
                picked[again, j] = size - count + j
                chosen[rows, picked[:, j]] = True
        places.append(picked)
    return places
