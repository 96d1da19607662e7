"""BYOL (Grill et al., NeurIPS 2020): predict the other view's output of a slow copy of oneself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import Backbone
from fedmia.settings import option
from fedmia.ssl._options import (
    COLLAPSES,
    head_norm_option,
    key_option,
    mixup_option,
    momentum_schedule_option,
)
from fedmia.ssl._twoview import KeyedTwoView, TwoViewSSL
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import TrainingData


def distance(p: Tensor, z: Tensor) -> Tensor:
    """||p/|p| - z/|z| ||^2 = 2 - 2 cos(p, z) (Eq. 2), (B,) in [0, 4] of (B, P) each."""
    return 2 - 2 * (F.normalize(p, dim=1) * F.normalize(z, dim=1)).sum(dim=1)


class BYOLMethod(KeyedTwoView):
    """Online encoder and predictor, which the federation averages; the target stays at home."""

    predictor: nn.Module

    @property
    def remembers(self) -> str:
        """Nothing without batch norm: the target is an average of weights alone."""
        return super().remembers if self.spec.coupled else ""

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Both directions, summed as in the paper (Sec. 3.1)."""
        with torch.no_grad():
            target1, target2 = self.key_encoder(view1), self.key_encoder(view2)
        online1, online2 = self.encoder(view1), self.encoder(view2)
        first = distance(self.predictor(online1), target2)
        return first + distance(self.predictor(online2), target1)

    def against(self, mixed: Tensor, view2: Tensor) -> Tensor:
        """i-Mix's (Lee et al., ICLR 2021): the distances to both targets, in the two shares."""
        with torch.no_grad():
            target = F.normalize(self.key_encoder(view2), dim=1)
        return 2 - 2 * F.normalize(self.predictor(self.encoder(mixed)), dim=1) @ target.T

    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        """2 - 2 cos(z1, z2): an observer has no target network, and BYOL has no negatives."""
        return distance(z1, z2)


@dataclass(frozen=True)
class BYOL(TwoViewSSL):
    """BYOL: predict a momentum encoder's output of the other view, without negatives.

    As in FedBYOL (EasyFL), the federation averages the online encoder and the predictor. Batch
    norm in the heads is what keeps the outputs of small networks apart; it alone makes one image's
    loss depend on the others of its batch.

    Attributes:
        momentum_schedule: whether the momentum rises to 1 over the run, or stays (`constant`).
        key: whether the target stays with the client or starts each round from the global weights.
        head_norm: normalisation in the heads.
        mixup: weight of the loss of mixed pairs of images; 0: none.
    """

    paper: ClassVar[str] = "Grill et al., NeurIPS 2020, arXiv 2006.07733"

    # Appendix B; its two views differ (blur 1 and 0.1, solarise 0 and 0.2), here both get the mean
    # of the two probabilities.
    paper_views: ClassVar[Augment] = Augment(
        crop_min=0.08, saturation=0.2, hue=0.1, blur_p=0.55, solarize_p=0.1
    )

    momentum: float = option(
        0.99, "m of the target's moving average (0.996 in the paper)", ge=0, le=1
    )
    momentum_schedule: str = momentum_schedule_option("the paper")
    key: str = key_option("target network", "encoder")
    head_norm: str = head_norm_option("batch", "heads", COLLAPSES)
    mixup: float = mixup_option("i-Mix")

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> BYOLMethod:
        encoder = self.encoder(backbone, training_data, generator, 2)
        return BYOLMethod(encoder, self, predictor=self.predictor(backbone, generator))
