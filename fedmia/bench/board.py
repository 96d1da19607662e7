"""Rows of a bench: means over its targets with intervals, traps, and differences of attacks.

Intervals are of the images: another draw of members and non-members of these very targets. They
say nothing of other encoders. Those of one table hold together, by Bonferroni; those of means come
out of those of the targets by MOVER (Zou and Donner 2008), with the correlation (DeLong 1988) that
images bring which several targets share.

Thresholds of the TPR are those of one half of the non-members, every other one by SHA-256. The TPR
is that of these thresholds, whose error is in no interval of it: the other half of the non-members
says which share of them lies over each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fedmia.bench.scoring import TargetScores
from fedmia.bench.targets import Target
from fedmia.statistics.auc import auc_estimate, auc_interval, difference_interval, placements
from fedmia.statistics.intervals import LEVEL, FloatArray, Interval, tail, wilson
from fedmia.statistics.power import POWER

LOW, LOWER = 0.01, 0.001  # false-positive rates; the second where FEW non-members are
FEW = 5000
REVERSED = (
    "the AUC lies wholly under .5, so non-members have higher scores: its order, turned round, "
    "would tell members"
)


@dataclass(frozen=True)
class Estimate:
    """A number and its interval.

    Attributes:
        value: the number.
        low: lower limit.
        high: upper limit.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        numbers = (f"{number:.2f}".replace("0.", ".", 1) for number in vars(self).values())
        return "{} [{}, {}]".format(*numbers)

    def excludes(self, value: float) -> bool:
        """Whether the interval lies beside a value."""
        return not self.low <= value <= self.high

    @property
    def reversed(self) -> bool:
        """Of an AUC: whether it lies wholly under .5, so that non-members have higher scores."""
        return self.high < 0.5

    @property
    def marked(self) -> str:
        """Of an AUC: as text, with a word where it is reversed."""
        return f"{self}{' reversed' * self.reversed}"


def mean_of(parts: Sequence[Estimate], correlation: FloatArray) -> Estimate:
    """The mean of T numbers, its interval by MOVER at the level of theirs.

    Args:
        parts: the numbers, T >= 1.
        correlation: of them, (T, T).

    Returns:
        The mean.
    """
    n, value = len(parts), float(np.mean([one.value for one in parts]))
    down, up = np.array([(one.value - one.low, one.high - one.value) for one in parts]).T
    low, high = (math.sqrt(max(0.0, float(ends @ correlation @ ends))) / n for ends in (down, up))
    return Estimate(value, value - low, value + high)


def influence(scores: TargetScores) -> FloatArray:
    """How far each image moves the AUC (n + m,), members first: DeLong's components, centred."""
    sides = placements(scores.members, scores.nonmembers)
    return np.concatenate([(side - side.mean()) / len(side) for side in sides])


def correlate(influences: Sequence[FloatArray], targets: Sequence[Target]) -> FloatArray:
    """Correlation of numbers of T targets by the images that they share.

    Args:
        influences: of the images of each target on its number, as of `influence`.
        targets: the T targets.

    Returns:
        The correlation (T, T), in [-1, 1]; 1 in the diagonal.
    """
    images = [target.scored_images for target in targets]
    places = np.unique(np.concatenate(images), return_inverse=True)[1].reshape(-1)
    table, start = np.zeros((len(targets), places.max() + 1)), 0
    for row, own in zip(table, influences, strict=True):
        row[places[start : start + len(own)]] = own
        start += len(own)
    products = table @ table.T
    scale = np.sqrt(np.outer(products.diagonal(), products.diagonal()))
    correlation = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
    np.fill_diagonal(correlation, 1.0)
    return np.asarray(correlation.clip(-1, 1))


class TargetRow:
    """An attack on one target, whose intervals hold together with others.

    Args:
        scores: of its images.
        family: number of intervals that hold together.

    Attributes:
        auc: in [0, 1].
        tpr: by false-positive rate, that of LOWER where FEW non-members are: the share of members
            over the threshold that half of the non-members give this rate (`threshold_at`).
        fpr: by the same rates, the share of the other half over that threshold; each interval is
            one by itself.
    """

    def __init__(self, scores: TargetScores, family: int) -> None:
        members, others = scores.members, scores.nonmembers
        estimate = auc_estimate(members, others)
        self.auc = Estimate(estimate.value, *auc_interval(estimate, family=family))
        self.tpr, self.fpr = dict[float, Estimate](), dict[float, Estimate]()
        calibration, rest = others[::2], others[1::2]
        for rate in rates_of(scores):
            over = threshold_at(calibration, rate)
            for rates, side, together in ((self.tpr, members, family), (self.fpr, rest, 1)):
                count, n = int((side > over).sum()), len(side)
                rates[rate] = Estimate(count / n, *wilson(count, n, 1 - 2 * tail(LEVEL, together)))


