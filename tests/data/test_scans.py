"""One image a file as an array of NumPy or as DICOM: known values, bytes, refusals."""

from __future__ import annotations

import gc
import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.data.base import Request
from fedmia.data.folder import Folder
from fedmia.data.images import ImageSet
from fedmia.records.note import Note
from fedmia.settings.errors import InputError
from tests.data.dicom_files import write_dicom
from tests.data.material import encode, refusal

DEEP = np.random.default_rng(0).integers(0, 4096, (8, 8), dtype=np.uint16)
LIMITS = (0.0, 4095.0)
BYTES = np.rint(DEEP / 4095 * 255).astype(np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)


def npy(array: np.ndarray) -> bytes:
    np.save(buffer := io.BytesIO(), array)
    return buffer.getvalue()


def read(folder: Path, *files: bytes, suffix: str = ".dcm", **more: Any) -> ImageSet:
    for at, content in enumerate(files):
        (folder / f"{at}{suffix}").write_bytes(content)
    return Folder().load(Request(str(folder), None, more.pop("size", None), 0, **more))


def done(data: ImageSet) -> dict[str, Any]:
    """What the note on DICOM files says."""
    (note,) = [note for note in data.notes if note.code == "dicom-read"]
    return dict(note.values)


@pytest.mark.parametrize(
    ("array", "limits", "expected"),
    [
        (DEEP, LIMITS, BYTES[None]),
        (DEEP[None], LIMITS, BYTES[None]),
        (DEEP[..., None], LIMITS, BYTES[None]),
        (COLOUR, None, COLOUR.transpose(2, 0, 1)),
        (COLOUR.transpose(2, 0, 1), None, COLOUR.transpose(2, 0, 1)),
        ((DEEP / 4095).astype(np.float32), None, BYTES[None]),
        ((DEEP / 4095).astype(np.float64), None, BYTES[None]),
        (DEEP.astype(np.int32) - 1000, (-1000.0, 3095.0), BYTES[None]),
        (COLOUR[..., 0], None, COLOUR[None, ..., 0]),
    ],
)
def test_npy__one_image_a_file(
    array: np.ndarray, limits: Any, expected: np.ndarray, tmp_path: Path
) -> None:
    data = read(tmp_path, npy(array), npy(array), suffix=".npy", pixel_range=limits)
    assert np.array_equal(data.images, np.stack([expected] * 2))


def test_npy__reads_as_a_png_of_sixteen_bits_does(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(encode(DEEP))
    (tmp_path / "1.npy").write_bytes(npy(DEEP))
    images = Folder().load(Request(str(tmp_path), None, 5, 0, pixel_range=LIMITS)).images
    assert images.shape == (2, 1, 5, 5) and np.array_equal(images[0], images[1])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (npy(DEEP)[:-1], ""),
        (npy(np.zeros((64, 64)))[:200], "promises (64, 64) of float64 and holds 200 bytes"),
        (npy(DEEP)[:20], "no header of NumPy"),
        (npy(np.zeros((8, 8, 4), np.uint8)), "uint8 (8, 8, 4)"),
        (npy(np.zeros(8, np.uint8)), "uint8 (8,)"),
        (npy(np.zeros((0, 8), np.uint8)), "uint8 (0, 8)"),
        (npy(np.zeros((8, 8), "U1")), "<U1 (8, 8)"),
        (npy(np.zeros((8, 8), complex)), "complex128 (8, 8)"),
        (npy(np.full((8, 8), None)), "Python objects"),
    ],
)
def test_npy__what_is_no_image_is_left_out_like_any_broken_file(
    content: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / "0.npy").write_bytes(npy(COLOUR))
    (tmp_path / "1.npy").write_bytes(content)
    line = refusal(Folder(), tmp_path)
    assert "1.npy: cannot decode the image" in line and why in line
    encoded = Folder().encoded(Request(str(tmp_path), None, None, 0))
    assert len(encoded.drop_unreadable().all()) == 1


@pytest.mark.skipif(sys.gettrace() is not None, reason="threads under a tracer may end early")
def test_npy__sound_headers_are_read_as_such_in_many_threads(tmp_path: Path) -> None:
    """Before 3.12 two threads disturb each other in Python's parser, by which NumPy reads headers,
    where the collector of garbage lets another one in."""
    limits = gc.get_threshold()
    (tmp_path / "0.npy").write_bytes(npy(np.zeros((8, 8), np.uint8)))

    def let_others_in(phase: str, info: dict[str, int]) -> None:
        os.sched_yield()

    gc.callbacks.append(let_others_in)
    gc.set_threshold(5)
    try:
        with ThreadPoolExecutor(8) as pool:
            loaded = pool.map(lambda _: read(tmp_path).images.shape, range(500))
            assert {*loaded} == {(1, 1, 8, 8)}
    finally:
        gc.set_threshold(*limits)
        gc.callbacks.remove(let_others_in)


def test_npy__a_value_beyond_the_range_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0.npy").write_bytes(npy(DEEP))
    with pytest.raises(InputError, match="0.npy must be images, 0 to 100; got uint16"):
        Folder().load(Request(str(tmp_path), None, None, 0, pixel_range=(0.0, 100.0)))


def test_dicom__gray_is_read_by_the_range_and_monochrome1_inverted(tmp_path: Path) -> None:
    inverse = write_dicom(DEEP, PhotometricInterpretation="MONOCHROME1")
    windowed = write_dicom(DEEP, WindowCenter=100, WindowWidth=50)  # a window is not used
    data = read(tmp_path, write_dicom(DEEP), inverse, windowed, pixel_range=LIMITS)
    assert np.array_equal(data.images[:, 0], [BYTES, 255 - BYTES, BYTES])
    assert done(data)["files"] == 3 and done(data)["done"] == {"inverted": 1}
    assert done(data)["limits"] == "0 to 4095"


