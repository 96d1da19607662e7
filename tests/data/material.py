"""Files of images, and how a source reads or refuses them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedmia.data.base import Dataset, Request
from fedmia.data.images import ImageSet
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 12345\n"


def encode(pixels: np.ndarray | Image.Image, kind: str = "PNG", **more: Any) -> bytes:
    """The bytes of an image's file, without loss."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(buffer := io.BytesIO(), kind, **({"lossless": True} if kind == "WEBP" else more))
    return buffer.getvalue()


def write_image(path: Path, pixels: np.ndarray) -> None:
    """A PNG, whatever its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(pixels))


def write_parquet(path: Path, images: Any, column: str = "image", **columns: Any) -> Path:
    """A file of encoded images as the library datasets writes them, with more columns."""
    rows = [{"bytes": image, "path": None} for image in images]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({column: pa.array(rows, kind), **columns}), path)
    return path


def load(source: Dataset, path: Path | None, size: int | None = None) -> ImageSet:
    return source.load(Request(None if path is None else str(path), None, size, 0))


def refusal(source: Dataset, path: Path | None, size: int | None = None) -> str:
    """The one line with which a source refuses a place."""
    with pytest.raises(InputError) as caught:
        load(source, path, size)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def channels_first(pixels: np.ndarray) -> np.ndarray:
    """Pixels (.., H, W, at most 4) or (.., H, W) with their channels before height and width."""
    return np.moveaxis(pixels, -1, -3) if pixels.shape[-1] <= 4 else pixels[..., None, :, :]


def experiment_on(folder: Path, **data: Any) -> Experiment:
    """Two clients on the images of a folder, under options of the data."""
    tree = {
        "data": {"name": f"folder:{folder}", **data},
        "split": {"members": 30, "nonmembers": 12, "known": 2, "test": 4},
        "partition": "iid",
        "federation": {"clients": 2, "placebo": False},
    }
    return from_tree(Experiment, tree)
