"""Images as their source keeps them, decoded when it is known which of them are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.data._pixels import ByteSource, Encoded, ImageDecoder
from fedmia.data.images import ByteArray, ImageSet, IntArray, LabelledImages, digests


@dataclass(frozen=True)
class EncodedSet(LabelledImages):
    """Encoded images and their labels: decoding takes most of the time that a source takes.

    Attributes:
        where: the source and its path, for errors.
        files: what an error calls each image, and its bytes or where they lie.
        labels, name, classes, column: as of ImageSet.
        size: pixels a side to resize to, or None for the images' own size.
    """

    where: str
    files: Sequence[Encoded]
    labels: IntArray
    name: str
    size: int | None
    classes: tuple[str, ...] = ()
    column: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def _gallery(self) -> ImageDecoder:
        return ImageDecoder(self.where, len(self), self.size)

    @cached_property
    def _names(self) -> list[bytes]:
        return [hashlib.sha256(_bytes(source)).digest() for _, source in self.files]

    def digests(self) -> list[bytes]:
        """SHA-256 of each image's encoded bytes: equal digest, equal image. Two images may be the
        same and be encoded otherwise, which `decode` finds out; they have one digest from then on.
        """
        return list(self._names)

    def decode(self, indices: IntArray) -> tuple[ImageSet, bool]:
        """The images at `indices` where they stand, every other one black; and whether no two of
        them turned out to be the same.

        Raises:
            InputError: as `Gallery.add`.
        """
        self._gallery.add([self.files[i] for i in indices], indices)
        images = self._set()
        return images, self._find_differences(images.images[indices], indices)

    def pick(self, indices: IntArray) -> tuple[ImageSet, bool]:
        """The images at `indices` alone, in that order; and as `decode`.

        Raises:
            InputError: as `Gallery.add`.
        """
        few = ImageDecoder(self.where, len(indices), self.size)
        few.add([self.files[i] for i in indices], np.arange(len(indices)))
        column = None if self.column is None else self.column[indices]
        picked = ImageSet(few.images(), self.labels[indices], self.name, self.classes, column)
        return picked, self._find_differences(picked.images, indices)

    def _find_differences(self, images: ByteArray, indices: IntArray) -> bool:
        """Whether the images decoded from `indices` differ; of those that do not, the names are
        one from now on."""
        first: dict[bytes, int] = {}
        for at, name in zip(indices.tolist(), digests(images), strict=True):
            self._names[at] = self._names[first.setdefault(name, at)]
        return len(first) == len(indices)

    def all(self) -> ImageSet:
        """Every image, decoded.

        Raises:
            InputError: as `Gallery.add`.
        """
        self._gallery.add(self.files, np.arange(len(self)))
        return self._set()

    def _set(self) -> ImageSet:
        images = self._gallery.images()
        return ImageSet(images, self.labels, self.name, self.classes, self.column)


def _bytes(source: bytes | ByteSource) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()