def test_dicom__hounsfield_units_and_a_window_of_them(tmp_path: Path) -> None:
    """Stored 0 to 4095 at slope 2 and intercept -2000; beyond -1000 to 400 is black or white."""
    content = write_dicom(DEEP, RescaleSlope=2, RescaleIntercept=-2000)
    signed = write_dicom(DEEP.astype(np.int16) - 1000, bits=16, RescaleSlope=2, RescaleIntercept=0)
    data = read(tmp_path, content, signed, pixel_range=(-1000.0, 400.0))
    units = np.array([[2 * int(value) - 2000 for value in row] for row in DEEP])
    expected = [[round(min(max((u + 1000) / 1400, 0), 1) * 255) for u in row] for row in units]
    for image in data.images[:, 0]:
        assert np.abs(image.astype(int) - expected).max() == 0
    assert done(data)["done"] == {"rescaled": 2, "clipped": 2}


def test_dicom__bytes_and_colour_need_no_range(tmp_path: Path) -> None:
    data = read(tmp_path, write_dicom(COLOUR, 8), write_dicom(COLOUR[..., 0].copy(), 8))
    assert np.array_equal(data.images[0], COLOUR.transpose(2, 0, 1))
    assert np.array_equal(data.images[1], np.stack([COLOUR[..., 0]] * 3))
    assert done(data)["done"] == {} and done(data)["limits"] is None


def test_dicom__a_compressed_frame_is_the_plain_one(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    plain = write_dicom(DEEP)
    dataset = pydicom.dcmread(io.BytesIO(plain))
    dataset.compress(pydicom.uid.RLELossless)
    dataset.save_as(buffer := io.BytesIO())
    assert b"1.2.840.10008.1.2.5" in buffer.getvalue()
    data = read(tmp_path, plain, buffer.getvalue(), pixel_range=LIMITS)
    assert np.array_equal(data.images[:, 0], [BYTES, BYTES])


def test_dicom__its_bytes_tell_and_not_its_name(tmp_path: Path) -> None:
    data = read(tmp_path, write_dicom(COLOUR, 8), suffix=".png")
    assert np.array_equal(data.images[0], COLOUR.transpose(2, 0, 1))
    (tmp_path / "0.png").rename(tmp_path / "0.dcm")
    (tmp_path / "0.dcm").write_bytes(encode(COLOUR))
    images = Folder().load(Request(str(tmp_path), None, None, 0)).images
    assert np.array_equal(images[0], COLOUR.transpose(2, 0, 1))


JPEG_LS, DEFLATED = "1.2.840.10008.1.2.4.80", "1.2.840.10008.1.2.1.99"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"syntax": JPEG_LS}, "JPEG-LS"),
        ({"syntax": "1.2.840.10008.1.2.4.999"}, "1.2.840.10008.1.2.4.999"),
        ({"syntax": DEFLATED}, "deflated"),
        ({"NumberOfFrames": 2}, "2 frames"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "PALETTE COLOR"),
        ({"Rows": 9}, ""),
        ({"Rows": 999}, "promises 15984 bytes of pixels"),
        ({"Rows": 65535, "Columns": 65535}, "bytes of pixels"),
        ({"Rows": 0}, "0x8 pixels"),
    ],
)
def test_dicom__what_is_not_read_says_why(
    options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    (tmp_path / "0.dcm").write_bytes(write_dicom(COLOUR, 8))
    (tmp_path / "1.dcm").write_bytes(write_dicom(DEEP, **options))
    line = refusal(Folder(), tmp_path)
    assert "1.dcm: cannot decode the image" in line and why in line
    encoded = Folder().encoded(Request(str(tmp_path), None, None, 0))
    assert len(encoded.drop_unreadable().all()) == 1


@pytest.mark.parametrize("seed", range(40))
def test_dicom__broken_bytes_give_one_line(seed: int, tmp_path: Path, capfd: Any) -> None:
    """Cut short, or with bytes of the header replaced: read or refused, and nothing else."""
    rng = np.random.default_rng(seed)
    content = bytearray(write_dicom(DEEP, RescaleSlope=1, RescaleIntercept=-5))
    if seed % 2:
        content = content[: rng.integers(132, len(content))]
    else:
        for at in rng.integers(132, len(content) - DEEP.nbytes, 6):
            content[at] = rng.integers(256)
    (tmp_path / "0.dcm").write_bytes(bytes(content))
    try:
        images = Folder().load(Request(str(tmp_path), None, 8, 0, pixel_range=LIMITS)).images
        assert images.shape[2:] == (8, 8)
    except InputError as error:
        assert "0.dcm" in str(error) and "\n" not in str(error)
    assert "Traceback" not in capfd.readouterr().err


def test_dicom__without_pydicom_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"\0" * 128 + b"DICM"
    (tmp_path / "0.dcm").write_bytes(content)
    monkeypatch.setitem(__import__("sys").modules, "pydicom", None)
    assert r"'.[dicom]'" in refusal(Folder(), tmp_path)


def test_notes__of_dicom_are_notes(tmp_path: Path) -> None:
    data = read(tmp_path, write_dicom(DEEP), pixel_range=(0.0, 4095.0), size=4)
    assert all(isinstance(note, Note) for note in data.notes)
