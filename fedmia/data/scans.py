"""One image a file in a format of numbers, NumPy's or DICOM: as bytes, by a range for all alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.data.arrays import Range, check_range, scale_values
from fedmia.data.images import ByteArray
from fedmia.settings.errors import InputError
from fedmia.untrusted.arrays import is_npy, read_npy
from fedmia.untrusted.dicom import is_dicom, is_rescaled, read_pixels

SHAPES = "(H, W), (H, W, C) or (C, H, W), C in {1, 3}"


def is_scan(head: bytes) -> bool:
    """Whether a file with these first bytes holds numbers, and no picture of Pillow's formats."""
    return is_npy(head) or is_dicom(head)


def read_scan(
    content: bytes, where: str, pixel_range: Range = None
) -> tuple[ByteArray, tuple[str, ...] | None]:
    """The image of a file, as bytes.

    Values of a DICOM file that lie beyond the range become black or white, as those beyond a window
    do; of MONOCHROME1, whose least value is white, the bytes are inverted. Values of an array
    beyond the range are refused.

    Args:
        content: of the file.
        where: what errors call it.
        pixel_range: as of `scale_values`; of DICOM in rescaled units.

    Returns:
        (H, W) or (H, W, 3), and what was done to a DICOM file, of `rescaled`, `inverted` and
            `clipped`; None: it is an array.

    Raises:
        InputError: what `scale_values` refuses, or pydicom is not installed.
        ValueError: the file cannot be read; why. Readers raise many kinds of errors.
    """
    if is_npy(content):
        return scale_values(read_array(content)[None], where, pixel_range)[0], None
    values, tags = read_pixels(content)
    done = ["rescaled"] * is_rescaled(tags)
    if pixel_range is not None and values.dtype != np.uint8:
        low, high = check_range(pixel_range)
        clipped = np.clip(values, low, high)
        done += ["clipped"] * bool((clipped != values).any())
        values = clipped
    scaled = scale_values(values[None], where, pixel_range)[0]
    if str(tags.PhotometricInterpretation) == "MONOCHROME1":
        scaled, done = 255 - scaled, [*done, "inverted"]
    return scaled, tuple(done)


def read_array(content: bytes) -> NDArray[Any]:
    """The image of a file in NumPy's format, (H, W) or (H, W, 3).

    Raises:
        ValueError: it cannot be read, or has another shape.
    """
    try:
        array = read_npy("it", content)
    except InputError as error:  # of a broken file, which may be left out
        raise ValueError(str(error)) from None
    check_shape(array.shape, array.dtype)
    if array.ndim == 3 and array.shape[2] not in (1, 3):
        array = np.moveaxis(array, 0, 2)
    return array[:, :, 0] if array.shape[2:] == (1,) else array


def check_shape(shape: tuple[int, ...], kind: np.dtype[Any]) -> tuple[int, int, int]:
    """The sides of an array that is one image.

    Args:
        shape: of the array.
        kind: type of its numbers.

    Returns:
        Height, width and channels.

    Raises:
        ValueError: it is none.
    """
    last = len(shape) == 3 and shape[2] in (1, 3)
    fits = len(shape) == 2 or last or (len(shape) == 3 and shape[0] in (1, 3))
    if not fits or 0 in shape or kind.kind not in "biuf":
        raise ValueError(f"one image {SHAPES} of numbers is read, it holds {kind} {shape}")
    if len(shape) == 2:
        return shape[0], shape[1], 1
    return (shape[0], shape[1], shape[2]) if last else (shape[1], shape[2], shape[0])
