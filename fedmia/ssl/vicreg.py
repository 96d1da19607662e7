"""VICReg (Bardes et al., ICLR 2022): variance and covariance terms in place of negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.base import Backbone
from fedmia.settings import option
from fedmia.ssl._twoview import TwoView, TwoViewSSL
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import TrainingData

GAMMA, EPSILON = 1.0, 1e-4


def invariance(z1: Tensor, z2: Tensor) -> Tensor:
    """Mean squared difference of each image's two outputs (B, P), (B,).

    Algorithm 1 and the public code divide by P, the paper's Eq. 5 does not.
    """
    return (z1 - z2).square().mean(dim=1)


def variance(z: Tensor) -> Tensor:
    """Mean over P of max(0, 1 - deviation over the batch), a scalar (Eq. 1, 2), B >= 2."""
    return F.relu(GAMMA - torch.sqrt(z.var(dim=0) + EPSILON)).mean()


def covariance(z: Tensor) -> Tensor:
    """Sum of squared covariances of different outputs over P, a scalar (Eq. 3, 4), B >= 2."""
    centred = z - z.mean(dim=0)
    matrix = centred.T @ centred / (len(z) - 1)  # PxP
    return (matrix.square().sum() - matrix.diagonal().square().sum()) / z.shape[1]


class VICRegMethod(TwoView):
    """One encoder; nothing of its training outlives a step but the weights."""

    spec: VICReg

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Each image's invariance term plus the batch's variance and covariance terms.

        The latter belong to no image: every image carries them whole, so that the mean is the
        loss of Algorithm 1. One image alone has neither: its loss is its invariance term.
        """
        z1, z2 = self.encoder(torch.cat([view1, view2])).split(len(view1))
        z1, z2 = z1.float(), z2.float()  # bfloat16 loses small deviations
        loss = self.spec.invariance * invariance(z1, z2)
        if len(z1) < 2:
            return loss
        spread = self.spec.variance * (variance(z1) + variance(z2))
        return loss + spread + self.spec.covariance * (covariance(z1) + covariance(z2))

    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        """The weighted invariance term: the part of the loss that is the image's own."""
        return self.spec.invariance * invariance(z1, z2)


@dataclass(frozen=True)
class VICReg(TwoViewSSL):
    """VICReg: invariance of two views, variance and covariance over the batch, three-layer head.

    The weights keep the paper's proportions of 25 : 25 : 1. Its optimizer, LARS, does not care for
    their scale; plain SGD does, and collapses at 25, 25, 1 and learning rates that suit MoCo.
    """

    paper: ClassVar[str] = "Bardes et al., ICLR 2022, arXiv 2105.04906"
    coupled: ClassVar[bool] = True
    least_batch: ClassVar[int] = 2

    # BYOL's augmentation differs between the views (blur 1.0 and 0.1, solarisation 0 and 0.2); here
    # each view draws with the mean of both probabilities.
    paper_views: ClassVar[Augment] = Augment(
        crop_min=0.08, saturation=0.2, hue=0.1, blur_p=0.55, solarize_p=0.1
    )

    dim: int = option(256, "length of the projected vector (8192 in the paper)", ge=2)
    invariance: float = option(1.0, "lambda, weight of the invariance term", gt=0)
    variance: float = option(
        1.0, "mu, weight of the variance term (the public code halves the term)", ge=0
    )
    covariance: float = option(0.04, "nu, weight of the covariance term", ge=0)

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> VICRegMethod:
        return VICRegMethod(self.encoder(backbone, training_data, generator, 3), self)
