"""iBOT (Zhou et al., ICLR 2022): DINO on class tokens, and on masked patches of the same view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedmia.nets.base import Backbone, initialise
from fedmia.nets.transformer import ClassToken, patchify
from fedmia.settings import option
from fedmia.settings.errors import option_error
from fedmia.ssl._patches import vision_transformer
from fedmia.ssl._prototypes import Prototypes, cross_entropy, freeze_for, swapped_loss
from fedmia.ssl.base import Encoder, TrainingData
from fedmia.ssl.dino import DINO, DINOMethod


class OnlineTokenizer(DINOMethod):
    """DINO's student, prototypes and teacher; also a mask token, averaged, and the centre of the
    patches' scores, which stays at home.

    Args:
        encoder: the student, around a vision transformer.
        prototypes: the last layer of the head.
        mask_token: what masked patches are embedded as; a layer that Opacus knows.
        spec: the options.
    """

    patch_centre: Tensor  # (K,), a buffer
    LOCAL: ClassVar[Mapping[str, str]] = {**DINOMethod.LOCAL, "key.patch_centre": "patch_centre"}

    def __init__(
        self, encoder: Encoder, prototypes: Prototypes, mask_token: ClassToken, spec: IBOT
    ) -> None:
        super().__init__(encoder, prototypes, spec)
        self.mask_token = mask_token
        self.register_buffer("patch_centre", torch.zeros_like(self.centre))

    @property
    def remembers(self) -> str:
        return "the centres, moving means of the scores of earlier images,"

    def shared_modules(self) -> Mapping[str, nn.Module]:
        return {**super().shared_modules(), "mask_token.": self.mask_token}

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """DINO's loss of the class tokens of both views, the student's masked, plus the mean over
        both views of the cross-entropy of masked patches with the teacher's of the same view."""
        return self._distillation(view1, view2)[0]

    def _distillation(self, view1: Tensor, view2: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """The losses (B,), and of each view the student's pooled vectors (B, D)."""
        views, K, T = (view1, view2), self.spec.prototypes, self.spec.temperature
        with torch.no_grad():
            key = self.key_encoder
            teacher = [self.key_prototypes(key.head(self._tokens(key, x))) for x in views]
        hidden = [self.hidden(x) for x in views]
        tokens = [self._tokens(self.encoder, x, h) for x, h in zip(views, hidden, strict=True)]
        student = [self.prototypes.training_scores(self.encoder.head(t)) for t in tokens]
        # Without a shared head the first K prototypes are of class tokens, the last of patches.
        (t1, p1), (t2, p2) = ((t[:, 0, :K].float(), t[:, 1:, -K:].float()) for t in teacher)
        self.latest = (t1, t2, p1.mean(dim=1), p2.mean(dim=1))  # for the centres
        q = self._targets((t1, t2), self.centre, self.spec.teacher_temperature)
        loss = swapped_loss(q, [s[:, 0, :K] for s in student], T)
        patches = self._targets((p1, p2), self.patch_centre, self.spec.patch_temperature)
        for q_patch, s, h in zip(patches, student, hidden, strict=True):
            apart = cross_entropy(q_patch, s[:, 1:, -K:], T)
            loss = loss + (apart * h).sum(dim=1) / h.sum(dim=1).clamp(min=1) / 2
        return loss, [t[:, 0] for t in tokens]

    def hidden(self, view: Tensor) -> Tensor:
        """True where a patch of each view is masked (B, n), at random; in half of the views none.

        Keyed by the view's content and the student's weights.

        Args:
            view: pixels, (B, C, H, W).
        """
        vit, spec = vision_transformer(self.encoder.backbone, self.spec), self.spec
        count = (view.shape[2] // vit.patch) * (view.shape[3] // vit.patch)
        u = vit.uniforms(view, 2 + count, use=1)
        share = spec.mask + spec.mask_spread * (2 * u[:, :1] - 1)
        rank = u[:, 2:].argsort(dim=1, stable=True).argsort(dim=1)
        return (rank < (share * count).long()) & (u[:, 1:2] >= spec.unmasked)

    def _tokens(self, encoder: Encoder, view: Tensor, hidden: Tensor | None = None) -> Tensor:
        """The pooled vector and the patches before the head, (B, 1 + n, D); the student's with
        `hidden` patches, true in (B, n)."""
        vit, pixels = vision_transformer(encoder.backbone, self.spec), encoder.normalise(view)
        grid: Tensor = vit.embed(patchify(pixels, vit.patch))
        path: Tensor | None = None
        if hidden is not None:
            both = self.mask_token(grid.flatten(1, 2))
            mixed = torch.where(hidden[:, :, None], both[:, :1], both[:, 1:])
            grid, path = mixed.view_as(grid), vit.path_factors(pixels)
        last = vit.encode(vit.positions(grid).flatten(1, 2), path)[-1]
        return torch.cat([vit.pooled(last)[:, None], last[:, 1:]], dim=1)

    @torch.no_grad()
    def after_step(self) -> None:
        """DINO's, and likewise the centre of the patches' scores."""
        if self.latest:
            mean = torch.cat(self.latest[2:]).mean(dim=0)
            self.patch_centre = torch.lerp(mean, self.patch_centre, self.spec.centre_momentum)
        self.latest = self.latest[:2]
        super().after_step()

    def renew(self, images: int | None, generator: torch.Generator) -> bool:
        self.patch_centre = torch.zeros_like(self.patch_centre)
        return super().renew(images, generator)


@dataclass(frozen=True)
class IBOT(DINO):
    """iBOT: DINO, and masked patches that match the teacher's of the whole view.

    Needs a vision transformer (`--model vit-tiny`). As DINO here: two global views, no local crops,
    constant temperatures. The paper masks blocks, here patches are masked at random.

    Attributes:
        prototypes: K, outputs of the last layer, for class tokens and for patches.
        mask: in the paper 0.3 give or take 0.2 in half of the views, the others whole.
    """

    paper: ClassVar[str] = "Zhou et al., ICLR 2022, arXiv 2111.07832"
    method: ClassVar[type[OnlineTokenizer]] = OnlineTokenizer

    prototypes: int = option(128, "K, outputs of the last layer (8192 in the paper)", ge=2)
    shared_head: bool = option(True, "one last layer for class tokens and patches, or one each")
    patch_temperature: float = option(
        0.07, "T of the teacher's softmax over patches, constant (0.04 to 0.07 in the paper)", gt=0
    )
    mask: float = option(0.3, "mean share of the patches that are masked", gt=0, lt=1)
    mask_spread: float = option(0.2, "the share is uniform, so far around its mean", ge=0)
    unmasked: float = option(0.5, "probability that no patch of a view is masked", ge=0, lt=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mask_spread <= min(self.mask, 1 - self.mask):
            most = f"{min(self.mask, 1 - self.mask):.4g}, so that shares lie in [0, 1]"
            raise option_error(self, f"mask_spread: {self.mask_spread}, must be at most {most}")

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> OnlineTokenizer:
        """The method around `backbone`, every weight drawn from `generator`.

        Raises:
            InputError: a backbone that has no patches to mask.
        """
        vit = vision_transformer(backbone, self)
        encoder = self.encoder(vit, training_data, generator, 3)
        count = self.prototypes if self.shared_head else 2 * self.prototypes
        freeze = freeze_for(self.freeze_epochs, training_data.images)
        prototypes = Prototypes(count, self.dim, freeze, generator)
        mask_token = ClassToken(vit.width)
        initialise(mask_token, generator)
        return self.method(encoder, prototypes, mask_token, self)
