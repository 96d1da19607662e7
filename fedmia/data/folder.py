"""A folder of image files, one subfolder a class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedmia.data._source import existing, given
from fedmia.data.base import FileDataset, Request
from fedmia.data.encoded import EncodedSet
from fedmia.errors import InputError

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)


@dataclass(frozen=True)
class Folder(FileDataset):
    """A folder of image files, one subfolder a class: `folder:PATH`."""

    takes_path: ClassVar[bool] = True

    def encoded(self, request: Request) -> EncodedSet:
        """The images under each subfolder, in order of their paths; classes in order of names.

        Images that lie directly in the folder are one class, if there are no subfolders of them.
        Hidden files and files without a usual image suffix are left out.

        Raises:
            InputError: the folder is missing, holds no images, or both images and subfolders of
                images.
        """
        root = existing(given(request, "folder"), "folder", "folder")
        folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
        classes = {p.name: files for p in folders if (files := images_under(p))}
        direct = sorted(p for p in root.iterdir() if is_image(p))
        if classes and direct:
            raise InputError(
                f"folder: {root} holds {len(direct)} images beside {len(classes)} subfolders of "
                "images; expected one or the other"
            )
        if direct:
            classes = {"": direct}
        if not classes:
            raise InputError(f"folder: no images in {root} or its subfolders")
        return read_classes(f"folder: {root}", classes, request.size, root.resolve().name)


def read_classes(
    where: str, classes: dict[str, list[Path]], size: int | None, name: str
) -> EncodedSet:
    """The files of each named class, class by class, of the source that errors call `where`."""
    files = [f for c in classes.values() for f in c]
    labels = np.repeat(np.arange(len(classes)), [len(c) for c in classes.values()])
    return EncodedSet(where, [(str(f), f) for f in files], labels, name, size, tuple(classes))


def images_under(folder: Path) -> list[Path]:
    """Image files at any depth under `folder`, sorted."""
    return sorted(p for p in folder.rglob("*") if is_image(p))


def is_image(path: Path) -> bool:
    """Whether `path` is a visible file with the suffix of an image."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
