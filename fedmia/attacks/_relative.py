"""RMIA's test: how many known non-members an image beats, whatever the reference models are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fedmia.attacks._reference import Readings, Referenced, mean_and_sum
from fedmia.attacks.base import Known, Scores
from fedmia.settings.option import option
from fedmia.threat import BlackBox

GRID = tuple(i / 10 for i in range(11))


@dataclass
class Relative(Referenced):
    """The pairwise test of RMIA, whatever the reference models are."""

    least_known: ClassVar[int] = 2

    offline_a: float | None = option(
        None,
        "a in p(x) = ((1 + a) p_out(x) + 1 - a) / 2, offline: how little membership lifts p (none: "
        "the value from 0 to 1 in tenths that tells the known images apart best)",
        ge=0,
        le=1,
    )
    gamma: float = option(
        1.0, "an image beats a non-member whose ratio is this many times smaller", gt=0
    )
    _a: float = field(default=0.0, init=False, repr=False)
    _population: Scores | None = field(default=None, init=False, repr=False)

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Raises InputError: what the references lack."""
        super().fit(view, known, rng)
        if self.offline_a is None:
            images, truth = known.both()
            found = self.readings(view, images)
            self._a = best_a([roc_auc_score(truth, self.ratios(found, a)) for a in GRID])
            others = found.of(truth == 0)
        else:
            self._a = self.offline_a
            others = self.readings(view, known.nonmembers)
        self._population = np.sort(self.ratios(others, self._a))

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        found = self.readings(view, images)
        assert self._population is not None
        return beaten(self.ratios(found, self._a), self._population, self.gamma)

    def ratios(self, found: Readings, a: float) -> Scores:
        """p(x | target) / p(x), (N,)."""
        outside = mean_and_sum(found.references, ~found.inside)[0]
        return np.asarray(found.target / (((1 + a) * outside + 1 - a) / 2))


def best_a(aucs: list[float]) -> float:
    """The value of GRID of the highest AUC; of several the middle one."""
    best = np.flatnonzero(np.array(aucs) == max(aucs))
    return GRID[int(best[len(best) // 2])]


def beaten(ratios: Scores, population: Scores, gamma: float) -> Scores:
    """Share (N,) of the sorted `population` (Z,) that each ratio is at least gamma times.

    Within a step, the share grows by less than 1 / Z with the ratio, so that no two images whose
    ratios differ are tied.
    """
    # The comparison is made as the paper's quotient is, by multiplication: no division by 0.
    counts = np.searchsorted(gamma * population, ratios, side="right")
    within = np.log(ratios) - np.log(population).mean()
    small = (1 + within / (1 + np.abs(within))) / 2  # from 0 to 1, far slower than a sigmoid
    return np.asarray((counts + small) / (len(population) + 1), dtype=np.float64)
