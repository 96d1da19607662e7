"""DINOv2 (Oquab et al., 2023): iBOT with Sinkhorn-Knopp for its centres, and KoLeo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.settings import option
from fedmia.ssl._prototypes import codes, potentials
from fedmia.ssl.ibot import IBOT, OnlineTokenizer

ITERATIONS = 3  # of Sinkhorn-Knopp
EPSILON = 1e-8  # added to distances before their logarithm, as in the public code


def koleo(x: Tensor) -> Tensor:
    """The Kozachenko-Leonenko term of each vector: -log of its distance to the nearest other one,
    all at length 1. What spreads a batch over the sphere.

    Args:
        x: (B, D), B >= 2.

    Returns:
        float32 (B,).
    """
    unit = F.normalize(x.float(), dim=1)
    # Not by products of the vectors: near ones would lose their distance to rounding.
    distances = torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.topk(2, dim=1, largest=False).values[:, 1]  # the first is its own
    return -torch.log(nearest + EPSILON)


class DINOv2Method(OnlineTokenizer):
    """iBOT's, with targets that are assigned over the batch; its centres are for observers, who
    have one image and no batch."""

    spec: DINOv2

    @property
    def remembers(self) -> str:
        """No centre moves a gradient here."""
        return "batch norm's running statistics," if self.spec.head_norm == "batch" else ""

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """iBOT's, plus the weighted `koleo` of the student's class tokens of both views, of what
        the backbone pools.

        The public code adds both views, the paper names the first alone. One image alone has no
        neighbour.
        """
        loss, tokens = self._distillation(view1, view2)
        if len(view1) < 2:
            return loss
        return loss + self.spec.koleo * (koleo(tokens[0]) + koleo(tokens[1]))

    def _targets(self, scores: Sequence[Tensor], centre: Tensor, T: float) -> Sequence[Tensor]:
        """Assignments by Sinkhorn-Knopp, (B, .., K) of each view: over both views, and all their
        patches (in the public code over those that are masked)."""
        both = torch.stack(list(scores))
        rows = both.flatten(0, -2)
        return codes(rows, potentials(rows, T, ITERATIONS), T).view_as(both).unbind()


@dataclass(frozen=True)
class DINOv2(IBOT):
    """DINOv2: iBOT whose targets use all prototypes alike, and whose class tokens keep apart.

    Needs a vision transformer (`--model vit-tiny`). Of class tokens and patches each has a last
    layer of its own; the layers before it are shared, which the paper unties too. As iBOT here: two
    global views, no local crops, single patches and no blocks masked at random, constant
    temperatures. No last epochs at high resolution; the network is the one that is given.

    Attributes:
        prototypes: K, outputs of the last layer, for class tokens and as many for patches.
        momentum: m of the teacher.
    """

    paper: ClassVar[str] = "Oquab et al., TMLR 2024, arXiv 2304.07193"
    coupled: ClassVar[bool] = True
    least_batch: ClassVar[int] = 2

    prototypes: int = option(128, "K, outputs of the last layer (131072 in the paper)", ge=2)
    momentum: float = option(
        0.99, "m of the teacher's moving average (0.994 in the paper)", ge=0, le=1
    )
    # Of the centre that observers read by: no step rests on it.
    centre_momentum: float = field(default=0.9, init=False)
    shared_head: bool = option(False, "one last layer for class tokens and patches, or one each")
    koleo: float = option(0.1, "weight of KoLeo, which keeps class tokens apart", ge=0)

    method: ClassVar[type[OnlineTokenizer]] = DINOv2Method
