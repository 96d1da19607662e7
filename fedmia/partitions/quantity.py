"""Quantity skew: sizes from a Dirichlet law, class mixes alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmia.data.images import IntArray
from fedmia.partitions._deal import require
from fedmia.partitions.base import Partition
from fedmia.settings.option import option


@dataclass(frozen=True)
class Quantity(Partition):
    """Sizes that differ: Dirichlet(alpha) sizes, with the same class mix in expectation."""

    paper: ClassVar[str] = "Li et al., 'Federated Learning on Non-IID Data Silos', ICDE 2022"

    alpha: float = option(1.0, "concentration: small gives few clients most images", gt=0)
    min_size: int = option(2, "images every client gets before the rest is shared out", ge=1)

    def __call__(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """Parts of uneven sizes; labels are not read.

        Every client first gets `min_size` images, so that no draw fails; the others are shared
        in proportions p ~ Dirichlet(alpha, ..., alpha), rounded so that all are dealt.

        Raises:
            InputError: fewer than `min_size` images a client.
        """
        require(labels, clients, self.min_size, "quantity")
        if clients == 1:
            return [np.arange(len(labels))]
        share = rng.dirichlet(np.full(clients, float(self.alpha)))
        if not abs(share.sum() - 1) < 0.5:  # the smallest alphas underflow: all to one client
            share = np.eye(clients)[rng.integers(clients)]
        rest = len(labels) - clients * self.min_size
        extra = np.minimum(np.rint(np.cumsum(share)[:-1] * rest).astype(np.int64), rest)
        cuts = extra + self.min_size * np.arange(1, clients)
        return [np.sort(p) for p in np.split(rng.permutation(len(labels)), cuts)]
