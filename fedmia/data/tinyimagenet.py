"""Tiny ImageNet: 200 classes of 500 colour images, 64x64, from its unpacked folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedmia.data._source import check_path
from fedmia.data.base import FileDataset, Request
from fedmia.data.encoded import EncodedSet
from fedmia.data.folder import list_images, read_classes
from fedmia.options.errors import InputError, opt


@dataclass(frozen=True)
class TinyImageNet(FileDataset):
    """Tiny ImageNet's 100,000 training images, 64x64, from its unpacked folder."""

    paper: ClassVar[str] = "Le & Yang, 'Tiny ImageNet Visual Recognition Challenge', 2015"
    takes_path: ClassVar[bool] = True
    mean: ClassVar[tuple[float, ...]] = (0.480, 0.448, 0.398)
    std: ClassVar[tuple[float, ...]] = (0.277, 0.269, 0.282)

    def encoded(self, request: Request) -> EncodedSet:
        """The images `train/<wnid>/images/*.JPEG`, classes in order of wnid.

        Looks in `tinyimagenet:PATH`, else in the data folder or its `tiny-imagenet-200`.

        Raises:
            InputError: no folder given or found, or it holds no training images.
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
        train = root / "train"
        wnids = sorted(d for d in train.glob("n*") if d.is_dir())
        classes = {d.name: files for d in wnids if (files := list_images(d / "images"))}
        if not classes:
            raise InputError(f"tinyimagenet: no images train/<wnid>/images/*.JPEG in {root}")
        return read_classes(f"tinyimagenet: {root}", classes, request.size, "tinyimagenet")
