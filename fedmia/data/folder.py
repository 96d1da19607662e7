"""A folder of image files, one subfolder a class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.data._source import check_path, require_path
from fedmia.data.base import FileDataset, Request
from fedmia.data.encoded import EncodedSet
from fedmia.options.errors import InputError, opt

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)


@dataclass(frozen=True)
class Folder(FileDataset):
    """A folder of image files, one subfolder a class: `folder:PATH`."""

    takes_path: ClassVar[bool] = True
    columns: ClassVar[str] = "a depth: 1 is the class's folder, 2 the one in it, ..."

    def encoded(self, request: Request) -> EncodedSet:
        """The images under each subfolder, in order of their paths; classes in order of names.

        Images that lie directly in the folder have no labels, if there are no subfolders of them.
        Hidden files and files without a usual image suffix are left out.

        A column is the name of the folder at that depth on the way to the image.

        Raises:
            InputError: the folder is missing, holds no images, both images and subfolders of
                images, or an image that lies less deep than the column.
        """
        root = check_path(require_path(request, "folder"), "folder", "folder")
        folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
        classes = {p.name: files for p in folders if (files := list_images(p))}
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
        files = [f for class_files in classes.values() for f in class_files]
        column = None if request.column is None else folder_names(root, files, request.column)
        encoded = read_classes(f"folder: {root}", classes, request.size, root.resolve().name)
        return replace(encoded, column=column)


def read_classes(
    where: str, classes: dict[str, list[Path]], size: int | None, name: str
) -> EncodedSet:
    """The files of each named class as encoded images, class by class.

    Args:
        where: what errors call the source.
        classes: class -> its files.
        size: pixels a side; None: that of the images.
        name: of the data set.

    Returns:
        The images, not decoded; labels 0..classes-1 in the order of `classes`.
    """
    files = [f for c in classes.values() for f in c]
    labels = np.repeat(np.arange(len(classes)), [len(c) for c in classes.values()])
    return EncodedSet(where, [(str(f), f) for f in files], labels, name, size, tuple(classes))


def folder_names(root: Path, files: list[Path], depth: str) -> NDArray[np.str_]:
    """The name of the folder that each file lies in.

    Args:
        root: the data source's folder.
        files: (N,) paths below `root`.
        depth: how many levels below `root` the folders lie: "1", "2", ...

    Returns:
        (N,) names.

    Raises:
        InputError: `depth` is no such number, or a file lies less deep.
    """
    if not depth.isascii() or not depth.isdigit() or int(depth) < 1:
        raise InputError(f"folder: {opt('partition.column')} must be a depth >= 1, got '{depth}'")
    folders = [f.relative_to(root).parts[:-1] for f in files]
    for file, parents in zip(files, folders, strict=True):
        if len(parents) < int(depth):
            raise InputError(
                f"folder: {file} lies {len(parents)} folders below {root}, "
                f"{opt('partition.column', depth)} asks for {depth}"
            )
    return np.array([parents[int(depth) - 1] for parents in folders])


def list_images(folder: Path) -> list[Path]:
    """Image files at any depth under `folder`, sorted."""
    return sorted(p for p in folder.rglob("*") if is_image(p))


def is_image(path: Path) -> bool:
    """Whether `path` is a visible file with the suffix of an image."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
