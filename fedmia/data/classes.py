"""True classes of images, for the attacks that cannot do without."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.images import digests
from fedmia.settings.errors import InputError

ClassNames = NDArray[np.str_]  # as the images' source calls them: numbers differ between sources


class Labels:
    """Classes of images, looked up by the images' bytes: they reveal nothing about membership.

    Args:
        labelled: pairs of uint8 images (N, C, H, W), or their `fedmia.data.images.digests`, and the
            names of their classes (N,). A source whose images are all of one class has no labels.
    """

    def __init__(self, labelled: Iterable[tuple[Tensor | list[bytes], ClassNames]] = ()) -> None:
        self._classes: dict[bytes, str] = {}
        for images, classes in labelled:
            if len(np.unique(classes)) > 1:
                names = digests(images.numpy()) if isinstance(images, Tensor) else images
                self._classes.update(zip(names, classes.tolist(), strict=True))

    def __or__(self, other: Labels) -> Labels:
        """Both together; where they differ on an image, `other`'s."""
        merged = Labels()
        merged._classes = self._classes | other._classes
        return merged

    def of(self, images: Tensor) -> ClassNames:
        """Names (N,) of the classes of uint8 (N, C, H, W).

        Raises:
            InputError: an image without a label.
        """
        return self.classes_of(digests(images.numpy()))

    def classes_of(self, names: list[bytes]) -> ClassNames:
        """`of` images whose digests are known already."""
        missing = sum(name not in self._classes for name in names)
        if missing:
            raise InputError(
                f"needs the images' true classes, and {missing} of {len(names)} images have none"
            )
        return np.array([self._classes[name] for name in names], dtype=np.str_)
