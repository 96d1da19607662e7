"""SwAV (Caron et al., NeurIPS 2020): predict one view's cluster assignment from the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.base import Backbone
from fedmia.settings import option
from fedmia.ssl._options import COLLAPSES, head_norm_option
from fedmia.ssl._prototypes import (
    Prototypes,
    PrototypeSSL,
    codes,
    freeze_for,
    potentials,
    swapped_loss,
)
from fedmia.ssl._twoview import TwoViewSSL
from fedmia.ssl.augment import Augment
from fedmia.ssl.bank import Bank
from fedmia.ssl.base import Encoder, State, TrainingData


class SwAVMethod(PrototypeSSL):
    """Encoder and prototypes, which the federation averages; the queue stays at home.

    The bank is the queue: outputs of earlier batches, both views of each image, that take part in
    the assignment. Rows of zeros are not yet filled.

    Args:
        encoder: with the projection head.
        prototypes: layer of K prototypes.
        spec: the options.
    """

    bank: Bank

    def __init__(self, encoder: Encoder, prototypes: Prototypes, spec: SwAV) -> None:
        super().__init__(encoder, spec, bank=Bank(torch.zeros(spec.queue, spec.dim)))
        self.prototypes = prototypes
        self._images = 0

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Swapped prediction (Eq. 1 and 2), the mean of both directions as in the public code."""
        z1, z2 = self.encoder(view1), self.encoder(view2)
        s1, s2 = self.prototypes.training_scores(z1), self.prototypes.training_scores(z2)
        with torch.no_grad():
            queued = self._queued() if self.spec.queue else s1[:0].float()
            q1, q2 = (self._codes(s, self._u(torch.cat([queued, s.float()]))) for s in (s1, s2))
        self._images = len(view1)
        if self.spec.queue:
            self.remember(torch.cat([z1, z2]))
        return swapped_loss((q1, q2), (s1, s2), self.spec.temperature)

    def _u(self, scores: Tensor) -> Tensor:
        """Potentials (K,) under which features of these scores (N, K) use all prototypes alike."""
        return potentials(scores, self.spec.epsilon, self.spec.iterations)

    def _codes(self, scores: Tensor, u: Tensor) -> Tensor:
        return codes(scores.to(torch.promote_types(scores.dtype, u.dtype)), u, self.spec.epsilon)

    @torch.no_grad()
    def _queued(self) -> Tensor:
        """Scores (N, K) of the outputs in the queue, under the prototypes of now."""
        filled = self.bank.rows[self.bank.rows.any(dim=1)]
        return F.linear(filled, self.prototypes.directions()).float()

    @torch.no_grad()
    def after_step(self) -> None:
        """Prototypes to length 1, then the batch's outputs into the queue."""
        self.prototypes.after_step(self._images)
        self._images = 0
        super().after_step()

    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Swapped prediction of each image by itself: codes under the `potentials` of the
        holder's queue alone, so that the images read together do not matter."""
        s1, s2 = self.prototypes(z1), self.prototypes(z2)
        u = self._u(self._queued())
        q = self._codes(s1, u), self._codes(s2, u)
        return swapped_loss(q, (s1, s2), self.spec.temperature)

    def renew_bank(self, images: int | None, generator: torch.Generator) -> None:
        """The queue starts empty, for every client."""
        self.bank.fill(torch.zeros(self.spec.queue, self.spec.dim))

    def local_state(self) -> State:
        state = super().local_state()
        return state if self.spec.queue else {n: state[n] for n in self.LOCAL}


@dataclass(frozen=True)
class SwAV(TwoViewSSL):
    """SwAV: swapped prediction of cluster assignments, made equal by Sinkhorn-Knopp.

    The two full views only, no small crops. Both views share one queue, used from its first entry
    on (the public code has one for each and waits 15 epochs), as a client's batches are small from
    the first step.
    """

    paper: ClassVar[str] = "Caron et al., NeurIPS 2020, arXiv 2006.09882"
    coupled: ClassVar[bool] = True  # by the assignment

    # The paper's, with the crop of the public code without small crops.
    paper_views: ClassVar[Augment] = Augment(
        crop_min=0.08, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, blur_p=0.5
    )

    prototypes: int = option(64, "K, prototypes (3000 in the paper)", ge=2)
    temperature: float = option(0.1, "T of the prediction's softmax", gt=0)
    epsilon: float = option(0.05, "smoothness of the assignment", gt=0)
    iterations: int = option(3, "iterations of Sinkhorn-Knopp", ge=0)
    queue: int = option(
        256, "earlier outputs that join the batch in the assignment, 0 = none", ge=0
    )
    freeze_epochs: float = option(
        1.0, "epochs of a client's first round in which the prototypes stay as they are", ge=0
    )
    head_norm: str = head_norm_option("batch", "head", COLLAPSES)

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> SwAVMethod:
        encoder = self.encoder(backbone, training_data, generator, 2)
        freeze = freeze_for(self.freeze_epochs, training_data.images)
        return SwAVMethod(encoder, Prototypes(self.prototypes, self.dim, freeze, generator), self)
