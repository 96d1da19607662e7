"""EncoderMI-S: the set of similarities of an image's views, in DeepSets fitted on shadows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fedmia.attacks._encodermi import NetworkFitted, PairSimilarities, Scaling
from fedmia.settings.option import option
from fedmia.threat import BlackBox


class DeepSets(nn.Module):
    """rho(mean over elements of phi(element)) for sets of numbers (Zaheer et al., 2017, Thm. 2).

    EncoderMI names the public code of DeepSets and no sizes. As in that code's classifier the
    elements are averaged and units are ELU; the widths are our own.

    Args:
        width: units of phi's two layers and of rho's hidden one.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(1, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.rho = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, 1))

    def forward(self, sets: Tensor) -> Tensor:
        """(B, K) sets of K numbers -> (B, 1)."""
        out: Tensor = self.rho(self.phi(sets[:, :, None]).mean(dim=1))
        return out


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
