"""DICOM files of others, by pydicom: one frame of gray or colour, in rescaled units."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.settings.errors import InputError
from fedmia.untrusted.limits import check_unfolded
from fedmia.untrusted.pictures import LONGEST

GRAY = ("MONOCHROME1", "MONOCHROME2")
DEFLATED = b"1.2.840.10008.1.2.1.99"  # unfolds as a whole, before anything of it can be read
TAGS = [
    "BitsAllocated", "BitsStored", "Columns", "ModalityLUTSequence", "NumberOfFrames",
    "PhotometricInterpretation", "PixelRepresentation", "RescaleIntercept", "RescaleSlope", "Rows",
    "SamplesPerPixel", "WindowCenter", "WindowWidth",
]  # fmt: skip


def is_dicom(head: bytes) -> bool:
    """Whether a file with these first bytes is a DICOM file: `DICM` at 128."""
    return head[128:132] == b"DICM"


def read_tags(content: bytes, length: int | None = None) -> Any:
    """What a DICOM file says of its pixels, checked.

    Args:
        content: of the file, or its beginning up to the pixels.
        length: bytes of the whole file; None: `content` is all of it.

    Returns:
        A pydicom `Dataset` without the pixels.

    Raises:
        InputError: pydicom is not installed.
        ValueError: pixels that are not read; why. pydicom raises many kinds of errors on the rest.
    """
    pydicom = _library()
    if DEFLATED in content:
        raise ValueError("it is deflated as a whole: store it uncompressed")
    tags = pydicom.dcmread(io.BytesIO(content), stop_before_pixels=True, specific_tags=TAGS)
    try:
        _check(tags, len(content) if length is None else length)
    except AttributeError as error:  # pydicom's, by the name of the tag
        raise ValueError(f"it lacks the tag {error.name}") from None
    return tags


def read_pixels(content: bytes) -> tuple[NDArray[Any], Any]:
    """The one frame of a DICOM file.

    Args:
        content: of the file.

    Returns:
        (H, W) or (H, W, 3), RGB: gray values rescaled by slope and intercept, or by the table of
            their modality; and the tags, as of `read_tags`.

    Raises:
        InputError: pydicom is not installed.
        ValueError: as of `read_tags`.
    """
    tags = read_tags(content)
    dataset = _library().dcmread(io.BytesIO(content))
    pixels = importlib.import_module("pydicom.pixels")
    values: NDArray[Any] = pixels.pixel_array(dataset)  # YBR becomes RGB
    if is_rescaled(tags):
        values = pixels.apply_rescale(values, dataset)
    expected = (int(tags.Rows), int(tags.Columns)) + (3,) * (int(tags.SamplesPerPixel) == 3)
    if values.shape != expected:
        raise ValueError(f"its pixels are {values.shape}, its tags say {expected}")
    return values, tags


def is_rescaled(tags: Any) -> bool:
    """Whether the stored values of a file are not yet those of its modality (Hounsfield units)."""
    slope, intercept = tags.get("RescaleSlope"), tags.get("RescaleIntercept")
    return "ModalityLUTSequence" in tags or (slope, intercept) not in ((None, None), (1, 0))


def value_span(tags: Any) -> tuple[float, float]:
    """The least and the greatest value that the bits of a file can hold, in rescaled units."""
    bits = int(tags.BitsStored)
    least = -(2 ** (bits - 1)) if int(tags.get("PixelRepresentation", 0)) else 0
    slope, intercept = float(tags.get("RescaleSlope", 1)), float(tags.get("RescaleIntercept", 0))
    ends = [slope * value + intercept for value in (least, least + 2**bits - 1)]
    return min(ends), max(ends)


def window_span(tags: Any) -> tuple[float, float] | None:
    """The values that the first window of a file makes black and white, or None: it has none."""
    center, width = (np.ravel(tags.get(name)) for name in ("WindowCenter", "WindowWidth"))
    if center[0] is None or width[0] is None or not float(width[0]) > 1:
        return None
    middle, half = float(center[0]) - 0.5, (float(width[0]) - 1) / 2  # PS3.3, C.11.2.1.2.1
    return middle - half, middle + half


def _check(tags: Any, length: int) -> None:
    """Raise ValueError for pixels that are not read."""
    syntax = tags.file_meta.TransferSyntaxUID
    if not syntax.is_transfer_syntax:
        raise ValueError(f"its transfer syntax {syntax:.100} is not known")
    if syntax.is_compressed:
        _check_decoder(syntax)
    photometric, samples = str(tags.PhotometricInterpretation), int(tags.SamplesPerPixel)
    gray = photometric in GRAY and samples == 1
    if not gray and not (samples == 3 and photometric.startswith(("RGB", "YBR_"))):
        raise ValueError(f"{photometric:.40} of {samples} samples a pixel is not read")
    frames = int(tags.get("NumberOfFrames") or 1)
    if frames != 1:
        raise ValueError(f"it holds {frames} frames, one image a file is read")
    rows, columns = int(tags.Rows), int(tags.Columns)
    if not (0 < rows <= LONGEST and 0 < columns <= LONGEST):
        raise ValueError(f"{rows}x{columns} pixels, 1 to {LONGEST} a side are read")
    size = rows * columns * samples * int(tags.BitsAllocated) // 8
    if not syntax.is_compressed and size > length:
        raise ValueError(f"it promises {size} bytes of pixels and holds {length}")
    try:
        check_unfolded("it", size, length)
    except InputError as error:
        raise ValueError(str(error)) from None


def _check_decoder(syntax: Any) -> None:
    """Raise ValueError where nothing here decodes a compressed transfer syntax."""
    try:
        available = importlib.import_module("pydicom.pixels").get_decoder(syntax).is_available
    except NotImplementedError:
        available = False
    if not available:
        raise ValueError(
            f"no decoder is installed for its transfer syntax, {syntax.name:.100}: install one "
            "(pylibjpeg, gdcm), or store it uncompressed"
        )


def _library() -> Any:
    """pydicom, which an extra brings."""
    try:
        return importlib.import_module("pydicom")
    except ImportError:
        raise InputError(
            "DICOM files need the extra: pip install '.[dicom]' in a clone of fedmia"
        ) from None
