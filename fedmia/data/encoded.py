"""Images as their source keeps them, decoded when it is known which of them are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.data.arrays import Range
from fedmia.data.decoding import (
    CROP,
    ByteSource,
    Encoded,
    ImageDecoder,
    UnreadableError,
    list_unreadable,
)
from fedmia.data.images import ByteArray, ImageSet, IntArray, LabelledImages, digests
from fedmia.records.note import Note
from fedmia.settings.errors import InputError


@dataclass(frozen=True)
class EncodedSet(LabelledImages):
    """Encoded images and their labels: decoding takes most of the time that a source takes.

    Attributes:
        where: the source and its path, for errors.
        files: what an error calls each image, and its bytes or where they lie.
        labels, name, classes, columns: as of ImageSet.
        size: pixels a side to resize to, or None for the images' own size.
        notes: what the reader of the report should know of the source.
        pixel_range: the values that become 0 and 255; None: as of `scale_values`.
        fit: as of `to_square`.
    """

    where: str
    files: Sequence[Encoded]
    labels: IntArray
    name: str
    size: int | None
    classes: tuple[str, ...] = ()
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    pixel_range: Range = None
    fit: str = CROP

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def _decoder(self) -> ImageDecoder:
        return ImageDecoder(self.where, len(self), self.size, self.pixel_range, self.fit)

    @cached_property
    def _names(self) -> list[bytes]:
        return [hashlib.sha256(_bytes(source)).digest() for _, source in self.files]

    def drop_unreadable(self) -> EncodedSet:
        """The images that can be decoded, with a note that counts the others.

        Which images remain depends on their files alone. Each is decoded once, and not kept.

        Raises:
            InputError: none can be decoded, or values are out of the range.
        """
        bad = self._decoder.unreadable(self.files)
        if not bad:
            return self
        listed = list_unreadable([self.files[i][0] for i in bad])
        if len(bad) == len(self):
            raise InputError(f"{self.where}: {listed} cannot be decoded, and no other is there")
        left = np.setdiff1d(np.arange(len(self)), bad)
        note = Note("unreadable-out", {"where": self.where, "images": listed})
        return replace(self.take(left), notes=(*self.notes, note))

    def take(self, indices: IntArray) -> EncodedSet:
        """The images at `indices`, in that order, not decoded."""
        return replace(
            self,
            files=[self.files[i] for i in indices],
            labels=self.labels[indices],
            columns={option: values[indices] for option, values in self.columns.items()},
        )

    def digests(self) -> list[bytes]:
        """SHA-256 of each image's encoded bytes: equal digest, equal image. Two images may be the
        same and be encoded otherwise, which `decode` finds out; they have one digest from then on.
        """
        return list(self._names)

    def decode(self, indices: IntArray) -> tuple[ImageSet, bool]:
        """The images at `indices` where they stand, every other one black; and whether no two of
        them turned out to be the same.

        Raises:
            InputError: as `ImageDecoder.add`.
        """
        self._add(self._decoder, indices, indices)
        images = self._set()
        return images, self._find_differences(images.images[indices], indices)

    def pick(self, indices: IntArray) -> tuple[ImageSet, bool]:
        """The images at `indices` alone, in that order; and as `decode`.

        Raises:
            InputError: as `ImageDecoder.add`.
        """
        few = self.take(indices)
        self._add(few._decoder, indices, np.arange(len(indices)))
        picked = few._set()
        return picked, self._find_differences(picked.images, indices)

    def _add(self, decoder: ImageDecoder, indices: IntArray, places: IntArray) -> None:
        """Decode the images at `indices`; where one cannot be, say how many of all cannot."""
        try:
            decoder.add([self.files[i] for i in indices], places)
        except UnreadableError as error:
            bad = self._decoder.unreadable(self.files)
            if len(bad) == 1:
                raise
            why = error.why
            try:
                self._decoder.add([self.files[bad[0]]], np.array(bad[:1]))
            except UnreadableError as first:
                why = first.why
            listed = list_unreadable([self.files[i][0] for i in bad])
            text = f"{self.where}: {listed} cannot be decoded; the first: {why}"
            raise UnreadableError(text, why) from None

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
            InputError: as `ImageDecoder.add`.
        """
        self._add(self._decoder, np.arange(len(self)), np.arange(len(self)))
        return self._set()

    def _set(self) -> ImageSet:
        images, notes = self._decoder.images(), (*self.notes, *self._decoder.notes())
        files = tuple(of.name if isinstance(of, Path) else None for _, of in self.files)
        return ImageSet(images, self.labels, self.name, self.classes, self.columns, notes, files)


def _bytes(source: bytes | ByteSource) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()
