"""True classes of images, for the attacks that cannot do without."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from fedmia.data.images import IntArray, digests
from fedmia.errors import InputError


class Labels:
    """Classes of images, looked up by the images' bytes: they tell nothing of membership.

    Args:
        given: pairs of uint8 images (N, C, H, W) and their classes (N,). A source whose images
            are all of one class has no labels.
    """

    def __init__(self, given: Iterable[tuple[Tensor, IntArray]] = ()) -> None:
        self._classes: dict[bytes, int] = {}
        for images, classes in given:
            self._add(digests(images.numpy()), classes)

    @classmethod
    def by_digest(cls, given: Iterable[tuple[list[bytes], IntArray]]) -> Labels:
        """Of images whose digests (`fedmia.data.images.digests`) are known already."""
        found = cls()
        for names, classes in given:
            found._add(names, classes)
        return found

    def _add(self, names: list[bytes], classes: IntArray) -> None:
        if len(np.unique(classes)) > 1:
            self._classes.update(zip(names, classes.tolist(), strict=True))

    def __or__(self, other: Labels) -> Labels:
        """Both together; where they differ on an image, `other`'s."""
        found = Labels()
        found._classes = self._classes | other._classes
        return found

    def of(self, images: Tensor) -> IntArray:
        """int64 (N,) of uint8 (N, C, H, W).

        Raises:
            InputError: an image without a label.
        """
        return self.named(digests(images.numpy()))

    def named(self, names: list[bytes]) -> IntArray:
        """`of` images whose digests are known already."""
        found = [self._classes.get(name) for name in names]
        missing = found.count(None)
        if missing:
            raise InputError(
                f"needs the images' true classes, and {missing} of {len(names)} images have none"
            )
        return np.array(found, dtype=np.int64)
