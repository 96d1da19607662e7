"""MoCo v3 (Chen et al., ICCV 2021): a predictor, and the batch's keys as negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import Backbone
from fedmia.nets.transformer import VisionTransformer
from fedmia.settings import option
from fedmia.settings.errors import InputError, opt
from fedmia.ssl._harder import nce_against
from fedmia.ssl._options import key_option, mixup_option, momentum_schedule_option
from fedmia.ssl._twoview import BankedSSL, KeyedTwoView
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import TrainingData


def batch_nce(q: Tensor, k: Tensor, T: float) -> Tensor:
    """2T times InfoNCE of each query (B, P) against the batch's keys (B, P), all of unit length, at
    temperature T > 0: (B,) (Algorithm 1, `ctr`).

    The key of the same image is the positive and the other B - 1 are the negatives; one image
    alone has none, and its loss is 0.
    """
    logits = q @ k.T / T  # BxB
    return 2 * T * (torch.logsumexp(logits, dim=1) - logits.diagonal())


class MoCoV3Method(KeyedTwoView):
    """Query encoder with a predictor, momentum encoder without."""

    predictor: nn.Module

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """ctr(q1, k2) + ctr(q2, k1) of each image.

        The public code updates the momentum encoder before it computes keys, here `after_step`
        does: the same sequence, because the two encoders start equal.
        """
        both, count, T = torch.cat([view1, view2]), len(view1), self.spec.temperature
        with torch.no_grad():
            k1, k2 = F.normalize(self.key_encoder(both), dim=1).split(count)
        z = self.encoder(both)
        self.remember(z[:count])
        q1, q2 = F.normalize(self.predictor(z), dim=1).split(count)
        return batch_nce(q1, k2, T) + batch_nce(q2, k1, T)

    def against(self, mixed: Tensor, view2: Tensor) -> Tensor:
        """MixCo's, of predictions: a softmax over the batch's keys."""
        with torch.no_grad():
            k = F.normalize(self.key_encoder(view2), dim=1)
        q = F.normalize(self.predictor(self.encoder(mixed)), dim=1)
        return nce_against(q, k, k[:0])

    def trainable(self) -> list[nn.Parameter]:
        return [w for w in super().trainable() if w.requires_grad]

    def shared_parameters(self) -> list[str]:
        every = zip(super().shared_parameters(), super().trainable(), strict=True)
        return [name for name, weight in every if weight.requires_grad]


@dataclass(frozen=True)
class MoCoV3(BankedSSL):
    """MoCo v3: predictor, momentum encoder, the batch's keys as negatives, both directions.

    Attributes:
        momentum_schedule: whether the momentum rises to 1 over the run, or stays (`constant`).
        key: whether the key encoder stays with the client or starts each round from the global
            weights.
        mixup: weight of the loss of mixed pairs of images; 0: none.
    """

    paper: ClassVar[str] = "Chen et al., ICCV 2021, arXiv 2104.02057"
    coupled: ClassVar[bool] = True
    least_batch: ClassVar[int] = 2

    # BYOL's augmentation differs between the views (blur 1.0 and 0.1, solarisation 0 and 0.2); here
    # each view draws with the mean of both probabilities.
    paper_views: ClassVar[Augment] = Augment(saturation=0.2, hue=0.1, blur_p=0.55, solarize_p=0.1)

    dim: int = option(256, "length of the projected vector", ge=2)
    momentum: float = option(0.99, "m of the momentum encoder", ge=0, le=1)
    momentum_schedule: str = momentum_schedule_option("the public code")
    temperature: float = option(
        0.2, "T (0.2 for ViT and in public CIFAR recipes; 1.0 for ResNet-50)", gt=0
    )
    key: str = key_option("momentum encoder")
    layers: int = option(2, "linear layers of the projector (3 for ViT in the public code)", ge=1)
    predictor_norm: bool = option(False, "a norm ends the predictor, as for ViT in the public code")
    freeze_embed: bool = option(
        False, "a ViT's patch embedding stays as drawn, which keeps training stable (Sec. 4)"
    )

    mixup: float = mixup_option()

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> MoCoV3Method:
        """The method over a backbone, its patch embedding frozen where `freeze_embed` says so.

        Raises:
            InputError: `freeze_embed` with a network that has no patch embedding.
        """
        if self.freeze_embed:
            if not isinstance(backbone, VisionTransformer):
                raise InputError(f"{opt('ssl.freeze_embed', True)}: the network has no patches")
            backbone.embed.requires_grad_(False)
        encoder = self.encoder(backbone, training_data, generator, self.layers, last_norm=True)
        predictor = self.predictor(backbone, generator, self.predictor_norm)
        bank = self.random_bank(training_data.images, generator)
        return MoCoV3Method(encoder, self, predictor=predictor, bank=bank)
