"""MoCo v3 (Chen et al., ICCV 2021): a predictor, and the batch's keys as negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import Backbone
from fedmia.options.option import option
from fedmia.ssl._options import key_option, momentum_schedule_option
from fedmia.ssl._twoview import BankedSSL, KeyedTwoView
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Recipe


def batch_nce(q: Tensor, k: Tensor, T: float) -> Tensor:
    """2T times InfoNCE of each query against the batch's keys, (B,) (Algorithm 1, `ctr`).

    The key of the same image is the positive and the other B - 1 are the negatives; one image
    alone has none, and its loss is 0.

    Args:
        q, k: (B, P) of unit length.
        T: temperature, > 0.

    Returns:
        losses, `(B,)`.
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


@dataclass(frozen=True)
class MoCoV3(BankedSSL):
    """MoCo v3: predictor, momentum encoder, the batch's keys as negatives, both directions.

    Attributes:
        momentum_schedule: whether the momentum rises to 1 over the run, or stays (`constant`).
        key: whether the key encoder stays with the client or starts each round from the global
            weights.
    """

    paper: ClassVar[str] = "Chen et al., ICCV 2021, arXiv 2104.02057"
    coupled: ClassVar[bool] = True

    dim: int = option(256, "length of the projected vector", ge=2)
    momentum: float = option(0.99, "m of the momentum encoder", ge=0, le=1)
    momentum_schedule: str = momentum_schedule_option("the public code")
    temperature: float = option(
        0.2, "T (0.2 for ViT and in public CIFAR recipes; 1.0 for ResNet-50)", gt=0
    )
    key: str = key_option("momentum encoder")

    @property
    def augment(self) -> Augment:
        """BYOL's recipe. It differs between the views (blur 1.0 and 0.1, solarisation 0 and 0.2);
        here each view draws with the mean of both probabilities."""
        return self.views(crop_min=0.2, jitter=(0.4, 0.4, 0.2, 0.1), blur=0.55, solarize=0.1)

    def build(self, backbone: Backbone, recipe: Recipe, generator: torch.Generator) -> MoCoV3Method:
        encoder = self.encoder(backbone, recipe, generator, 2, last_norm=True)
        predictor = self.predictor(backbone, generator)  # as for ResNets: no last norm
        bank = self.random_bank(recipe.images, generator)
        return MoCoV3Method(encoder, self, predictor=predictor, bank=bank)
