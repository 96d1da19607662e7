"""The gallery names figures that a run draws."""

from __future__ import annotations

import re

import pytest

import fedmia
from fedmia.runs import NOT_KEPT
from tests.pages.materials import Materials
from tests.pages.reading import ROOT, text_of

GALLERY = text_of("docs/gallery/index.md")
NAMES = re.findall(r"^## (.+)$", GALLERY, re.MULTILINE)


def test_gallery__shows_every_picture() -> None:
    pictures = (ROOT / "docs" / "images" / "gallery").glob("*.png")
    assert sorted(NAMES) == sorted(path.stem for path in pictures)
    assert all(f"../images/gallery/{name}.png" in GALLERY for name in NAMES)


@pytest.mark.pages
@pytest.mark.slow(seconds=20)
def test_gallery__every_figure_is_drawn_again_or_said_to_be_a_file(materials: Materials) -> None:
    folder = materials.make("RUN")
    run = fedmia.open_run(folder)
    for name in NAMES:
        assert (folder / "figures" / f"{name}.png").is_file()
        if name in NOT_KEPT:
            assert f"`{name}` is only a file" in GALLERY
        else:
            assert run.figure(name).axes, name
