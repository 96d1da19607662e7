"""Queries to vectors that lie in a file: their encoder is not at hand."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from fedmia.settings.errors import InputError
from fedmia.threat._rows import OUTPUTS, Augmentation
from fedmia.threat.blackbox import BlackBox


class Stored(Protocol):
    """Vectors by image.

    Attributes:
        views: V, of each image.
    """

    views: int

    def of(self, images: Tensor) -> Tensor:
        """Vectors (N, V, D) of stand-ins (N, C, H, W) of the images.

        Raises:
            InputError: pixels that stand in for none.
        """


class StoredVectors(BlackBox):
    """What an attacker reads where it has the vectors of some views of each image, and no encoder.

    Args:
        args: as `BlackBox` takes them.
        stored: the vectors.
        rest: as `BlackBox` takes it.
    """

    def __init__(self, *args: Any, stored: Stored, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._stored = stored

    def _rows(self, images: Tensor, views: int, augmentation: Augmentation | None = None) -> Tensor:
        if augmentation is not None:
            raise InputError("needs views of its own, and only vectors are given")
        if views > self._stored.views:
            raise InputError(
                f"needs {views} views of each image, and the embeddings have {self._stored.views}: "
                "their second axis of three is the views"
            )
        rows = self._stored.of(images)[:, :views]
        self._signals.widths[OUTPUTS] = (rows.shape[2],) * len(OUTPUTS)  # the same of both
        return rows
