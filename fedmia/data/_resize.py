"""Bring images to one square size: the one resizing that every data source uses."""

from __future__ import annotations

import numpy as np
from PIL import Image

from fedmia.data.images import ByteArray
from fedmia.errors import InputError, opt


def fit(image: Image.Image, size: int) -> Image.Image:
    """The largest central square of `image`, resized to `size` pixels a side.

    Pillow's bilinear filter, which widens its support when it shrinks (antialias).
    """
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    if width != height:
        image = image.crop((left, top, left + side, top + side))
    return image if side == size else image.resize((size, size), Image.Resampling.BILINEAR)


def square(images: ByteArray, size: int | None, name: str) -> ByteArray:
    """Images of one shape, (N, C, H, W) uint8, as (N, C, size, size).

    Args:
        images: C in {1, 3}.
        size: pixels a side, or None to keep the images' own.
        name: the data source, for the error.

    Raises:
        InputError: the images are not square and no size is given.
    """
    count, channels, height, width = images.shape
    if size is None and height != width:
        raise InputError(
            f"{name}: images of {height}x{width} pixels are not square; give "
            f"{opt('data.size')} to crop and resize them"
        )
    if size is None or size == height == width:
        return images
    out = np.empty((count, channels, size, size), np.uint8)
    for i, image in enumerate(images):
        grey = channels == 1
        pixels = image[0] if grey else np.ascontiguousarray(image.transpose(1, 2, 0))
        resized = np.asarray(fit(Image.fromarray(pixels), size))
        out[i] = resized[None] if grey else resized.transpose(2, 0, 1)
    return out
