"""Independent and identically distributed: equal parts of a shuffle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmia.data.images import IntArray
from fedmia.partitions.base import RandomPartition


@dataclass(frozen=True)
class IID(RandomPartition):
    """Equal parts of a random shuffle: every client has the same class mix in expectation."""

    def deal(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """Parts whose sizes differ by at most one; labels are not read."""
        return np.array_split(rng.permutation(len(labels)), clients)
