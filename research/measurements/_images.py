"""Folders of images for an audit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_images(folder: Path, count: int, size: int) -> str:
    """Two folders of `count` images each, smooth noise, and the flags that name them."""
    generator, flags = np.random.default_rng(0), ""
    for side in ("members", "nonmembers"):
        (folder / side).mkdir()
        for i in range(count):
            blocks = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            image = Image.fromarray(blocks).resize((size, size), Image.Resampling.BILINEAR)
            image.save(folder / side / f"{i}.png")
        flags += f"--{side} folder:{folder / side} "
    return flags
