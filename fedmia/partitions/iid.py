"""Independent and identically distributed: equal parts of a shuffle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmia.data.images import IntArray
from fedmia.partitions._deal import require
from fedmia.partitions.base import Partition


@dataclass(frozen=True)
class IID(Partition):
    """Equal parts of a random shuffle: every client has the same class mix in expectation."""

    def __call__(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """Parts whose sizes differ by at most one; labels are not read.

        Raises:
            InputError: fewer images than clients.
        """
        require(labels, clients, 1, "iid")
        return [np.sort(p) for p in np.array_split(rng.permutation(len(labels)), clients)]
