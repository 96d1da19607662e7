"""What a partition is: labels in, one index array per client out; and what the laws share."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fedmia.data.images import IntArray
from fedmia.errors import InputError
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


class Law(Partition):
    """A partition by `deal`, which is asked where there are images for two clients or more."""

    min_size = 1  # fewest images of a client

    def __call__(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        law = f"partition {type(self).__name__.lower()}"
        if clients < 1:
            raise InputError(f"{law}: clients must be >= 1, got {clients}")
        each = 1 if clients == 1 else self.min_size
        if len(labels) < clients * each:
            raise InputError(
                f"{law}: {len(labels)} images are too few for {clients} clients of at least "
                f"{each} each"
            )
        if clients == 1:
            return [np.arange(len(labels))]
        return [np.sort(part) for part in self.deal(labels, clients, rng)]

    @abstractmethod
    def deal(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """The parts of two clients or more, in any order; arguments as of the call."""


def by_class(labels: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """Positions of the images of each class present, ascending by class, shuffled within it."""
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def dirichlet_cuts(
    alpha: float, totals: IntArray, clients: int, rng: np.random.Generator
) -> IntArray:
    """(K, clients - 1) ascending cut points in 0..total of each of K totals, so that the pieces are
    in Dirichlet(alpha, ..., alpha) proportions, rounded."""
    shares = rng.dirichlet(np.full(clients, float(alpha)), size=len(totals))
    # The smallest alphas underflow to a row without mass: all of it to one client.
    empty = ~(np.abs(shares.sum(axis=1) - 1) < 0.5)
    shares[empty] = np.eye(clients)[rng.integers(clients, size=int(empty.sum()))]
    ends = np.cumsum(shares, axis=1)[:, :-1]
    return np.minimum(np.rint(ends * totals[:, None]).astype(np.int64), totals[:, None])
