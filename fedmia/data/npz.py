"""NumPy archives: `x` images and `y` labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from fedmia.data._source import file_path
from fedmia.data.arrays import arrange_images
from fedmia.data.base import Dataset, Request
from fedmia.data.decoding import array_crop_notes, resize_all
from fedmia.data.images import ImageSet
from fedmia.data.labels import (
    CLASS_NAMES,
    absent_labels,
    check_labels,
    renumber_labels,
)
from fedmia.records.note import Note
from fedmia.settings.errors import InputError
from fedmia.settings.values import escape_name
from fedmia.untrusted.arrays import open_npz
from fedmia.untrusted.limits import unreadable


@dataclass(frozen=True)
class Npz(Dataset):
    """A NumPy archive of images `x` and labels `y`: `npz:PATH`.

    `x` is (N, H, W, C), (N, C, H, W) or (N, H, W), uint8 or floats from 0 to 1; `y` integers or
    text. Without `y`, or an array that is called label or class, the images have no labels.
    """

    takes_path: ClassVar[bool] = True
    columns: ClassVar[str] = "arrays (N,) of the archive"

    def load(self, request: Request) -> ImageSet:
        """The archive's images; labels renumbered 0..classes-1 by value. Never unpickles.

        Raises:
            InputError: the file is missing, empty, corrupt or lacks `x` or a column, these or `y`
                have other types or shapes, or the images are not square and no size is given.
        """
        path = file_path(request, "npz")
        where = f"npz: {path}"
        arrays, label = _arrays(path, ("x", *request.columns.values()))
        x, y = arrays["x"], arrays.get(label)
        images = arrange_images(x, f"{where}: x", request.pixel_range)
        labels, classes = absent_labels(len(x))
        if y is not None:
            labels, classes = renumber_labels(check_labels(y, len(x), f"{where}: {label}"))
        notes: tuple[Note, ...] = ()
        if label != "y":
            notes = (Note("label-array", {"where": where, "array": label}),)
        columns = {option: arrays[name] for option, name in request.columns.items()}
        for option, values in columns.items():
            if values.dtype.kind not in "iubU" or values.shape != x.shape[:1]:
                raise InputError(
                    f"npz: {path}: {request.columns[option]} must be strings, integers or booleans "
                    f"({len(x)},), one an image, got {values.dtype} {values.shape}"
                )
        notes += array_crop_notes(where, images, request.size, request.fit)
        images = resize_all(images, request.size, where, fit=request.fit)
        return ImageSet(images, labels, escape_name(path.stem), classes, columns, notes)


def _arrays(path: Path, names: tuple[str, ...]) -> tuple[dict[str, NDArray[Any]], str]:
    """The named arrays, and that of labels where there is one; the name of the latter."""
    where = f"npz: cannot read {path} as an archive of x and y"
    with unreadable(where), open_npz(f"npz: {path}", path) as archive:
        for name in names:
            if name not in archive:
                has = ", ".join(archive.files)
                raise InputError(f"npz: {path} has no array '{name}' (it has: {has})")
        label = next((n for n in ("y", *CLASS_NAMES) if n in archive), "y")
        return {n: archive[n] for n in (*names, *({label} & {*archive.files}))}, label
