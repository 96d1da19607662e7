"""ImageSet: uint8 images with labels, the one form in which every data source hands them over."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.records.note import Note
from fedmia.settings.errors import InputError

IntArray = NDArray[np.int64]
ByteArray = NDArray[np.uint8]
CHANNELS = {"rgb": 3, "gray": 1}  # values of `--channels`
# Shares of red, green and blue in luminance (ITU-R 601), times 2**16: integers, as Pillow's.
LUMA = np.array([19595, 38470, 7471], np.uint32)
UNLABELLED = ("",)  # classes of a source that tells none: every label is 0


class LabelledImages:
    """Images with labels; `labels` and `classes` are those of ImageSet."""

    labels: IntArray
    classes: tuple[str, ...]

    def class_labels(self) -> NDArray[np.str_]:
        """(N,) names of the images' classes, or their numbers as text where `classes` is empty.
        Compare sources by these: a number may mean another class in each."""
        return np.array(self.classes)[self.labels] if self.classes else self.labels.astype(str)

    @property
    def labelled(self) -> bool:
        """Whether its source tells the images' classes."""
        return self.classes != UNLABELLED


@dataclass(frozen=True)
class ImageSet(LabelledImages):
    """Images and their labels; labels serve non-IID splits and probes only, never training.

    Attributes:
        images: uint8 (N, C, H, W), C in {1, 3}; may be memory-mapped.
        labels: int64 (N,), from 0 to the number of classes - 1.
        name: what the report calls the data.
        classes: names of the classes 0, 1, ..; empty: they have only numbers; UNLABELLED: unknown.
        columns: option -> the (N,) strings, integers or booleans that it asked the source for.
        notes: what the reader of the report should know: what was guessed, left out, converted.
        files: (N,) names of files, None where an image has none; empty: no image has one.

    Raises:
        InputError: on construction, for other images, or labels or columns of another length.
    """

    images: ByteArray
    labels: IntArray
    name: str
    classes: tuple[str, ...] = ()
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    files: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        kind, shape = self.images.dtype, self.images.shape
        if kind != np.uint8 or len(shape) != 4 or shape[1] not in (1, 3):
            expected = "uint8 (N, C, H, W) with 1 or 3 channels"
            raise InputError(f"{self.name}: images must be {expected}, got {kind} {shape}")
        for what, values in {"labels": self.labels, **self.columns}.items():
            if values.shape != shape[:1]:
                raise InputError(f"{self.name}: {shape[0]} images but {what} of {values.shape}")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def channels(self) -> int:
        """C: 1 or 3."""
        return int(self.images.shape[1])

    @property
    def size(self) -> int:
        """Height in pixels (images are square once loaded)."""
        return int(self.images.shape[2])

    def with_channels(self, channels: str | None) -> ImageSet:
        """The same images in other channels.

        Args:
            channels: `rgb` repeats a gray channel three times, `gray` takes the luminance of
                colours (ITU-R 601, as Pillow's); None: as they are.

        Returns:
            Images of 3 or of 1 channels, or these.
        """
        count = self.channels if channels is None else CHANNELS[channels]
        if count == self.channels:
            return self
        if count == 3:
            return replace(self, images=np.repeat(self.images, 3, axis=1))
        gray = np.empty((len(self), 1, *self.images.shape[2:]), np.uint8)
        for place, image in enumerate(self.images):  # one by one: the sums take four bytes a pixel
            sums = np.tensordot(LUMA, image.astype(np.uint32), 1)
            gray[place, 0] = (sums + 2**15) >> 16  # divided by 2**16, and rounded
        return replace(self, images=gray)

    def digests(self) -> list[bytes]:
        """SHA-256 of each image, as of the function `digests`."""
        return digests(self.images)

    def take(self, indices: IntArray) -> ImageSet:
        """The images at `indices`, in that order."""
        columns = {option: values[indices] for option, values in self.columns.items()}
        files = tuple(self.files[at] for at in indices.tolist()) if self.files else ()
        return replace(
            self, images=self.images[indices], labels=self.labels[indices], columns=columns,
            files=files,
        )  # fmt: skip


def count_uniform(images: ByteArray) -> int:
    """How many of uint8 (N, C, H, W) have one colour throughout, as placeholders of lost ones."""
    return sum(bool((image == image[:, :1, :1]).all()) for image in images)


def digests(images: ByteArray) -> list[bytes]:
    """SHA-256 of each image's bytes and shape: equal bytes, equal digest.

    Raises:
        InputError: anything but uint8 (N, C, H, W). Floats in [0, 1] would be scaled once more.
    """
    if images.dtype != np.uint8 or images.ndim != 4:
        raise InputError(
            f"images must be uint8 (N, C, H, W), 0 to 255; got {images.dtype} {images.shape}"
        )
    shape = repr(images.shape[1:]).encode()
    return [hashlib.sha256(shape + np.ascontiguousarray(x).tobytes()).digest() for x in images]


def rank_digests(image_digests: list[bytes]) -> list[int]:
    """Places of images in the ascending order of their digests, which tells nothing of their roles.

    Equal images come in a random order: that of their places may tell members from others. The
    operating system draws it, so no seed that an attack may know repeats it.
    """
    count = len(image_digests)
    shuffled = secrets.SystemRandom().sample(range(count), count)
    return sorted(shuffled, key=image_digests.__getitem__)
