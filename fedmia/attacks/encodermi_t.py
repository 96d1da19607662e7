"""EncoderMI-T: the mean similarity of an image's views against a threshold set on shadows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedmia.attacks._encodermi import PairSimilarities, ThresholdFitted
from fedmia.threat import BlackBox


@dataclass
class EncoderMIT(PairSimilarities, ThresholdFitted):
    """EncoderMI with a threshold: mean similarity of the views, less the shadows' best threshold.

    A member is an image whose mean similarity is no smaller than the threshold: score >= 0.
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 4.2 (EncoderMI-T)"

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, 1)."""
        return self.pairs(view, images).mean(dim=1, keepdim=True)
