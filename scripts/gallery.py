"""Copies the figures of a run into docs/images, small enough for the repository.

The gallery shows all of them; the README and the home page show the attacks (forest.png).

python scripts/gallery.py RUN
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
GALLERY = IMAGES / "gallery"
NAMES = ("attacks", "roc", "clients", "layers", "rounds", "ascent", "features", "holdings")
WIDTH, COLORS = 900, 64


def main(arguments: list[str]) -> int:
    """Copy the figures of the run that the arguments name; returns the exit code."""
    if len(arguments) != 1:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    GALLERY.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        picture = Image.open(Path(arguments[0]) / "figures" / f"{name}.png").convert("RGB")
        height = round(picture.height * min(1, WIDTH / picture.width))
        small = picture.resize((min(WIDTH, picture.width), height), Image.Resampling.LANCZOS)
        small.quantize(COLORS).save(GALLERY / f"{name}.png", optimize=True)
    shutil.copyfile(GALLERY / "attacks.png", IMAGES / "forest.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
