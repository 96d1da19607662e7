"""SimCLR (Chen et al., ICML 2020): the other images of the batch are the negatives."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.base import Backbone
from fedmia.settings import option
from fedmia.ssl._harder import nce_against
from fedmia.ssl._options import MIXES, head_norm_option, mixup_option, operations_option
from fedmia.ssl._twoview import BankedSSL, TwoView
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import TrainingData


def nt_xent(z1: Tensor, z2: Tensor, T: float) -> Tensor:
    """NT-Xent (Eq. 1), mean of both views' as anchors.

    Each anchor meets the other view of its image and the 2(B - 1) views of the other images.
    One image alone meets no negative: its loss is 0.

    Args:
        z1, z2: (B, P) of unit length.
        T: temperature, > 0.

    Returns:
        (B,).
    """
    count = len(z1)
    z = torch.cat([z1, z2])
    logits = z @ z.T / T  # 2Bx2B
    itself = torch.eye(2 * count, dtype=torch.bool, device=z.device)
    logits = logits.masked_fill(itself, -torch.inf)
    positive = torch.cat([logits.diagonal(count), logits.diagonal(-count)])
    return (torch.logsumexp(logits, dim=1) - positive).view(2, count).mean(dim=0)


class SimCLRMethod(TwoView):
    """One encoder; nothing of its training outlives a step but the weights."""

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """NT-Xent of each image; both views go through the encoder at once, as in the paper."""
        z = self.encoder(torch.cat([view1, view2]))
        self.remember(z[: len(view1)])
        z1, z2 = F.normalize(z, dim=1).split(len(view1))
        return nt_xent(z1, z2, self.spec.temperature)

    def against(self, mixed: Tensor, view2: Tensor) -> Tensor:
        """MixCo's: a softmax over the batch's second views."""
        z = F.normalize(self.encoder(torch.cat([mixed, view2])), dim=1)
        return nce_against(z[: len(mixed)], z[len(mixed) :], z[:0])


@dataclass(frozen=True)
class SimCLR(BankedSSL):
    """SimCLR: NT-Xent with the batch's other images as negatives, two-layer head.

    Both views are trained, as anchors and as negatives, so it takes smaller steps than MoCo: on
    small batches a learning rate of 0.02 learns where 0.06 collapses to one output for all images.

    Attributes:
        head_norm: normalisation in the head.
        operations: which random operations make a view.
        mixup: weight of the loss of mixed pairs of images; 0: none.
    """

    paper: ClassVar[str] = "Chen et al., ICML 2020, arXiv 2002.05709"
    coupled: ClassVar[bool] = True
    least_batch: ClassVar[int] = 2
    lr: ClassVar[float] = 0.02

    # Appendix A with the CIFAR recipe's strength of 0.5 (`jitter` 2 is ImageNet's 1.0).
    paper_views: ClassVar[Augment] = Augment(crop_min=0.08, hue=0.1)

    temperature: float = option(0.5, "T of NT-Xent", gt=0)
    head_norm: str = head_norm_option("none", "head", MIXES)
    blur: float = option(
        0.0, "probability of a blur (0 as in the paper's CIFAR recipe; 0.5 on ImageNet)", ge=0, le=1
    )
    operations: tuple[str, ...] | None = operations_option()
    mixup: float = mixup_option()

    @property
    def augment(self) -> Augment:
        """The paper's, blurred as the options say."""
        views = super().augment
        return replace(views, blur_p=self.blur) if self.blur else views

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> SimCLRMethod:
        encoder = self.encoder(backbone, training_data, generator, 2)
        return SimCLRMethod(encoder, self, bank=self.random_bank(training_data.images, generator))

    def chance_loss(self, images: int, batch: int) -> float | None:
        """ln(2B - 1) of a batch of B: the positive is one of the other views."""
        if self.harder:
            return None
        sizes = [min(batch, images - start) for start in range(0, images, batch)]
        return sum(B * math.log(2 * B - 1) for B in sizes) / images
