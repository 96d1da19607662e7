"""Dirichlet partition: each class is divided among the clients in Dirichlet proportions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmia.data.images import IntArray
from fedmia.partitions.base import RandomPartition, by_class, dirichlet_cuts
from fedmia.settings import option
from fedmia.settings.errors import InputError

TRIES = 1000


@dataclass(frozen=True)
class Dirichlet(RandomPartition):
    """Different class mixes: each class is divided in Dirichlet(alpha) proportions.

    At alpha 0.1 most images of a client are of one or two classes, at 0.5 (usual) of a few.
    Towards infinity every client has the same mix, as under `iid`.
    """

    by_classes: ClassVar[bool] = True
    paper: ClassVar[str] = "Hsu et al., 'Measuring the Effects of Non-Identical Data', 2019"

    alpha: float = option(0.5, "concentration: small gives each client few classes", gt=0)
    min_size: int = option(2, "fewest images a client may get; draws that give fewer repeat", ge=1)

    def deal(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """Parts of uneven sizes and class mixes, of at least `min_size` images each.

        For each class c, proportions p ~ Dirichlet(alpha, ..., alpha) over the clients; client k
        gets the fraction p_k of the class, rounded so that all images are dealt. All classes are
        drawn again until every client holds enough.

        Raises:
            InputError: no draw in 1000 gave every client `min_size`.
        """
        classes = by_class(labels, rng)
        totals = np.array([len(c) for c in classes])
        for _ in range(TRIES):
            cuts = dirichlet_cuts(self.alpha, totals, clients, rng)
            sizes = np.diff(cuts, axis=1, prepend=0, append=totals[:, None]).sum(axis=0)
            if sizes.min() >= self.min_size:
                pieces = [np.split(c, at) for c, at in zip(classes, cuts, strict=True)]
                return [np.concatenate(p) for p in zip(*pieces, strict=True)]
        raise InputError(
            f"partition dirichlet: alpha {self.alpha} gave some of {clients} clients fewer than "
            f"{self.min_size} of {len(labels)} images in each of {TRIES} draws; raise alpha or the "
            "number of images, or lower the number of clients"
        )
