"""PartCrop-v2: PartCrop's energies in a network that trains at every width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedmia.attacks._mlp import RMSNorm, mlp
from fedmia.attacks.partcrop import PartCrop
from fedmia.settings.option import option


class NormTanh(nn.Module):
    """What stands between two linear layers in place of ReLU: RMSNorm, then tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm()

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(x))


@dataclass
class PartCropV2(PartCrop):
    """PartCrop whose network has RMSNorm and tanh in place of ReLU (Sec. 8.3.2).

    The public code makes a norm of the inputs too, and never applies it; nor does this by default,
    because a row's own norm hides how large its energies are. `normalise_input` applies it.
    """

    paper: ClassVar[str] = "Zhu et al., PartCrop, Sec. 8.3.2, Tables 11-13"

    normalise_input: bool = option(False, "apply RMSNorm to the inputs of the network")

    def network(self, widths: Sequence[int]) -> nn.Module:
        body = mlp(widths, NormTanh)
        return nn.Sequential(RMSNorm(), body) if self.normalise_input else body
