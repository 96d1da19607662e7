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
        given: pairs of uint8 images (N, C, H, W), or their `fedmia.data.images.digests`, and their
            classes (N,). A source whose images are all of one class has no labels.
    """

    def __init__(self, given: Iterable[tuple[Tensor | list[bytes], IntArray]] = ()) -> None:
        self._classes: dict[bytes, int] = {}
        for images, classes in given:
            if len(np.unique(classes)) > 1:
                names = digests(images.numpy()) if isinstance(images, Tensor) else images
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
