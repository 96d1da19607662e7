"""Tiny ImageNet: 200 classes of 500 training and 50 validation colour images, 64x64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedmia.data._source import check_path
from fedmia.data.base import FileDataset, Request
from fedmia.data.encoded import EncodedSet
from fedmia.data.folder import list_images, read_classes
from fedmia.settings import option
from fedmia.settings.errors import InputError, opt
from fedmia.untrusted.limits import unreadable
from fedmia.untrusted.text import read_utf8


@dataclass(frozen=True)
class TinyImageNet(FileDataset):
    """Tiny ImageNet: 100,000 training and 10,000 validation images, 64x64, from its folder.

    The validation images are the test images of papers: its own test images have no labels.
    """

    paper: ClassVar[str] = "Le & Yang, 'Tiny ImageNet Visual Recognition Challenge', 2015"
    takes_path: ClassVar[bool] = True
    uniform: ClassVar[bool] = True
    mean: ClassVar[tuple[float, ...]] = (0.480, 0.448, 0.398)
    std: ClassVar[tuple[float, ...]] = (0.277, 0.269, 0.282)

    subset: str = option("train", "which images", choices=("train", "val", "all"))

    def encoded(self, request: Request) -> EncodedSet:
        """The images `train/<wnid>/images/*.JPEG`, classes in order of wnid, `val/images/*.JPEG`,
        or the former and then the latter.

        Looks in `tinyimagenet:PATH`, else in the data folder or its `tiny-imagenet-200`.

        Raises:
            InputError: no folder given or found, it lacks the images asked for, or the class of
                a validation image.
        """
        if request.path:
            root = check_path(Path(request.path), "tinyimagenet", "folder")
        elif request.data_dir is None:
            raise InputError(
                "tinyimagenet needs its unpacked folder: "
                f"{opt('data.name', 'tinyimagenet:PATH')} or {opt('data.dir', 'PATH')}"
            )
        elif not (root := request.data_dir / "tiny-imagenet-200").is_dir():
            root = check_path(request.data_dir, "tinyimagenet", "folder")
        parts = [READERS[one](root) for one in READERS if self.subset in (one, "all")]
        wnids = sorted(set().union(*parts))
        where = f"tinyimagenet: {root}"
        read = [  # each class of both parts has one number
            read_classes(where, {w: part.get(w, []) for w in wnids}, request, "tinyimagenet")
            for part in parts
        ]
        files = [file for one in read for file in one.files]
        return replace(read[0], files=files, labels=np.concatenate([one.labels for one in read]))


def _list(folder: Path) -> list[Path]:
    """Images of a folder; none where it is absent."""
    return list_images(folder)[0] if folder.is_dir() else []


def _read_train(root: Path) -> dict[str, list[Path]]:
    """Training images of each wnid."""
    wnids = sorted(d for d in (root / "train").glob("n*") if d.is_dir())
    classes = {d.name: files for d in wnids if (files := _list(d / "images"))}
    if not classes:
        raise InputError(f"tinyimagenet: no images train/<wnid>/images/*.JPEG in {root}")
    return classes


def _read_val(root: Path) -> dict[str, list[Path]]:
    """Validation images of each wnid, as `val/val_annotations.txt` names it."""
    notes = root / "val" / "val_annotations.txt"
    with unreadable(f"tinyimagenet: cannot read {notes}"):
        lines = [line.split("\t") for line in read_utf8(notes).splitlines()]
    wnid = {fields[0]: fields[1] for fields in lines if len(fields) > 1}
    classes: dict[str, list[Path]] = {}
    for file in _list(root / "val" / "images"):
        if file.name not in wnid:
            raise InputError(f"tinyimagenet: {notes} names no class of {file.name}")
        classes.setdefault(wnid[file.name], []).append(file)
    if not classes:
        raise InputError(f"tinyimagenet: no images val/images/*.JPEG in {root}")
    return classes


READERS = {"train": _read_train, "val": _read_val}
