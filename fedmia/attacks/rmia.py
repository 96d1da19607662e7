"""RMIA without labels: how much surer an encoder is of an image than of known non-members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmia.attacks._reference import FromShadows, Readings, mean_and_sum
from fedmia.attacks._relative import Relative
from fedmia.attacks.base import Scores


@dataclass
class RMIA(FromShadows, Relative):
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

    def ratios(self, found: Readings, a: float) -> Scores:
        self.enough(found.inside)
        if not self._online:
            return super().ratios(found, a)
        kinds = [mean_and_sum(found.references, w)[0] for w in (found.inside, ~found.inside)]
        return np.asarray(found.target / ((kinds[0] + kinds[1]) / 2))
