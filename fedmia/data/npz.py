"""NumPy archives: `x` images and `y` labels."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.data._pixels import resize_all
from fedmia.data._source import absent_labels, file_path, renumber_labels
from fedmia.data.base import Dataset, Request
from fedmia.data.images import ImageSet
from fedmia.options.bounded import check_npz
from fedmia.options.errors import InputError


@dataclass(frozen=True)
class Npz(Dataset):
    """A NumPy archive of `x` uint8 (N, H, W, C) or (N, H, W), and `y` integers: `npz:PATH`.

    Without `y` the images have no labels.
    """

    takes_path: ClassVar[bool] = True
    columns: ClassVar[str] = "arrays (N,) of the archive"

    def load(self, request: Request) -> ImageSet:
        """The archive's images; labels renumbered 0..classes-1 by value. Never unpickles.

        Raises:
            InputError: the file is missing, empty, corrupt or lacks `x` or the column, these or `y`
                have other types or shapes, or the images are not square and no size is given.
        """
        path = file_path(request, "npz")
        arrays = _arrays(path, ("x", *filter(None, [request.column])))
        x, y = arrays["x"], arrays.get("y")
        if x.dtype != np.uint8 or not (x.ndim == 3 or (x.ndim == 4 and x.shape[3] in (1, 3))):
            raise InputError(
                f"npz: {path}: x must be uint8 (N, H, W), (N, H, W, 1) or (N, H, W, 3), got "
                f"{x.dtype} {x.shape}"
            )
        if y is not None and (not np.issubdtype(y.dtype, np.integer) or y.shape != x.shape[:1]):
            raise InputError(
                f"npz: {path}: y must be integers ({len(x)},), one an image, got "
                f"{y.dtype} {y.shape}"
            )
        column = None if request.column is None else arrays[request.column]
        if column is not None and (column.dtype.kind not in "iubU" or column.shape != x.shape[:1]):
            raise InputError(
                f"npz: {path}: {request.column} must be strings, integers or booleans "
                f"({len(x)},), one an image, got {column.dtype} {column.shape}"
            )
        if x.size == 0:
            raise InputError(f"npz: {path}: x has no images: {x.shape}")
        images = x[:, None] if x.ndim == 3 else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        labels, classes = absent_labels(len(x)) if y is None else renumber_labels(y)
        images = resize_all(images, request.size, f"npz: {path}")
        return ImageSet(images, labels, path.stem, classes, column)


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The named arrays, and `y` where there is one."""
    try:
        if zipfile.is_zipfile(path):
            check_npz(f"npz: {path}", path)
        with path.open("rb") as file:  # np.load leaves a broken archive's file open
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"npz: {path} is not an archive of arrays (expected x and y)")
            for name in names:
                if name not in archive:
                    has = ", ".join(archive.files)
                    raise InputError(f"npz: {path} has no array '{name}' (it has: {has})")
            return {n: archive[n] for n in (*names, *({"y"} & {*archive.files}))}
    except InputError:
        raise
    except (
        ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        why = " ".join(str(error).split())[:200]
        raise InputError(f"npz: cannot read {path}: {why}") from None
