"""STL-10: 5,000 training, 8,000 test and 100,000 unlabelled colour images, 96x96."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedmia.data._torchvision import TorchvisionDataset
from fedmia.data.base import Request
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet
from fedmia.data.labels import absent_labels
from fedmia.settings import option
from fedmia.settings.errors import InputError

CHANNELS, SIDE = 3, 96
BYTES = CHANNELS * SIDE * SIDE
UNLABELLED = {  # subsets without labels -> files of their images
    "unlabeled": ("unlabeled_X.bin",),
    "train+unlabeled": ("train_X.bin", "unlabeled_X.bin"),
}


@dataclass(frozen=True, slots=True)
class PlanarImage:
    """One image of a file that stores each channel of each image column by column.

    Attributes:
        file: the binary file of the data set.
        index: of the image in the file, from 0.
    """

    file: Path
    index: int

    def read_bytes(self) -> bytes:
        """As a portable pixmap: this image alone is read."""
        with self.file.open("rb") as file:
            file.seek(self.index * BYTES)
            raw = file.read(BYTES)
        planes = np.frombuffer(raw, np.uint8).reshape(CHANNELS, SIDE, SIDE)
        return b"P6 %d %d 255\n" % (SIDE, SIDE) + planes.transpose(2, 1, 0).tobytes()


@dataclass(frozen=True)
class Stl10(TorchvisionDataset):
    """STL-10: 5,000 training, 8,000 test and 100,000 unlabelled colour images, 96x96.

    Of the unlabelled ones, 2.8 GB, only those that are used are read into memory.
    """

    paper: ClassVar[str] = "Coates et al., 'An Analysis of Single-Layer Networks', AISTATS 2011"
    uniform: ClassVar[bool] = True
    mean: ClassVar[tuple[float, ...]] = (0.4467, 0.4398, 0.4066)
    std: ClassVar[tuple[float, ...]] = (0.2603, 0.2566, 0.2713)
    kind: ClassVar[str] = "STL10"
    files: ClassVar[str] = "stl10_binary"

    subset: str = option(
        "train",
        "which images; those with unlabeled ones come all without labels",
        choices=("train", "test", "all", *UNLABELLED),
    )

    def encoded(self, request: Request) -> EncodedSet | None:
        """The images of a subset without labels; None of one with labels.

        Raises:
            InputError: the files are absent and cannot be downloaded, or one is cut short.
        """
        if self.subset not in UNLABELLED:
            return None
        name, root = self.kind.lower(), request.data_dir or Path.home() / ".cache" / "fedmia"
        paths = [root / self.files / file for file in UNLABELLED[self.subset]]
        if not all(path.is_file() for path in paths):
            self._read(name, root, "test")  # one archive holds every part
        rows = [PlanarImage(path, i) for path in paths for i in range(_images(path))]
        sources = [(f"{row.file.name}, image {row.index}", row) for row in rows]
        labels, classes = absent_labels(len(rows))
        where = f"{name}: {root / self.files}"
        limits = request.pixel_range
        return EncodedSet(where, sources, labels, name, request.size, classes, pixel_range=limits)

    def load(self, request: Request) -> ImageSet:
        encoded = self.encoded(request)
        return super().load(request) if encoded is None else encoded.all()


def _images(path: Path) -> int:
    """How many images the file holds; InputError for none, or a part of one."""
    count, rest = divmod(path.stat().st_size, BYTES)
    if rest or not count:
        raise InputError(
            f"stl10: {path} has {path.stat().st_size} bytes, expected a multiple of {BYTES} "
            f"({CHANNELS}x{SIDE}x{SIDE} an image)"
        )
    return count
