"""EncoderMI-S: the set of similarities of an image's views, in DeepSets fitted on shadows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fedmia.attacks._deepsets import DeepSets
from fedmia.attacks._encodermi import NetworkFitted, PairSimilarities, Scaling
from fedmia.settings.option import option
from fedmia.threat import BlackBox


@dataclass
class EncoderMIS(PairSimilarities, NetworkFitted):
    """EncoderMI with a set-based classifier: DeepSets on the unordered similarities of views."""

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 4.2 (EncoderMI-S)"

    width: int = option(32, "units of each layer of DeepSets (the paper does not say)", ge=1)

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, n (n - 1) / 2); their order carries nothing."""
        return self.pairs(view, images)

    def network(self, width: int) -> nn.Module:
        return DeepSets(self.width)

    def scaling(self, inputs: Tensor) -> Scaling:
        """One mean and one deviation of all elements: by place they would order the set."""
        return Scaling(inputs.mean(), inputs.std())
