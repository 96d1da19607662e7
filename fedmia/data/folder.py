"""A folder of image files, one subfolder a class."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.data._source import check_path, refuse_arrow, require_path
from fedmia.data.base import FileDataset, Request
from fedmia.data.encoded import EncodedSet
from fedmia.records.note import Note
from fedmia.settings.errors import InputError, opt
from fedmia.settings.values import escape_name

SUFFIXES = frozenset(
    (".bmp", ".dcm", ".gif", ".jpeg", ".jpg", ".npy", ".pbm", ".pgm", ".png", ".ppm", ".tif",
     ".tiff", ".webp")
)  # fmt: skip
# Folders of thumbnails and copies that programs make unseen, beside those whose name has a dot.
HIDDEN = frozenset(("@eaDir", "__MACOSX", "#recycle", "$RECYCLE.BIN", "Thumbs.db", "desktop.ini"))


@dataclass(frozen=True)
class Folder(FileDataset):
    """A folder of image files, one subfolder a class: `folder:PATH`."""

    takes_path: ClassVar[bool] = True
    columns: ClassVar[str] = "a depth: 1 is the class's folder, 2 the one in it, ..."

    def encoded(self, request: Request) -> EncodedSet:
        """The images under each subfolder, in order of their paths; classes in order of names.

        Images that lie directly in the folder have no labels, if there are no subfolders of them.
        What `list_images` leaves out is noted.

        A column is the name of the folder at that depth on the way to the image.

        Raises:
            InputError: the folder is missing, holds no images, both images and subfolders of
                images, or an image that lies less deep than the column.
        """
        root = check_path(require_path(request, "folder"), "folder", "folder")
        where, (files, left_out) = f"folder: {root}", list_images(root)
        classes: dict[str, list[Path]] = {}
        for file in files:
            parents = file.relative_to(root).parts[:-1]
            classes.setdefault(escape_name(parents[0]) if parents else "", []).append(file)
        if "" in classes and len(classes) > 1:
            raise InputError(
                f"{where} holds {len(classes[''])} images beside {len(classes) - 1} subfolders of "
                "images; expected one or the other"
            )
        if not classes:
            refuse_arrow(root, "folder")
            raise InputError(f"folder: no images in {root} or its subfolders{left_out}")
        columns = {
            option: folder_names(root, files, option, depth)
            for option, depth in request.columns.items()
        }
        encoded = read_classes(where, classes, request, escape_name(root.resolve().name))
        others = Note("other-files-out", {"where": where, "files": left_out.removeprefix(": ")})
        notes = (others,) if left_out else ()
        return replace(encoded, columns=columns, notes=notes)


def read_classes(
    where: str, classes: dict[str, list[Path]], request: Request, name: str
) -> EncodedSet:
    """The files of each named class as encoded images, class by class.

    Args:
        where: what errors call the source.
        classes: class -> its files.
        request: gives size and range of the pixels.
        name: of the data set.

    Returns:
        The images, not decoded; labels 0..classes-1 in the order of `classes`.
    """
    files = [f for c in classes.values() for f in c]
    labels = np.repeat(np.arange(len(classes)), [len(c) for c in classes.values()])
    return EncodedSet(
        where, [(str(f), f) for f in files], labels, name, request.size, tuple(classes),
        pixel_range=request.pixel_range, fit=request.fit,
    )  # fmt: skip


def folder_names(root: Path, files: list[Path], option: str, depth: str) -> NDArray[np.str_]:
    """The name of the folder that each file lies in.

    Args:
        root: the data source's folder.
        files: (N,) paths below `root`.
        option: that names the depth, for errors.
        depth: how many levels below `root` the folders lie: "1", "2", ...

    Returns:
        (N,) names.

    Raises:
        InputError: the depth is no such number, or a file lies less deep.
    """
    if not depth.isascii() or not depth.isdigit() or int(depth) < 1:
        raise InputError(f"folder: {opt(option)}: '{depth}', must be a depth >= 1")
    folders = [f.relative_to(root).parts[:-1] for f in files]
    for file, parents in zip(files, folders, strict=True):
        if len(parents) < int(depth):
            raise InputError(
                f"folder: {file} lies {len(parents)} folders below {root}, "
                f"{opt(option, depth)} asks for {depth}"
            )
    return np.array([escape_name(parents[int(depth) - 1]) for parents in folders])


def list_images(folder: Path) -> tuple[list[Path], str]:
    """Image files at any depth under `folder`. Links to folders are followed, into each folder
    once, so that no circle of them is endless; hidden files and folders are left out.

    Args:
        folder: to look in.

    Returns:
        The files, sorted, and what else was met: `: 2 hidden files or folders left out`, or empty.

    Raises:
        InputError: a folder that cannot be read.
    """
    files, counts = list[Path](), Counter[str]()
    folders, links, entered = [folder], list[Path](), set[str]()
    while folders or links:  # what lies here comes before what is linked
        here = folders.pop() if folders else links.pop(0)
        real = os.path.realpath(here)
        if real in entered:
            counts["links to folders that were read already left out"] += 1
            continue
        entered.add(real)
        try:
            inside = sorted(here.iterdir())
        except OSError as error:
            raise InputError(f"{here} cannot be read: {error.strerror}") from None
        for path in inside:
            if path.name.startswith(".") or path.name in HIDDEN:
                counts["hidden files or folders left out"] += 1
            elif path.is_dir():
                (links if path.is_symlink() else folders).append(path)
                counts["links to folders followed"] += path.is_symlink()
            elif path.suffix.lower() not in SUFFIXES:
                counts["files that are not called like images left out"] += 1
            elif path.is_file():
                files.append(path)
            else:
                counts["broken links left out"] += 1
    listed = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()) if count)
    return sorted(files), f": {listed}" if listed else ""
