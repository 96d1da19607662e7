"""Images that cannot be decoded, and images in other channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmia.data.base import Request
from fedmia.data.folder import Folder
from fedmia.data.images import ImageSet
from fedmia.federation.plan import make_plan
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError
from tests.data.material import experiment_on, refusal, write_image


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """12 images of 8x8 pixels, seven of which are broken: the odd ones and the first."""
    rng = np.random.default_rng(0)
    for at in range(12):
        write_image(file := tmp_path / f"{at:02d}.png", rng.integers(0, 256, (8, 8), np.uint8))
        if at % 2 or at == 0:
            file.write_bytes(file.read_bytes()[:60])
    return tmp_path


def test_unreadable__the_error_counts_all_and_names_five(folder: Path) -> None:
    line = refusal(Folder(), folder)
    assert "7 images (" in line and "cannot be decoded" in line
    assert [f"{n:02d}.png" in line for n in (0, 1, 3, 5, 7, 9, 11)] == [True] * 5 + [False] * 2


def test_drop_unreadable__keeps_the_others_and_counts(folder: Path) -> None:
    left = Folder().encoded(Request(str(folder), None, None, 0)).drop_unreadable()
    images = left.all()
    assert [Path(name).name for name, _ in left.files] == [f"{n:02d}.png" for n in (2, 4, 6, 8, 10)]
    assert len(images) == 5 and images.images.std(axis=(1, 2, 3)).min() > 0
    (note,) = sentences(left.notes)
    assert "7 images" in note and "left out" in note


def test_with_channels__gray_is_repeated_and_colour_is_pillows_luminance() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 8, 8), np.uint8)
    colour = ImageSet(pixels, np.zeros(3, np.int64), "x")
    gray = colour.with_channels("gray")
    for ours, theirs in zip(gray.images, pixels, strict=True):
        luma = np.asarray(Image.fromarray(theirs.transpose(1, 2, 0)).convert("L"))
        assert (ours[0] == luma).all()
    assert (gray.with_channels("rgb").images == np.repeat(gray.images, 3, axis=1)).all()
    assert colour.with_channels(None) is colour and colour.with_channels("rgb") is colour


def test_simulate__names_the_option_and_leaves_them_out_with_it(folder: Path) -> None:
    """What a run prepares before its first round: the files left out stand in its notes."""
    for at in range(12, 72):
        pixels = np.random.default_rng(at).integers(0, 256, (8, 8), np.uint8)
        write_image(folder / f"{at}.png", pixels)

    with pytest.raises(InputError, match=r"7 images .*data\.skip_unreadable .* leaves them out"):
        make_plan(experiment_on(folder))
    plan = make_plan(experiment_on(folder, skip_unreadable=True))
    assert sum("7 images" in note and "left out" in note for note in sentences(plan.notes)) == 1
