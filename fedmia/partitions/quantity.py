"""Quantity skew: sizes from a Dirichlet law, class mixes alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmia.data.images import IntArray
from fedmia.partitions.base import RandomPartition, dirichlet_cuts
from fedmia.settings import option


@dataclass(frozen=True)
class Quantity(RandomPartition):
    """Different sizes: Dirichlet(alpha) sizes, with the same class mix in expectation.

    At a small alpha a few clients hold most images. Towards infinity sizes are equal, as under
    `iid`.
    """

    paper: ClassVar[str] = "Li et al., 'Federated Learning on Non-IID Data Silos', ICDE 2022"

    alpha: float = option(1.0, "concentration: small gives few clients most images", gt=0)
    min_size: int = option(2, "images every client gets before the rest is shared out", ge=1)

    def deal(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """Parts of uneven sizes; labels are not read.

        Every client first gets `min_size` images, so that no draw fails; the others are shared
        in proportions p ~ Dirichlet(alpha, ..., alpha), rounded so that all are dealt.
        """
        rest = np.array([len(labels) - clients * self.min_size])
        extra = dirichlet_cuts(self.alpha, rest, clients, rng)[0]
        cuts = extra + self.min_size * np.arange(1, clients)
        return np.split(rng.permutation(len(labels)), cuts)
