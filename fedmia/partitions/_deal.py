"""What the partitions share: the refusal of too few images, and the images of each class."""

from __future__ import annotations

import numpy as np

from fedmia.data.images import IntArray
from fedmia.errors import InputError


def require(labels: IntArray, clients: int, each: int, law: str) -> None:
    """Raise InputError unless there are `each` images for each of `clients` >= 1 clients."""
    if clients < 1:
        raise InputError(f"partition {law}: clients must be >= 1, got {clients}")
    each = 1 if clients == 1 else each
    if len(labels) < clients * each:
        raise InputError(
            f"partition {law}: {len(labels)} images are too few for {clients} clients of at least "
            f"{each} each"
        )


def by_class(labels: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """Positions of the images of each class present, ascending by class, shuffled within it."""
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
