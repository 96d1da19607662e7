"""DICOM files, written by pydicom where it is installed."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest


def write_dicom(pixels: np.ndarray, bits: int = 12, syntax: str = "", **tags: Any) -> bytes:
    """A file of one frame, (H, W) or (H, W, 3); the test is skipped where pydicom is absent.

    Args:
        pixels: 8 or 16 bits.
        bits: stored ones.
        syntax: UID that the file claims; empty: explicit, little endian.
        tags: more, or others, whatever the pixels are.
    """
    pydicom = pytest.importorskip("pydicom")
    uid = pydicom.uid
    data = pydicom.Dataset()
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = uid.SecondaryCaptureImageStorage
    data.file_meta.MediaStorageSOPInstanceUID = uid.generate_uid()
    data.SOPClassUID = uid.SecondaryCaptureImageStorage
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID
    data.Rows, data.Columns = pixels.shape[:2]
    data.SamplesPerPixel = 3 if pixels.ndim == 3 else 1
    data.PhotometricInterpretation = "RGB" if pixels.ndim == 3 else "MONOCHROME2"
    if pixels.ndim == 3:
        data.PlanarConfiguration = 0
    data.BitsAllocated = 8 * pixels.itemsize
    data.BitsStored = min(bits, data.BitsAllocated)
    data.HighBit = data.BitsStored - 1
    data.PixelRepresentation = int(pixels.dtype.kind == "i")
    for name, value in tags.items():
        setattr(data, name, value)
    data.PixelData = pixels.tobytes()
    data["PixelData"].VR = "OB" if pixels.itemsize == 1 else "OW"
    data.save_as(buffer := io.BytesIO(), enforce_file_format=True)
    if not syntax:
        return buffer.getvalue()
    claimed = syntax.encode() + b"\0" * (len(syntax) % 2)
    old = b"UI\x14\0" + uid.ExplicitVRLittleEndian.encode() + b"\0"
    new = b"UI" + len(claimed).to_bytes(2, "little") + claimed
    return buffer.getvalue().replace(old, new, 1)
