"""Crops that stand for parts of an image (PartCrop, Sec. 4), as a recipe of random views."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedmia.settings.option import Options, option
from fedmia.ssl._pixelops import resized_crop
from fedmia.ssl.augment import ATTEMPTS, Augment

PLACE = 2 * ATTEMPTS + 2  # uniforms that choose a box


@dataclass(frozen=True)
class Crops(Options):
    """A box of a random area and shape, cut from the plain image, mirrored at random and resized.

    The paper's values (Sec. 5.4) and, where it is silent, those of its public code: the ratios and
    the flip. That code cuts parts from a view that was itself cropped, of members only; here they
    come from the image, whoever's it is. Resizing is bilinear with antialiasing.
    """

    scale_min: float = option(0.08, "least area of a crop, as part of the image", gt=0, le=1)
    scale_max: float = option(0.2, "largest area of a crop, as part of the image", gt=0, le=1)
    ratio_min: float = option(3 / 4, "least width / height of a crop", gt=0)
    ratio_max: float = option(4 / 3, "largest width / height of a crop", gt=0)
    flip: float = option(0.5, "probability of a horizontal flip", ge=0, le=1)
    size: float = option(0.5, "sides of a resized crop, as part of the image's", gt=0, le=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._boxes()  # refuses a least value above the largest

    @property
    def draws(self) -> int:
        """Uniforms that one crop of one image consumes, the same for every recipe."""
        return PLACE + 1

    def pixels(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of a resized crop of an image: whole pixels, at least 2."""
        return max(2, round(self.size * height)), max(2, round(self.size * width))

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """One crop (B, C, h, w) of each of (B, C, H, W) in [0, 1], from (B, draws) in [0, 1)."""
        height, width = images.shape[2:]
        boxes = self._boxes().boxes(uniforms[:, :PLACE], height, width)
        flip = uniforms[:, PLACE] < self.flip
        return resized_crop(images, boxes, flip, self.pixels(height, width))

    def _boxes(self) -> Augment:
        return Augment(
            crop_min=self.scale_min,
            crop_max=self.scale_max,
            ratio_min=self.ratio_min,
            ratio_max=self.ratio_max,
        )
