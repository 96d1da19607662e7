"""DINO (Caron et al., ICCV 2021): self-distillation over prototypes, centred and sharpened."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedmia.nets.base import Backbone
from fedmia.settings import option
from fedmia.ssl._options import COLLAPSES, head_norm_option, key_option, momentum_schedule_option
from fedmia.ssl._prototypes import Prototypes, PrototypeSSL, freeze_for, swapped_loss
from fedmia.ssl._twoview import KeyedTwoView, TwoViewSSL
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder, TrainingData, iterate_parts


def centred_targets(scores: Sequence[Tensor], centre: Tensor, T: float) -> list[Tensor]:
    """softmax((scores - centre) / T), (B, .., K) of each view, of scores (B, .., K) and a centre
    (K,), with T > 0."""
    return [torch.softmax((s - centre) / T, dim=-1) for s in scores]


class DINOMethod(PrototypeSSL, KeyedTwoView):
    """Student and prototypes, which the federation averages; teacher and centre stay at home.

    Args:
        encoder: the student.
        prototypes: the last layer of the head.
        spec: the options.
    """

    centre: Tensor  # (K,), a buffer
    LOCAL: ClassVar[Mapping[str, str]] = {**PrototypeSSL.LOCAL, "centre": "centre"}

    def __init__(self, encoder: Encoder, prototypes: Prototypes, spec: DINO) -> None:
        super().__init__(encoder, spec)
        self.prototypes = prototypes
        self.key_prototypes = copy.deepcopy(prototypes).requires_grad_(False)
        self._keys.append(self.key_prototypes.weight)
        self._queries.append(self.prototypes.weight)
        self.register_buffer("centre", torch.zeros(spec.prototypes))

    @property
    def remembers(self) -> str:
        return "the centre, a moving mean of the scores of earlier images,"

    def pairs(self) -> Mapping[str, tuple[nn.Module, nn.Module]]:
        return {"key.prototypes.": (self.key_prototypes, self.prototypes), **super().pairs()}

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Mean of H(teacher(view1), student(view2)) and H(teacher(view2), student(view1))."""
        with torch.no_grad():
            t1, t2 = (self.key_prototypes(self.key_encoder(x)) for x in (view1, view2))
        s1, s2 = (self.prototypes.training_scores(self.encoder(x)) for x in (view1, view2))
        self.latest = (t1.float(), t2.float())  # for the centre
        q = self._targets((t1, t2), self.centre, self.spec.teacher_temperature)
        return swapped_loss(q, (s1, s2), self.spec.temperature)

    def _targets(self, scores: Sequence[Tensor], centre: Tensor, T: float) -> Sequence[Tensor]:
        """What the student is to match, (B, .., K) of each view, by the teacher's scores of it."""
        return centred_targets(scores, centre, T)

    @torch.no_grad()
    def after_step(self) -> None:
        """Prototypes to length 1, the teacher's momentum update, then c <- m c + (1 - m) mean of
        the teacher's scores of both views (Eq. 4)."""
        scores = self.latest
        self.prototypes.after_step(len(scores[0]) if scores else 0)
        super().after_step()
        if scores:
            mean = torch.cat(scores).mean(dim=0)
            self.centre = torch.lerp(mean, self.centre, self.spec.centre_momentum)

    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        """The training loss with the shared weights as their own teacher and the holder's centre:
        an observer has the prototypes, but no teacher."""
        K = self.spec.prototypes  # a method of the same options may have more, for patches
        scores = (self.prototypes(z1)[:, :K], self.prototypes(z2)[:, :K])
        q = centred_targets(scores, self.centre, self.spec.teacher_temperature)
        return swapped_loss(q, scores, self.spec.temperature)

    @torch.no_grad()
    def fill_bank(self, pixels: Tensor) -> None:
        """There are no negatives; the centre becomes the mean score of `pixels`."""
        parts = iterate_parts(pixels, self.encoder.mean.device)
        scores = [self.prototypes(self.encoder(part)) for part in parts]
        self.centre = torch.cat(scores).mean(dim=0)[: self.spec.prototypes]

    def renew(self, images: int | None, generator: torch.Generator) -> bool:
        self.centre = torch.zeros_like(self.centre)
        return super().renew(images, generator)


@dataclass(frozen=True)
class DINO(TwoViewSSL):
    """DINO: match a momentum teacher's centred, sharpened scores over shared prototypes.

    The two global views only, no local crops. The head is the paper's up to its bottleneck, which
    is what observers see, with ReLU for GELU and batch norm, which keeps the outputs of small
    networks apart. The last layer is the prototypes. Without batch norm one image's loss does not
    depend on the others of its batch, but still on earlier batches, through centre and teacher.

    Attributes:
        momentum_schedule: whether the momentum rises to 1 over the run, or stays (`constant`).
        key: whether the teacher stays with the client or starts each round from the global weights.
        head_norm: normalisation in the head.
    """

    paper: ClassVar[str] = "Caron et al., ICCV 2021, arXiv 2104.14294"

    # The paper's two views differ (blur 1 and 0.1, solarise 0 and 0.2), here both get the mean of
    # the two probabilities. The crop is the public code's without local crops.
    paper_views: ClassVar[Augment] = Augment(
        crop_min=0.14, saturation=0.2, hue=0.1, blur_p=0.55, solarize_p=0.1
    )

    prototypes: int = option(128, "K, outputs of the last layer (65536 in the paper)", ge=2)
    temperature: float = option(0.1, "T of the student's softmax", gt=0)
    teacher_temperature: float = option(
        0.04, "T of the teacher's softmax, constant (0.04 to 0.07 in the paper)", gt=0
    )
    momentum: float = option(
        0.99, "m of the teacher's moving average (0.996 in the paper)", ge=0, le=1
    )
    momentum_schedule: str = momentum_schedule_option("the paper")
    centre_momentum: float = option(0.9, "m of the centre's moving average", ge=0, le=1)
    freeze_epochs: float = option(
        1.0, "epochs of a client's first round in which the prototypes stay as they are", ge=0
    )
    key: str = key_option("teacher", "student")
    head_norm: str = head_norm_option("batch", "head", COLLAPSES)

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> DINOMethod:
        encoder = self.encoder(backbone, training_data, generator, 3)
        freeze = freeze_for(self.freeze_epochs, training_data.images)
        return DINOMethod(encoder, Prototypes(self.prototypes, self.dim, freeze, generator), self)
