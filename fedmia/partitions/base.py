"""What a partition is: labels in, one index array per client out."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fedmia.data.images import IntArray
from fedmia.settings.option import Options


class Partition(Options, ABC):
    """A law by which images are dealt to clients. Subclasses are frozen dataclasses, one a file."""

    @abstractmethod
    def __call__(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """Deal positions 0..N-1 to `clients` parts: disjoint, complete, each sorted, none empty.

        Args:
            labels: int64 (N,).
            clients: number of parts, >= 1. One part is always all positions.
            rng: the only source of randomness.

        Raises:
            InputError: too few images for the clients under this law.
        """
