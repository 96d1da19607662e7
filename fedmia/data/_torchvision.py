"""Data sets that torchvision knows: read from a folder, or downloaded into it first."""

from __future__ import annotations

import contextlib
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from fedmia.data.base import Dataset, Request
from fedmia.data.decoding import resize_all
from fedmia.data.images import ImageSet
from fedmia.data.labels import renumber_labels
from fedmia.data.parquet import Parquet
from fedmia.settings import option
from fedmia.settings.errors import InputError, opt

TIMEOUT = 20.0  # seconds of silence after which a download counts as impossible


@dataclass(frozen=True)
class TorchvisionDataset(Dataset):
    """A data set of torchvision, training images first.

    Attributes:
        kind: its class there.
        files: what the data folder should hold, for the error.
        by_flag: whether it takes `train=True` for `split="train"`.
    """

    kind: ClassVar[str]
    files: ClassVar[str]
    by_flag: ClassVar[bool] = False

    subset: str = option("train", "which images", choices=("train", "test", "all"))

    def load(self, request: Request) -> ImageSet:
        """The images of the subset, from the data folder (`cifar10-train.parquet` will do) or
        downloaded into it.

        Raises:
            InputError: the files are absent or corrupt and cannot be downloaded.
        """
        name, root = self.kind.lower(), request.data_dir or Path.home() / ".cache" / "fedmia"
        parts = ("train", "test") if self.subset == "all" else (self.subset,)
        opened = [self._read(name, root, part) for part in parts]
        images = np.concatenate([_channels_first(part.data) for part in opened])
        targets = [part.targets if hasattr(part, "targets") else part.labels for part in opened]
        labels, classes = renumber_labels(np.concatenate([np.asarray(one) for one in targets]))
        notes = tuple(note for part in opened for note in getattr(part, "notes", ()))
        images = resize_all(images, request.size, name, request.pixel_range)
        return ImageSet(images, labels, name, classes, notes=notes)

    def open(self, root: str, part: str, download: bool) -> Any:
        """One part, `train` or `test`: a data set with .data and .targets or .labels."""
        from torchvision import datasets  # slow to import, and `--list` has no use for it

        which = {"train": part == "train"} if self.by_flag else {"split": part}
        return getattr(datasets, self.kind)(root, download=download, **which)

    def _read(self, name: str, root: Path, part: str) -> Any:
        file = root / f"{name}-{part}.parquet"
        if file.is_file() and not (root / self.files).exists():
            read = Parquet().load(Request(str(file), None, None, 0))
            targets = np.array(read.classes, dtype=np.int64)[read.labels]
            return SimpleNamespace(data=read.images, targets=targets, notes=read.notes)
        missing = [p for p in (root, *root.parents) if not p.exists()]
        try:
            with contextlib.suppress(RuntimeError, FileNotFoundError):
                return self.open(str(root), part, False)
            with contextlib.ExitStack() as after, contextlib.redirect_stdout(sys.stderr):
                after.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
                socket.setdefaulttimeout(TIMEOUT)  # torchvision would wait for ever
                return self.open(str(root), part, True)
        # Broken archives raise what their readers raise: pickle, scipy, tarfile, socket errors.
        except Exception as error:
            with contextlib.suppress(OSError):  # torchvision makes the folder before it downloads
                for folder in missing:
                    folder.rmdir()
            why = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"{name}: no readable {self.files} or {file.name} in {root}, and downloading it "
                f"failed ({why}); put it there or give its folder with {opt('data.dir')}"
            ) from None


def _channels_first(data: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    pixels = np.asarray(data, dtype=np.uint8)
    return pixels if pixels.shape[1] == 3 else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
