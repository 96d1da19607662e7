"""RMIA without labels: how many known non-members an image beats, against reference models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedmia.attacks._reference import (
    ReferenceAttack,
    ReferenceSignals,
    RoundReferenceAttack,
    ShadowReferenceAttack,
    mean_and_sum,
)
from fedmia.attacks.base import Known, Scores
from fedmia.settings import option
from fedmia.threat import BlackBox

GRID = tuple(i / 10 for i in range(11))


@dataclass
class _Relative(ReferenceAttack):
    """The pairwise test of RMIA, whatever the reference models are."""

    least_known: ClassVar[int] = 2

    offline_a: float | None = option(
        None,
        "a in p(x) = ((1 + a) p_out(x) + 1 - a) / 2, offline: how little membership lifts p (none: "
        "the value from 0 to 1 in tenths that tells the known images apart best, 1 without known "
        "members)",
        ge=0,
        le=1,
    )
    gamma: float = option(
        1.0, "an image beats a non-member whose ratio is this many times smaller", gt=0
    )

    @property
    def learns_from_members(self) -> bool:
        return False

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Choose `a` where it is not set, and read the ratios of the known non-members.

        Raises:
            InputError: there are too few references.
        """
        super().fit(view, known, rng)
        if self.offline_a is None and len(known.members):
            images, truth = known.both()
            signals = self.read(view, images)
            from sklearn.metrics import roc_auc_score

            self._a = choose_a([roc_auc_score(truth, self.ratios(signals, a)) for a in GRID])
            others = signals.of(truth == 0)
        else:
            self._a = 1.0 if self.offline_a is None else self.offline_a
            others = self.read(view, known.nonmembers)
        self._population = np.sort(self.ratios(others, self._a))

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        signals = self.read(view, images)
        return dominated_share(self.ratios(signals, self._a), self._population, self.gamma)

    def ratios(self, signals: ReferenceSignals, a: float) -> Scores:
        """p(x | target) / p(x), (N,)."""
        outside = mean_and_sum(signals.references, ~signals.inside)[0]
        return np.asarray(signals.target / (((1 + a) * outside + 1 - a) / 2))


@dataclass
class RMIA(ShadowReferenceAttack, _Relative):
    """Robust membership inference attack: the share of known non-members that an image beats.

    An image's ratio is p(x | target) / p(x), where p is its signal in (0, 1) and p(x) the mean over
    shadows: half of them trained on x (online), or what the shadows without x would make of it
    (offline). The score is the share of known non-members z with ratio(x) / ratio(z)
    >= gamma. It is a step function of ratio(x) alone, so ties are broken by ratio(x): within a
    step the order is that of the ratio. The paper's gamma is 2; the cosines of views leave p near
    1, where no ratio doubles, so it is 1 here. Its a (0.33 is common) fits labels, whose
    probability membership lifts to almost 1; it lifts an encoder's signal less, and a is chosen by
    the known images.
    """

    paper: ClassVar[str] = "Zarifzadeh et al., Low-Cost High-Power Membership Inference Attacks"

    def ratios(self, signals: ReferenceSignals, a: float) -> Scores:
        self.require_references(signals.inside)
        if not self._online:
            return super().ratios(signals, a)
        kinds = [mean_and_sum(signals.references, w)[0] for w in (signals.inside, ~signals.inside)]
        return np.asarray(signals.target / ((kinds[0] + kinds[1]) / 2))


@dataclass
class RMIARounds(RoundReferenceAttack, _Relative):
    """RMIA from rounds: an image's gain since the earlier rounds, against known non-members' gains.

    As `rmia` offline, with p_out the mean over the earlier global models that a client received.
    """

    name: ClassVar[str] = "rmia-rounds"
    paper: ClassVar[str] = (
        "Zarifzadeh et al., Low-Cost High-Power Membership Inference Attacks; references by round "
        "are fedmia's"
    )


def choose_a(aucs: list[float]) -> float:
    """The value of GRID of the highest AUC; of several the middle one."""
    best = np.flatnonzero(np.array(aucs) == max(aucs))
    return GRID[int(best[len(best) // 2])]


def dominated_share(ratios: Scores, population: Scores, gamma: float) -> Scores:
    """Share (N,) of the `population` (Z,) that each ratio is at least gamma times.

    Within a step, the share grows by less than 1 / Z with the ratio, so that no two images whose
    ratios differ are tied.

    Args:
        ratios: of the images to score, `(N,)`, > 0.
        population: ratios of known non-members, `(Z,)`, > 0 and ascending.
        gamma: factor on these, > 0.

    Returns:
        shares in (0, 1).
    """
    # The comparison is made as the paper's quotient is, by multiplication: no division by 0.
    counts = np.searchsorted(gamma * population, ratios, side="right")
    within = np.log(ratios) - np.log(population).mean()
    small = (1 + within / (1 + np.abs(within))) / 2  # from 0 to 1, far slower than a sigmoid
    return np.asarray((counts + small) / (len(population) + 1), dtype=np.float64)
