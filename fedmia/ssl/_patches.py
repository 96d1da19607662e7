"""What methods share that predict patches of an image: their options, and the check of networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from fedmia.nets.base import Backbone, initialise
from fedmia.nets.transformer import VisionTransformer
from fedmia.records.note import Note
from fedmia.settings import option
from fedmia.settings.errors import InputError, opt
from fedmia.ssl._options import ViewsSSL
from fedmia.ssl.augment import Augment
from fedmia.ssl.bank import bank_length, cut_note
from fedmia.ssl.base import SSL, Encoder, SSLMethod, TrainingData


@dataclass(frozen=True)
class PatchSSL(ViewsSSL):
    """A method that predicts pixels of patches from other patches of the same image."""

    lr: ClassVar[float] = 0.01  # from .03 on, without a warm-up, MAE diverges on small clients
    # Crop and flip, without colour: "MAE works well using cropping-only augmentation".
    paper_views: ClassVar[Augment] = Augment(
        brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0, jitter_p=0.0, gray_p=0.0
    )
    mask_unit = 1  # side in patches of what is masked together; an option of MAE

    norm_pix: bool = option(True, "the target is each patch normalised by itself")
    bank: int = option(
        4096, "K, negatives that observers read a loss against; at most half the images", ge=1
    )
    temperature: float = option(0.2, "T of the InfoNCE that observers read", gt=0)
    jitter: float | None = option(
        None, "factor on the colour jitter; these views have none, so it changes nothing", ge=0
    )

    @property
    @abstractmethod
    def parts(self) -> tuple[Callable[..., Any], Callable[..., nn.Module]]:
        """Classes of the method and of its decoder, which takes the backbone and the options."""

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> SSLMethod:
        """The method around `backbone`, every weight drawn from `generator`.

        Raises:
            InputError: a backbone that has no patches to mask, or too few for two mask units, or
                patches of one value that would be normalised.
        """
        vit = vision_transformer(backbone, self)
        if self.mask_unit >= vit.side:
            raise InputError(
                f"{opt('ssl.mask_unit')}: {self.mask_unit}, must be under the {vit.side} patches "
                "of an image's side"
            )
        if self.norm_pix and vit.embed.in_features < 2:
            raise InputError(
                f"{opt('ssl.norm_pix', 'true')} normalises each patch by itself, and a patch of "
                f"{vit.patch}x{vit.patch} gray pixels has one value; a larger {opt('model.patch')} "
                f"or {opt('ssl.norm_pix', 'false')} can be trained"
            )
        encoder = Encoder(vit, nn.Identity(), training_data.mean, training_data.std)
        method, decoder_of = self.parts
        decoder = decoder_of(vit, self)
        initialise(encoder, generator)
        initialise(decoder, generator)
        K = bank_length(self.bank, training_data.images)
        built: SSLMethod = method(encoder, decoder, self, K, generator)
        return built

    def notes(self, images: int) -> list[Note]:
        return cut_note("bank", self.bank, images)


def vision_transformer(backbone: Backbone, spec: SSL) -> VisionTransformer:
    """`backbone`, which the method of `spec` needs to be one; else an InputError."""
    if isinstance(backbone, VisionTransformer):
        return backbone
    raise InputError(
        f"{type(spec).__name__} needs a vision transformer ({opt('model', 'vit-tiny')}, "
        f"vit-small or vit-base), got {type(backbone).__name__}"
    )
