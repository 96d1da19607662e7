"""A seeded generator of textured images: any number of classes and images, no file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.data.base import Dataset, Request
from fedmia.data.decoding import resize_all
from fedmia.data.images import ByteArray, ImageSet
from fedmia.seeding import rng
from fedmia.settings import option
from fedmia.settings.errors import InputError, option_error

CHUNK = 256
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Synthetic(Dataset):
    """Seeded textured images: oriented gratings, colours and blobs, in any number.

    The class sets the orientation, the frequency and the colours; phase, contrast, noise and
    three blobs are each image's own, so the images of a class all differ.
    """

    classes: int = option(10, "number of classes", ge=1)
    images: int = option(2000, "number of images", ge=1)
    channels: int = option(3, "colour channels: 1 or 3", ge=1, le=3)
    pixels: int = option(32, "pixels a side", ge=4, le=1024)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.channels == 2:
            raise option_error(self, "channels: 2, must be 1 or 3")

    def load(self, request: Request) -> ImageSet:
        """`images` images in random order of class, classes as even as can be.

        Raises:
            InputError: fewer images than classes.
        """
        if self.images < self.classes:
            raise InputError(f"synthetic: {self.images} images for {self.classes} classes")
        stream = rng(request.seed, "synthetic", "classes")
        textures = _ClassTextures(self.classes, self.channels, stream)
        draw = rng(request.seed, "synthetic", "images")
        labels = draw.permutation(np.arange(self.images) % self.classes)
        shape = (self.images, self.channels, self.pixels, self.pixels)
        out = np.empty(shape, np.uint8)
        for start in range(0, self.images, CHUNK):
            chunk = labels[start : start + CHUNK]
            out[start : start + CHUNK] = textures.paint(chunk, self.pixels, draw)
        return ImageSet(
            resize_all(out, request.size, "synthetic", request.pixel_range), labels, "synthetic"
        )


class _ClassTextures:
    """Textures of K classes, C channels: orientations evenly spaced, the rest by chance.

    Attributes:
        angle: (K,) orientation of the grating, radians in [0, pi).
        cycles: (K,) its cycles across the image.
        base: (K, C) mean colour, about [-0.2, 0.2] around mid-grey.
        swing: (K, C) how far the grating moves each channel, at most 0.3.
    """

    def __init__(self, classes: int, channels: int, draw: np.random.Generator) -> None:
        self.angle = _f32(draw.permutation(classes) * (np.pi / classes))
        self.cycles = _f32(draw.uniform(2.0, 6.0, classes))
        self.base = _f32(draw.uniform(-0.2, 0.2, (classes, channels)))
        self.swing = _f32(draw.uniform(0.1, 0.3, (classes, channels)))

    def paint(self, labels: NDArray[Any], pixels: int, draw: np.random.Generator) -> ByteArray:
        """(B, C, pixels, pixels) uint8 images of the classes `labels`, (B,)."""
        count, channels = len(labels), self.base.shape[1]
        axis = _f32((np.arange(pixels) + 0.5) / pixels - 0.5)
        angle = self.angle[labels] + _f32(draw.normal(0, 0.05, count))
        reach = 2 * np.pi * self.cycles[labels]
        across = (reach * np.cos(angle))[:, None, None] * axis[None, None, :]
        down = (reach * np.sin(angle))[:, None, None] * axis[None, :, None]
        phase = _f32(draw.uniform(0, 2 * np.pi, count))[:, None, None]
        contrast = _f32(draw.uniform(0.6, 1.0, count))[:, None, None]
        wave = np.sin(across + down + phase) * contrast
        image = 0.5 + self.base[labels][:, :, None, None]
        image = image + self.swing[labels][:, :, None, None] * wave[:, None]
        image = image + _blobs(axis, count, channels, draw)
        image = image + _f32(draw.normal(0, 0.05, image.shape))
        return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _blobs(axis: Floats, count: int, channels: int, draw: np.random.Generator) -> Floats:
    """(count, channels, S, S): three Gaussian blobs an image, of any place, width and colour."""
    centre = _f32(draw.uniform(-0.4, 0.4, (2, count, 3, 1)))
    width = _f32(draw.uniform(0.05, 0.15, (count, 3, 1)))
    colour = _f32(draw.uniform(-0.4, 0.4, (count, 3, channels)))
    # A round Gaussian is a product of one along each axis.
    rows, columns = np.exp(-(((axis - centre) / width) ** 2) / 2)
    blobs: Floats = np.einsum("bkc,bky,bkx->bcyx", colour, rows, columns)
    return blobs


def _f32(values: NDArray[Any]) -> Floats:
    return values.astype(np.float32)
