"""Pixel values of any type as bytes: one rule for arrays, tensors and decoded files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.data.images import ByteArray
from fedmia.settings.errors import InputError, opt

Range = tuple[float, ...] | None


def arrange_images(images: NDArray[Any], where: str, pixel_range: Range = None) -> ByteArray:
    """Images as uint8 (N, C, H, W).

    Args:
        images: (N, C, H, W), (N, H, W, C) or (N, H, W), C in {1, 3}.
        where: what errors call them.
        pixel_range: as of `scale_values`.

    Returns:
        The array.

    Raises:
        InputError: another shape, no images, or what `scale_values` refuses.
    """
    array, shape = images, images.shape
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and shape[1] not in (1, 3) and shape[3] in (1, 3):
        array = np.moveaxis(array, 3, 1)
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        alpha = array.ndim == 4 and {2, 4} & {shape[1], shape[3]}
        raise InputError(
            f"{where} must be images (N, C, H, W), (N, H, W, C) or (N, H, W) with C 1 or 3; got "
            f"{array.dtype} {shape}" + ": leave out a channel of transparency" * bool(alpha)
        )
    if array.size == 0:
        lack = "images without pixels" if shape[0] else "no images"
        raise InputError(f"{where} has {lack}: {shape}")
    return scale_values(array, where, pixel_range)


def scale_values(values: NDArray[Any], where: str, pixel_range: Range = None) -> ByteArray:
    """Pixel values as bytes. The limits are fixed, never an image's own: members and non-members
    that were scaled each by its own would differ in that alone.

    Args:
        values: (N, ...) of any type.
        where: what errors call them.
        pixel_range: the values that become 0 and 255; None: bytes stay, floats are in [0, 1].

    Returns:
        The array, rounded to the nearest of 256 values.

    Raises:
        InputError: values out of the range, or of a type that has none; bytes with a range that is
            not theirs, as of 8-bit files beside deeper ones.
    """
    if pixel_range is None and values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    low, high = (0.0, 1.0) if pixel_range is None else check_range(pixel_range)
    kind = values.dtype.kind
    if values.dtype == np.uint8 and not 0 <= low < high <= 255:  # it would leave few bits of them
        raise InputError(
            f"{where} has 8 bits, read as 0 to 255, not as "
            f"{opt('data.pixel_range', f'{low:g},{high:g}')}: leave the range out, or bring all "
            "images to one depth"
        )
    if kind not in "biuf":
        raise InputError(f"{where} must be images of numbers, got {values.dtype}")
    least, most = float(values.min()), float(values.max())
    if (pixel_range is None and kind in "iu") or not low <= least <= most <= high:  # NaN, too
        expected = (
            "8 bits, or floats from 0 to 1" if pixel_range is None else f"{low:g} to {high:g}"
        )
        raise InputError(
            f"{where} must be images, {expected}; got {values.dtype} from {least:g} to {most:g}: "
            f"undo a normalisation, or give {opt('data.pixel_range', 'LOW,HIGH')}, one fixed range "
            "for all images, members and non-members alike, that becomes 0 to 255"
        )
    scaled = np.empty(values.shape, np.uint8)
    for place, one in enumerate(values):  # one by one: a float takes eight bytes
        scaled[place] = np.rint((one.astype(np.float64) - low) * (255 / (high - low)))
    return scaled


def check_range(limits: Any) -> tuple[float, float]:
    """A range of pixel values; InputError where it is none."""
    if not isinstance(limits, tuple | list) or len(limits) != 2 or not limits[0] < limits[1]:
        raise InputError(f"{opt('data.pixel_range')}: {limits}, must be LOW,HIGH with LOW < HIGH")
    return float(limits[0]), float(limits[1])
