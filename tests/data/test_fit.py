"""Images that are not square: cropped or padded, by twins that count pixels one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fedmia
from fedmia.data.base import Request
from fedmia.data.decoding import MOST_PADDED, resize_all, to_square
from fedmia.data.folder import Folder
from fedmia.data.npz import Npz
from fedmia.data.parquet import Parquet
from fedmia.federation.plan import make_plan
from fedmia.settings.errors import InputError
from tests.auditing.attacks import named
from tests.data.dicom_files import write_dicom
from tests.data.material import encode, experiment_on, write_image, write_parquet

RNG = np.random.default_rng(0)


def cropped(pixels: np.ndarray) -> np.ndarray:
    """Of (H, W, ..) the largest central square; of an odd rest the smaller half comes first."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    out = np.zeros((side, side, *pixels.shape[2:]), np.uint8)
    for row in range(side):
        for column in range(side):
            out[row, column] = pixels[row + (height - side) // 2, column + (width - side) // 2]
    return out


def padded(pixels: np.ndarray) -> np.ndarray:
    """Of (H, W, ..) the whole in the middle of a black square; likewise."""
    height, width = pixels.shape[:2]
    side = max(height, width)
    out = np.zeros((side, side, *pixels.shape[2:]), np.uint8)
    for row in range(height):
        for column in range(width):
            out[row + (side - height) // 2, column + (side - width) // 2] = pixels[row, column]
    return out


TWINS = {"crop": cropped, "pad": padded}


@pytest.mark.parametrize("fit", TWINS)
@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5), (1, 6), (6, 9, 3), (9, 6, 3)])
def test_to_square__is_its_twin(fit: str, shape: tuple[int, ...]) -> None:
    pixels = RNG.integers(1, 256, shape, dtype=np.uint8)
    expected = TWINS[fit](pixels)
    side = len(expected)
    image = Image.fromarray(pixels)
    assert np.array_equal(np.asarray(to_square(image, side, fit)), expected)
    resized = Image.fromarray(expected).resize((3, 3), Image.Resampling.BILINEAR)
    assert np.array_equal(np.asarray(to_square(image, 3, fit)), np.asarray(resized))


def test_to_square__refuses_a_square_of_too_many_pixels() -> None:
    side = int(MOST_PADDED**0.5) + 1
    long = Image.new("L", (side, 1))
    with pytest.raises(InputError, match=rf"{side}x1 pixels.* data\.fit \(--fit\) crop crops it"):
        to_square(long, 8, "pad")
    assert to_square(long, 8).size == (8, 8)


def sources(folder: Path, pixels: np.ndarray) -> dict[str, Any]:
    """One gray image (H, W) as each source that takes files of users."""
    for name in ("folder", "scans", "dicom"):
        (folder / name).mkdir()
    (folder / "folder" / "a.png").write_bytes(encode(pixels))
    np.save(folder / "scans" / "a.npy", pixels)
    (folder / "dicom" / "a.dcm").write_bytes(write_dicom(pixels, 8))
    write_parquet(folder / "a.parquet", [encode(pixels)], label=[0])
    np.savez(folder / "a.npz", x=pixels[None])
    return {
        "folder": Folder(), "scans": Folder(), "dicom": Folder(), "a.parquet": Parquet(),
        "a.npz": Npz(),
    }  # fmt: skip


@pytest.mark.parametrize("fit", TWINS)
def test_sources__obey(fit: str, tmp_path: Path) -> None:
    pixels = RNG.integers(1, 256, (8, 12), dtype=np.uint8)
    expected = TWINS[fit](pixels)
    for name, source in sources(tmp_path, pixels).items():
        request = Request(str(tmp_path / name), None, len(expected), 0, fit=fit)
        data = source.load(request)
        assert np.array_equal(data.images[0, 0], expected), name
        (note,) = [n for n in data.notes if n.code in ("images-cropped", "images-padded")]
        assert note.code == f"images-{fit}{'p' * (fit == 'crop')}ed".replace("paded", "padded")
        assert note.values["images"] == 1 and note.values["most"] == pytest.approx(1 / 3)


def test_padding__is_black_after_the_range(tmp_path: Path) -> None:
    """0 of the stored values is gray in a range from -1000, and padding is not."""
    write_image(tmp_path / "a.png", np.full((4, 8), 2000, np.uint16))
    request = Request(str(tmp_path), None, 8, 0, pixel_range=(-2000.0, 2000.0), fit="pad")
    image = Folder().load(request).images[0, 0]
    assert (image[2:6] == 255).all() and (image[:2] == 0).all() and (image[6:] == 0).all()


@pytest.mark.parametrize("fit", TWINS)
def test_commands__both_sides_go_the_same_way(fit: str, tmp_path: Path) -> None:
    pixels = RNG.integers(1, 256, (60, 8, 10), dtype=np.uint8)
    expected = np.stack([TWINS[fit](one) for one in pixels])
    for at, one in enumerate(pixels):
        write_image(tmp_path / f"{at:02d}.png", one)
    size = expected.shape[1]
    plan = make_plan(experiment_on(tmp_path, size=size, fit=fit))
    used = np.sort(plan.cast.used)
    assert np.array_equal(plan.cast.data.images[used, 0], expected[used])
    for source in (f"folder:{tmp_path}", pixels):
        sides = (pixels[:30], pixels[30:]) if source is pixels else (source, pixels[30:] // 2)
        run = fedmia.audit_encoder(
            torch.nn.Conv2d(1, 4, 3), *sides, size=size, fit=fit, attacks=named("Mean"), threads=1,
            quiet=True,
        )  # fmt: skip
        ids, images = run.images.ids("scored_members"), run.images.pixels("scored_members")
        assert np.array_equal(images[:, 0], expected[ids]) and len(ids) > 10


def test_resize_all__pads_arrays() -> None:
    images = RNG.integers(0, 256, (3, 3, 5, 9), dtype=np.uint8)
    out = resize_all(images, 9, "x", fit="pad")
    expected = np.stack([padded(one.transpose(1, 2, 0)).transpose(2, 0, 1) for one in images])
    assert np.array_equal(out, expected)
