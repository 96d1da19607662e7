"""scikit-learn's bundled handwritten digits: the embedded default, no file and no network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmia.data.base import AugmentLimits, Dataset, Request
from fedmia.data.decoding import resize_all
from fedmia.data.images import ImageSet


@dataclass(frozen=True)
class Digits(Dataset):
    """1,797 handwritten digits of 8x8 grey pixels, bundled with scikit-learn."""

    paper: ClassVar[str] = "Alpaydin & Kaynak, UCI Optical Recognition of Handwritten Digits, 1998"
    mean: ClassVar[tuple[float, ...]] = (0.305,)
    std: ClassVar[tuple[float, ...]] = (0.376,)
    # A mirrored digit is no digit, and half of its 8x8 pixels is another digit.
    views: ClassVar[AugmentLimits] = AugmentLimits(crop_min=0.9, flip=0.0, jitter=0.25)

    def load(self, request: Request) -> ImageSet:
        """The digits as uint8 (1797, 1, 8, 8): the source's 0..16 scaled to 0..255 and rounded."""
        from sklearn.datasets import load_digits  # slow to import, and `--list` has no use for it

        pixels, labels = load_digits(return_X_y=True)
        scaled = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
        images = resize_all(scaled, request.size, "digits", request.pixel_range)
        return ImageSet(images, labels.astype(np.int64), "digits")
