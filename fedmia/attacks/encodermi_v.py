"""EncoderMI-V: the sorted similarities of an image's views, in a network fitted on shadows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedmia.attacks._encodermi import NetworkFitted, PairSimilarities
from fedmia.threat import BlackBox


@dataclass
class EncoderMIV(PairSimilarities, NetworkFitted):
    """EncoderMI with a vector-based classifier: a network on the sorted similarities of the views.

    Two hidden layers of 256, ReLU. The paper gives neither the batch size nor a scaling of the
    similarities: they go in as they are.
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 4.2 (EncoderMI-V)"

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, n (n - 1) / 2), each row in descending order."""
        return self.pairs(view, images).sort(dim=1, descending=True).values
