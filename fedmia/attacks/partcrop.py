"""PartCrop: an image trained on answers more sharply to crops of its own parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedmia.attacks._classifier import ClassifierAttack
from fedmia.attacks._cosine import pairwise_cosines
from fedmia.attacks._mlp import ACTIVATIONS, NORMS, mlp
from fedmia.attacks._network import NetworkAttack
from fedmia.attacks._partcrop import ENERGIES, PartAttack
from fedmia.attacks.base import Scores
from fedmia.settings import option
from fedmia.threat import OUTPUTS, BlackBox


@dataclass
class PartCrop(PartAttack, NetworkAttack):
    """Energies of the responses of an image's parts to crops of it, in a small network.

    An image's last map has L vectors, a crop of it one pooled vector: their L dot products, taken
    through a softmax, are sharper where the image was trained on. Two energies say how far they
    lie from a uniform and from a bell-shaped distribution (Eq. 1-5). The training recipe plays no
    part. Needs a map of at least two parts. One plus `crops` queries an image.

    A transformer's crops are whole patches, its positions resampled for their grid as in the
    public code. An encoder that takes images of one size only needs `part` 1.0, crops as large as
    the image.
    """

    paper: ClassVar[str] = "Zhu et al., PartCrop, Sec. 4, Eq. 1-5, Table 1"

    draws: int = option(
        1,
        "draws of the crops of the images fitted on, which the network's epochs take in turn (the "
        "paper's code: one each epoch)",
        ge=1,
    )
    energies: str = option(
        "both", "distance of the responses from which distribution", choices=ENERGIES
    )
    with_similarity: bool = option(
        False, "append the sorted cosines of `views` views, EncoderMI's inputs (App. D)"
    )
    activation: str = option(
        "relu", "activation of the network (Tables 12, 13)", choices=tuple(ACTIVATIONS)
    )
    norm: str = option("none", "norm before each activation (Tables 12, 13)", choices=tuple(NORMS))
    views: int = option(10, "views an image of with_similarity", ge=2, needs=("with_similarity",))
    layer: str = option(
        "avgpool", "output of with_similarity", choices=OUTPUTS, needs=("with_similarity",)
    )

    def network(self, widths: Sequence[int]) -> nn.Module:
        return mlp(widths, self.activation, self.norm)

    def inputs(self, view: BlackBox, images: Tensor, draw: int = 0) -> list[Tensor]:
        energies = self.read_energies(view, images, self.energies, draw)
        if self.with_similarity:
            cosines = pairwise_cosines(view.embed_views(images, self.views, self.layer))
            energies.append(torch.from_numpy(cosines).float())
        return energies

    def redraw(self, view: BlackBox, images: Tensor) -> Iterator[list[Tensor]]:
        return (self.inputs(view, images, draw) for draw in range(1, self.draws))


@dataclass
class PartCropV2(PartCrop):
    """PartCrop whose network has RMSNorm and tanh in place of ReLU (Sec. 8.3.2).

    The public code makes a norm of the inputs too, and never applies it; nor does this, because a
    row's own norm hides how large its energies are.
    """

    name: ClassVar[str] = "partcrop-v2"
    paper: ClassVar[str] = "Zhu et al., PartCrop, Sec. 8.3.2, Tables 11-13"

    activation: str = option(
        "tanh", "activation of the network (Tables 12, 13)", choices=tuple(ACTIVATIONS)
    )
    norm: str = option("rms", "norm before each activation (Tables 12, 13)", choices=tuple(NORMS))


class PartCropEnergy(PartAttack):
    """PartCrop's energies without its network: their mean over the crops and both kinds.

    Higher where the responses are sharper, which the paper says of members. One plus `crops`
    queries an image.
    """

    name: ClassVar[str] = "partcrop-energy"
    paper: ClassVar[str] = "Zhu et al., PartCrop, Sec. 4, Eq. 1-5, without the network"

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        return self.part_means(view, images)[:, :2].mean(axis=1)


class PartCropCosine(PartAttack):
    """The mean cosine of an image's parts with the whole image, on the crops of PartCrop.

    The softmax of PartCrop's energies cancels whatever moves all responses of a crop together; a
    cosine shows it. One plus `crops` queries an image.
    """

    name: ClassVar[str] = "partcrop-cosine"
    paper: ClassVar[str] = "fedmia; the crops of Zhu et al., PartCrop, Sec. 4"
    looks_at: ClassVar[tuple[str, ...]] = ("whole",)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        _, cosines = self.read_parts(view, images)
        return np.asarray(cosines.double().mean(dim=1))


class PartCropLogistic(PartAttack, ClassifierAttack):
    """A logistic regression on an image's two mean energies and its mean cosine of part and whole.

    Three numbers an image, which few known images can weigh. One plus `crops` queries an image.
    """

    name: ClassVar[str] = "partcrop-logistic"
    paper: ClassVar[str] = "fedmia; the crops and energies of Zhu et al., PartCrop, Sec. 4"
    looks_at: ClassVar[tuple[str, ...]] = ("parts", "whole")
    classifier = "lr"

    def inputs(self, view: BlackBox, images: Tensor) -> Scores:
        return self.part_means(view, images)
