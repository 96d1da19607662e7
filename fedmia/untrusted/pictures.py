"""Encoded images of others: in formats that Pillow reads by itself, of bounded size."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image

# Of other formats some start programs (Ghostscript for PostScript).
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
LONGEST = 65_535  # pixels a side: of most formats the most


@contextmanager
def open_picture(content: bytes) -> Iterator[Image.Image]:
    """An encoded image, whose pixels are not read yet.

    Args:
        content: of its file.

    Yields:
        The image.

    Raises:
        ValueError: it has too many pixels a side. Pillow raises many kinds of errors on the rest.
    """
    with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
        if max(picture.size) > LONGEST:  # Pillow keeps an address for each of its lines
            raise ValueError(f"{max(picture.size)} pixels a side, at most {LONGEST}")
        yield picture


@contextmanager
def refuse_bombs() -> Iterator[None]:
    """Inside, an image of so many pixels that Pillow warns is an error, in every thread.

    Yields:
        Nothing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", module="pydicom")  # of odd values, which are checked
        yield
