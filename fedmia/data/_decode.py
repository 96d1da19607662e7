"""Encoded images (any format that Pillow reads) into one uint8 array, decoded by threads."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from fedmia.data._resize import fit
from fedmia.data.images import ByteArray
from fedmia.errors import InputError, opt

GREY = ("1", "L", "LA", "La")
COLOUR = ("RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")
Encoded = tuple[str, "bytes | Path"]


class Gallery:
    """Collects decoded images batch by batch into one array of known length.

    Args:
        name: the data source, for errors.
        count: how many images will be added.
        size: pixels a side to crop and resize to, or None if all have one square shape.
    """

    def __init__(self, name: str, count: int, size: int | None) -> None:
        self.name = name
        self.size = size
        self._count = count
        self._added = 0
        self._colour = False
        self._pixels: ByteArray | None = None

    def add(self, batch: Sequence[Encoded]) -> None:
        """Decode and keep `(what to call it, bytes or file)` pairs, in order.

        Raises:
            InputError: an image cannot be read, is not 8-bit, is not square, or differs in size
                from the first, where no size was given.
        """
        workers = min(8, os.cpu_count() or 1)
        with warnings.catch_warnings(), ThreadPoolExecutor(workers) as pool:
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            for where, (pixels, colour) in zip(
                (where for where, _ in batch), pool.map(self._decode, batch), strict=True
            ):
                self._keep(where, pixels)
                self._colour |= colour

    def images(self) -> ByteArray:
        """All images, uint8 (N, C, S, S): one channel if every image is grey, else three."""
        if self._pixels is None or self._added != self._count:
            raise InputError(f"{self.name}: {self._added} images, expected {self._count}")
        return self._pixels if self._colour else np.ascontiguousarray(self._pixels[:, :1])

    def _decode(self, item: Encoded) -> tuple[ByteArray, bool]:
        where, source = item
        try:
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
                if image.mode not in GREY + COLOUR:
                    raise InputError(
                        f"{self.name}: {where}: Pillow mode {image.mode} is not 8 bits a channel"
                    )
                return self._pixels_of(ImageOps.exif_transpose(image))
        except InputError:
            raise
        # Pillow's decoders raise many kinds of errors on broken bytes; each means the same here.
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{self.name}: {where}: cannot decode the image: {text}") from None

    def _pixels_of(self, image: Image.Image) -> tuple[ByteArray, bool]:
        colour = image.mode not in GREY
        image = image.convert("RGB" if colour else "L")
        if self.size is not None:
            image = fit(image, self.size)
        pixels = np.asarray(image)
        return (pixels.transpose(2, 0, 1) if colour else pixels[None]), colour

    def _keep(self, where: str, pixels: ByteArray) -> None:
        _, height, width = pixels.shape
        if self._pixels is None:
            if height != width:
                raise InputError(
                    f"{self.name}: {where}: {height}x{width} pixels are not square; give "
                    f"{opt('data.size')} to crop and resize it"
                )
            # Three channels until the end, for a colour image may follow grey ones.
            self._pixels = np.empty((self._count, 3, height, width), np.uint8)
        side = self._pixels.shape[2]
        if (height, width) != (side, side):
            raise InputError(
                f"{self.name}: {where}: {height}x{width} pixels, the first has {side}x{side}: "
                f"images differ in size; give {opt('data.size')} to crop and resize them"
            )
        self._pixels[self._added] = pixels
        self._added += 1