def threshold_at(nonmembers: FloatArray, rate: float) -> float:
    """The score that another non-member exceeds with a probability of at most `rate`: the k-th
    highest of m, k = floor(rate (m + 1)), at least 1."""
    return float(np.sort(nonmembers)[-int((len(nonmembers) + 1) * rate + 1e-9)])


def rates_of(scores: TargetScores) -> tuple[float, ...]:
    """The false-positive rates at which a target has a TPR."""
    count = len(scores.nonmembers)
    enough = {LOW: ((count + 1) // 2 + 1) * LOW >= 1, LOWER: count >= FEW}
    return tuple(rate for rate, yes in enough.items() if yes)


class BoardRow:
    """An attack on all targets that it could run on.

    The intervals of the targets hold together, AUCs and TPRs; so do those of the means.

    Args:
        scores: by name of the target.
        targets: by name.

    Attributes:
        auc: mean over the targets without a trap; None without one.
        tpr: by rate, the mean of the TPR at it over those targets that have one.
        fpr: by the same rates, the mean of the measured one.
        targets: by name, traps among them.
        trapped: traps in which it says to find members: its AUC is not .5 there.
        queries: images that it had embedded for one target, the mean.
        seconds: for one target, the mean of those on which it ran alone; None without one.
    """

    def __init__(self, scores: Mapping[str, TargetScores], targets: Mapping[str, Target]) -> None:
        plain = {name: one for name, one in scores.items() if not targets[name].trap}
        rates = sorted({rate for one in plain.values() for rate in rates_of(one)}, reverse=True)
        means = {name: TargetRow(one, 1 + len(rates)) for name, one in plain.items()}
        self.auc = self.mean(means, scores, targets)
        self.tpr, self.fpr = dict[float, Estimate](), dict[float, Estimate]()
        for rate in rates:
            own = [row for row in means.values() if rate in row.tpr]
            self.tpr[rate] = mean_of([row.tpr[rate] for row in own], np.eye(len(own)))
            # Of shared images the same ones may lie over the thresholds of all targets.
            self.fpr[rate] = mean_of([row.fpr[rate] for row in own], np.ones((len(own),) * 2))
        count = sum(1 + len(rates_of(one)) for one in scores.values())
        self.targets = {name: TargetRow(one, count) for name, one in scores.items()}
        self.trapped = tuple(
            name
            for name, row in self.targets.items()
            if targets[name].refuses and row.auc.excludes(0.5)
        )
        self.queries = round(sum(one.queries for one in scores.values()) / max(1, len(scores)))
        alone = [one.seconds for one in scores.values() if one.seconds is not None]
        self.seconds = float(np.mean(alone)) if alone else None

    @staticmethod
    def mean(
        rows: Mapping[str, TargetRow],
        scores: Mapping[str, TargetScores],
        targets: Mapping[str, Target],
    ) -> Estimate | None:
        """The mean AUC of some targets.

        Args:
            rows: of those targets by name.
            scores: by name.
            targets: by name.

        Returns:
            The mean at the level of the rows; None without one.
        """
        if not rows:
            return None
        moves = [influence(scores[name]) for name in rows]
        correlation = correlate(moves, [targets[name] for name in rows])
        return mean_of([row.auc for row in rows.values()], correlation)


def would_show(gap: Estimate, family: int) -> float:
    """The least difference that the images of a comparison show with a power of POWER.

    Args:
        gap: of two attacks, with its interval.
        family: number of differences that hold together.

    Returns:
        Half of the interval, longer by what the power costs.
    """
    ends = [float(scipy.stats.norm.isf(end)) for end in (tail(LEVEL, family), 1 - POWER)]
    return (gap.high - gap.low) / 2 * sum(ends) / ends[0]


def difference(
    attack: Mapping[str, TargetScores], other: Mapping[str, TargetScores],
    targets: Mapping[str, Target], family: int,
) -> tuple[Estimate, int] | None:  # fmt: skip
    """The mean difference of the AUCs of two attacks over the plain targets that both have.

    Args:
        attack: scores by name of the target.
        other: likewise; of the same images.
        targets: by name.
        family: number of differences that hold together.

    Returns:
        The difference and the number of targets; None without a common one.
    """
    parts, moves = list[Estimate](), list[FloatArray]()
    names = [name for name in targets if name in attack.keys() & other.keys()]
    names = [name for name in names if not targets[name].trap]
    for name in names:
        a, b = ((one.members, one.nonmembers) for one in (attack[name], other[name]))
        interval: Interval = difference_interval(a, b, family=family)
        gap = auc_estimate(*a).value - auc_estimate(*b).value
        parts.append(Estimate(gap, *interval))
        moves.append(influence(attack[name]) - influence(other[name]))
    if not parts:
        return None
    return mean_of(parts, correlate(moves, [targets[name] for name in names])), len(parts)
