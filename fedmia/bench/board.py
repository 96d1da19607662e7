"""Rows of a bench: means over its targets with intervals, traps, and differences of attacks.

Intervals are of the images: another draw of members and non-members of these very targets. They
say nothing of other encoders. Those of one table hold together, by Bonferroni; those of means come
out of those of the targets, which are independent, by MOVER (Zou and Donner 2008).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedmia.bench.scoring import TargetScores
from fedmia.bench.targets import Target
from fedmia.statistics.auc import auc_estimate, auc_interval, difference_interval
from fedmia.statistics.intervals import Interval
from fedmia.statistics.thresholds import tpr_at_fpr

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


def mean_of(parts: Sequence[Estimate]) -> Estimate:
    """The mean of independent numbers, its interval by MOVER at the level of theirs."""
    n, value = len(parts), float(np.mean([one.value for one in parts]))
    low = math.sqrt(sum((one.value - one.low) ** 2 for one in parts)) / n
    high = math.sqrt(sum((one.high - one.value) ** 2 for one in parts)) / n
    return Estimate(value, value - low, value + high)


class TargetRow:
    """An attack on one target, whose intervals hold together with others.

    Args:
        scores: of its images.
        family: number of intervals that hold together.

    Attributes:
        auc: in [0, 1].
        tpr: by false-positive rate; that of LOWER where FEW non-members are.
    """

    def __init__(self, scores: TargetScores, family: int) -> None:
        members, others = scores.members, scores.nonmembers
        estimate = auc_estimate(members, others)
        self.auc = Estimate(estimate.value, *auc_interval(estimate, family=family))
        self.tpr = dict[float, Estimate]()
        for rate in (LOW, *[LOWER] * (len(others) >= FEW)):
            if (at := tpr_at_fpr(members, others, rate, family=family)) is not None:
                self.tpr[rate] = Estimate(at[0], *at[1])


class BoardRow:
    """An attack on all targets that it could run on.

    The intervals of the targets hold together, AUCs and TPRs; so do the two of the means.

    Args:
        scores: by name of the target.
        targets: by name.

    Attributes:
        auc: mean over the targets without a trap; None without one.
        tpr: mean of the TPR at LOW, likewise.
        targets: by name, traps among them.
        trapped: traps in which it says to find members: its AUC is not .5 there.
        queries: images that it had embedded for one target, the mean.
        seconds: of all targets.
    """

    def __init__(self, scores: Mapping[str, TargetScores], targets: Mapping[str, Target]) -> None:
        means = [TargetRow(one, 2) for name, one in scores.items() if not targets[name].trap]
        rates = [row.tpr[LOW] for row in means if LOW in row.tpr]
        self.auc = mean_of([row.auc for row in means]) if means else None
        self.tpr = mean_of(rates) if rates else None
        self.targets = {name: TargetRow(one, 2 * len(scores)) for name, one in scores.items()}
        self.trapped = tuple(
            name
            for name, row in self.targets.items()
            if targets[name].trap and row.auc.excludes(0.5)
        )
        self.queries = round(sum(one.queries for one in scores.values()) / max(1, len(scores)))
        self.seconds = sum(one.seconds for one in scores.values())


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
    parts = list[Estimate]()
    for name in attack.keys() & other.keys():
        if not targets[name].trap:
            a, b = ((one.members, one.nonmembers) for one in (attack[name], other[name]))
            interval: Interval = difference_interval(a, b, family=family)
            gap = auc_estimate(*a).value - auc_estimate(*b).value
            parts.append(Estimate(gap, *interval))
    return (mean_of(parts), len(parts)) if parts else None
