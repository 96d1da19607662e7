"""Every door gives the same numbers for the same pixels, or refuses them in the same words."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from fedmia.data.arrays import arrange_images
from fedmia.data.base import Request
from fedmia.data.folder import Folder
from fedmia.data.npz import Npz
from fedmia.data.parquet import Parquet
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError
from tests.data.material import channels_first, encode, load
from tests.door.test_images import read

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (4, 6, 6), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (4, 6, 6, 3), dtype=np.uint8)
DEEP = RNG.integers(0, 4096, (4, 6, 6), dtype=np.uint16)
SHARES = RNG.random((4, 6, 6)).astype(np.float32)
Range = tuple[float, ...] | None


def by_name(source: Any, path: Path, limits: Range) -> np.ndarray:
    return source.load(Request(str(path), None, None, 0, pixel_range=limits)).images


def in_memory(value: Any, limits: Range) -> np.ndarray:
    """As an attacker who holds them has them; a range is of arrays, which a Dataset becomes."""
    if limits is None:
        return read(value)
    if isinstance(value, torch.utils.data.DataLoader | TensorDataset):
        value = next(iter(DataLoader(getattr(value, "dataset", value), batch_size=99)))[0]
    if isinstance(value, list) and isinstance(value[0], Image.Image):
        value = [np.asarray(one) for one in value]
    array = value.numpy() if isinstance(value, torch.Tensor) else np.stack([*value])
    return arrange_images(array, "members", limits)


def folder(images: list[Any], place: Path, limits: Range) -> np.ndarray:
    for at, one in enumerate(images):
        (place / f"{at}.tif").write_bytes(encode(one, "TIFF"))
    return by_name(Folder(), place, limits)


def parquet(images: list[Any], place: Path, limits: Range) -> np.ndarray:
    pq.write_table(
        pa.table({"image": [encode(one, "TIFF") for one in images]}), place / "a.parquet"
    )
    return by_name(Parquet(), place / "a.parquet", limits)


def npz(images: list[Any], place: Path, limits: Range) -> np.ndarray:
    np.savez(place / "a.npz", x=np.stack(images))
    return by_name(Npz(), place / "a.npz", limits)


def pictures(images: list[Any], place: Path, limits: Range) -> np.ndarray:
    return in_memory(
        [one if isinstance(one, Image.Image) else Image.fromarray(one) for one in images], limits
    )


def tensors(images: list[Any]) -> TensorDataset:
    stacked = np.ascontiguousarray(channels_first(np.stack(images)))
    return TensorDataset(torch.from_numpy(stacked), torch.zeros(len(images), dtype=torch.long))


FILES = {"folder": folder, "parquet": parquet, "pictures": pictures}
ARRAYS: dict[str, Callable[..., np.ndarray]] = {
    "npz": npz,
    "array": lambda images, place, limits: in_memory(np.stack(images), limits),
    "tensor": lambda images, place, limits: in_memory(tensors(images).tensors[0], limits),
    "Dataset": lambda images, place, limits: in_memory(tensors(images), limits),
    "DataLoader": lambda images, place, limits: in_memory(
        DataLoader(tensors(images), batch_size=3), limits
    ),
    "Dataset of arrays": lambda images, place, limits: in_memory(
        [channels_first(one) for one in images], limits
    ),
}
BLACK_TO_WHITE = np.rint(DEEP / 4095 * 255).astype(np.uint8)


@pytest.mark.parametrize("door", [*FILES, *ARRAYS])
@pytest.mark.parametrize(
    ("pixels", "limits", "expected"),
    [
        (GRAY, None, GRAY[:, None]),
        (GRAY // 16, (0, 15), GRAY[:, None] // 16 * 17),
        (COLOUR, None, COLOUR.transpose(0, 3, 1, 2)),
        (DEEP, (0, 4095), BLACK_TO_WHITE[:, None]),
        (SHARES, None, np.rint(SHARES[:, None] * 255.0)),
        (SHARES * 4095, (0, 4095), np.rint(SHARES[:, None] * 255.0)),
        (SHARES - 0.5, (-0.5, 0.5), np.rint(SHARES[:, None] * 255.0)),
    ],
    ids=["gray", "4 bits", "colour", "16 bits", "float", "float 0-4095", "float -.5-.5"],
)
def test_every_door_gives_the_same_numbers(
    tmp_path: Path, door: str, pixels: np.ndarray, limits: Range, expected: np.ndarray
) -> None:
    images = (FILES | ARRAYS)[door](list(pixels), tmp_path, limits)
    assert images.dtype == np.uint8
    assert np.array_equal(images, expected)


@pytest.mark.parametrize("door", [*FILES, *ARRAYS])
@pytest.mark.parametrize(
    ("pixels", "limits", "why"),
    [
        (DEEP, None, "8 bits, or floats from 0 to 1; got uint16 from "),
        (DEEP.astype(np.int32), None, "8 bits, or floats from 0 to 1; got int32 from "),
        (SHARES * 2, None, "8 bits, or floats from 0 to 1; got float32 from "),
        (SHARES * np.nan, None, "8 bits, or floats from 0 to 1; got float32 from nan to nan"),
        (DEEP, (0, 1000), "0 to 1000; got uint16 from "),
        (GRAY, (0, 4095), " has 8 bits, read as 0 to 255, not as data.pixel_range (--pixel-range)"),
        (GRAY, (-9, 255), " has 8 bits, read as 0 to 255, not as data.pixel_range (--pixel-range)"),
        (
            DEEP,
            (9, 9),
            "(9, 9), must be LOW,HIGH with LOW < HIGH",
        ),
        (
            GRAY,
            (0, 1, 2),
            "(0, 1, 2), must be LOW,HIGH with LOW < HIGH",
        ),
    ],
)
def test_every_door_refuses_in_the_same_words(
    tmp_path: Path, door: str, pixels: np.ndarray, limits: Range, why: str
) -> None:
    with pytest.raises(InputError) as refused:
        (FILES | ARRAYS)[door](list(pixels), tmp_path, limits)
    message = str(refused.value)
    assert why in message
    if limits is None:
        assert "data.pixel_range (--pixel-range) LOW,HIGH, one fixed range for all" in message


@pytest.mark.parametrize("kind", [2, 4, 6], ids=["colour", "gray, alpha", "colour, alpha"])
@pytest.mark.parametrize("high", [200, 4095])
def test_a_range_is_refused_for_16_bits_that_are_read_as_8(
    tmp_path: Path, kind: int, high: int
) -> None:
    """Pillow writes none of them: a PNG by hand, of 6x6 pixels."""
    row = b"\0" + b"\x0f\xff" * 6 * {2: 3, 4: 2, 6: 4}[kind]
    header = struct.pack(">IIBBBBB", 6, 6, 16, kind, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(row * 6)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )
    (tmp_path / "deep.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    assert "16-bit" in sentences(load(Folder(), tmp_path).notes)[0]
    with pytest.raises(InputError, match=r"is 16-bit (RGB|LA)A?, .* as 0 to 255: .*npz"):
        by_name(Folder(), tmp_path, (0, high))


def test_a_range_of_deep_images_is_refused_for_8_bits_beside_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1\.tif has 8 bits"):
        folder([DEEP[0], GRAY[0]], tmp_path, (0, 4095))


def modes() -> dict[str, tuple[Image.Image, str]]:
    """Pillow mode -> an image of it, and the mode that it becomes."""
    colour, gray = Image.fromarray(COLOUR[0]), Image.fromarray(GRAY[0])
    kinds = {m: (colour.convert(m), "RGB") for m in ("P", "RGBA", "CMYK")}
    return kinds | {"LA": (gray.convert("LA"), "L"), "1": (gray.convert("1"), "L")}


@pytest.mark.parametrize("door", FILES)
@pytest.mark.parametrize("mode", modes())
def test_modes_are_converted_alike_and_counted(tmp_path: Path, door: str, mode: str) -> None:
    image, into = modes()[mode]
    expected = channels_first(np.asarray(image.convert(into)))
    images = FILES[door]([image, image], tmp_path, None)
    assert np.array_equal(images, np.stack([expected] * 2))


@pytest.mark.parametrize("door", FILES)
def test_gray_images_beside_colour_ones_become_colour(tmp_path: Path, door: str) -> None:
    images = FILES[door]([GRAY[0], COLOUR[0], GRAY[1]], tmp_path, None)
    expected = [[GRAY[0]] * 3, channels_first(COLOUR[0]), [GRAY[1]] * 3]
    assert all(map(np.array_equal, images, expected))


@pytest.mark.parametrize("door", ARRAYS)
@pytest.mark.parametrize("channels", [2, 4])
def test_arrays_with_transparency_are_refused(tmp_path: Path, door: str, channels: int) -> None:
    pixels = RNG.integers(0, 256, (4, 6, 6, channels), dtype=np.uint8)
    with pytest.raises(InputError, match="leave out a channel of transp"):
        ARRAYS[door](list(pixels), tmp_path, None)


def test_what_was_converted_is_noted_once(tmp_path: Path) -> None:
    kinds = modes()
    images = [kinds[mode][0] for mode in ("P", "RGBA", "P", "1")] + [Image.fromarray(GRAY[0])]
    for at, one in enumerate(images):
        one.save(tmp_path / f"{at}.png")
    notes = sentences(load(Folder(), tmp_path).notes)
    assert len(notes) == 1 and "2 of mode P, 1 of mode RGBA became 8-bit" in notes[0]
    picked = Folder().encoded(Request(str(tmp_path), None, None, 0)).pick(np.array([1, 4]))[0]
    assert "converted: 1 of mode RGBA became" in sentences(picked.notes)[0]


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "WEBP"])
def test_margins_and_later_pages_are_noted(tmp_path: Path, kind: str) -> None:
    first, second = (Image.fromarray(one) for one in COLOUR[:2])
    first.save(tmp_path / f"a.{kind}", kind, save_all=True, append_images=[second])
    wide = Image.fromarray(np.concatenate(COLOUR[:2], axis=1))
    for at in range(2):
        wide.save(tmp_path / f"{at}.png")
    notes = " ".join(sentences(load(Folder(), tmp_path, 6).notes))
    assert ": 1 files hold more than one picture, the first is read" in notes
    assert ": 2 images that are not square were cropped to their middle square" in notes


def test_margins_of_arrays_are_noted(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=COLOUR[:, :4])
    said = sentences(load(Npz(), tmp_path / "a.npz", 4).notes)[-1]
    assert ": 4 images that are not square were cropped" in said
    np.savez(tmp_path / "b.npz", x=COLOUR)
    assert not load(Npz(), tmp_path / "b.npz", 4).notes
