"""PartCrop: an image trained on answers more sharply to crops of its own parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedmia.attacks._cosine import pairwise_cosines
from fedmia.attacks._mlp import ACTIVATIONS, NORMS, mlp
from fedmia.attacks._partcrop import ENERGIES, NetworkAttack, sorted_energies
from fedmia.settings import Options, option
from fedmia.settings.errors import InputError, opt, option_error
from fedmia.ssl.augment import ATTEMPTS, Augment
from fedmia.ssl.pixel_operations import resized_crop
from fedmia.threat import OUTPUTS, BlackBox, BudgetError

# What an encoder of somebody else's raises on pixels of a size that it does not take.
FAILURES = (RuntimeError, AssertionError, ValueError, TypeError, IndexError)
PLACE = 2 * ATTEMPTS + 2  # uniforms that choose a box


@dataclass(frozen=True)
class Crops(Options):
    """A box of a random area and shape, cut from the plain image, mirrored at random and resized.

    The paper's values (Sec. 5.4) and, where it is silent, those of its public code: the ratios and
    the flip. That code cuts parts from a view that was itself cropped, of members only; here they
    come from the image, member or not. Resizing is bilinear with antialiasing.
    """

    scale_min: float = option(0.08, "least area of a crop, as part of the image", gt=0, le=1)
    scale_max: float = option(0.2, "largest area of a crop, as part of the image", gt=0, le=1)
    ratio_min: float = option(3 / 4, "least width / height of a crop", gt=0)
    ratio_max: float = option(4 / 3, "largest width / height of a crop", gt=0)
    flip: float = option(0.5, "probability of a horizontal flip", ge=0, le=1)
    size: float = option(0.5, "sides of a resized crop, as part of the image's", gt=0, le=1)
    patch: int = option(1, "sides of a resized crop are multiples of so many pixels", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._boxes()  # refuses a least value above the largest

    @property
    def draws(self) -> int:
        """Uniforms that one crop of one image consumes, the same for every recipe."""
        return PLACE + 1

    def pixels(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of a resized crop of an image of these: whole patches, at least 2."""
        sides = (self.patch * max(1, round(self.size * s / self.patch)) for s in (height, width))
        high, wide = sides
        return max(2, high), max(2, wide)

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """One crop (B, C, h, w) of each of (B, C, H, W) in [0, 1], from (B, draws) in [0, 1)."""
        height, width = images.shape[2:]
        boxes = self._boxes().boxes(uniforms[:, :PLACE], height, width)
        flip = uniforms[:, PLACE] < self.flip
        planes = resized_crop(images, boxes, flip, self.pixels(height, width))
        return planes.transpose(0, 1).contiguous()

    def _boxes(self) -> Augment:
        return Augment(
            crop_min=self.scale_min,
            crop_max=self.scale_max,
            ratio_min=self.ratio_min,
            ratio_max=self.ratio_max,
        )


@dataclass
class PartCrop(NetworkAttack):
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
    looks_at: ClassVar[tuple[str, ...]] = ("parts",)

    crops: int = option(128, "m, crops an image", ge=1)
    scale_min: float = option(0.08, "least area of a crop, as part of the image", gt=0, le=1)
    scale_max: float = option(0.2, "largest area of a crop, as part of the image", gt=0, le=1)
    part: float = option(
        0.5,
        "sides of a resized crop, as part of the image's (the paper's 16 of 32; 0.25 for its 16 "
        "of 64; 1.0 for encoders that take one size only)",
        gt=0,
        le=1,
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self.recipe(1)  # refuses a least scale above the largest

    def recipe(self, patch: int) -> Crops:
        """The recipe of the crops for an encoder of so large patches."""
        if self.scale_min > self.scale_max:
            most = f"scale_max ({self.scale_max})"
            raise option_error(self, f"scale_min: {self.scale_min}, must be <= {most}")
        return Crops(
            scale_min=self.scale_min, scale_max=self.scale_max, size=self.part, patch=patch
        )

    def network(self, widths: Sequence[int]) -> nn.Module:
        return mlp(widths, self.activation, self.norm)

    def inputs(self, view: BlackBox, images: Tensor) -> list[Tensor]:
        energies = sorted_energies(self._responses(view, images), images, view.seed, self.energies)
        if self.with_similarity:
            cosines = pairwise_cosines(view.embed_views(images, self.views, self.layer))
            energies.append(torch.from_numpy(cosines).float())
        return energies

    def _responses(self, view: BlackBox, images: Tensor) -> Tensor:
        crops = self.recipe(view.patch)
        try:
            return view.responses(images, crops, self.crops)
        except (BudgetError, torch.OutOfMemoryError):
            raise
        except FAILURES as error:
            if not self._takes_whole(view, images[:1], replace(crops, size=1.0)):
                raise
            height, width = crops.pixels(*images.shape[2:])
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"the encoder does not take crops of {height}x{width} pixels ({reason}); "
                f"{opt(f'attack.{self.name}.part', '1.0')} makes them as large as the image"
            ) from None

    def _takes_whole(self, view: BlackBox, image: Tensor, crops: Crops) -> bool:
        """Whether the encoder takes crops of the image's own size, so that theirs was to blame."""
        if self.part == 1:
            return False
        try:
            with view.unmetered():
                view.responses(image, crops, 1)
        except FAILURES:
            return False
        return True


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
