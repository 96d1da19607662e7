"""What a partition is: kinds of images in, one index array per client out; what several share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from fedmia.data.base import Dataset
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray
from fedmia.records.note import Note
from fedmia.settings import Options, registry
from fedmia.settings.errors import IncompleteError, InputError, opt


class Partition(Options, ABC):
    """A law by which images are dealt to clients. Subclasses are frozen dataclasses, one a file.

    Attributes:
        owned: each image belongs to one client or to none (`OwnerPartition`); none is dealt.
        by_classes: it deals by the images' classes, which not every source tells.
    """

    owned: ClassVar[bool] = False
    by_classes: ClassVar[bool] = False

    def check(self, source: Dataset, name: str) -> None:
        """Refuse a data source whose images cannot be dealt so, before it is read.

        Args:
            source: where the images come from.
            name: by which the settings call it.

        Raises:
            InputError: the source has no columns and one is wanted, or an option is missing.
        """
        if self.wants() and not source.columns:
            kinds = {n: registry.load("dataset", n).columns for n in registry.names("dataset")}
            listed = ", ".join(n for n, columns in kinds.items() if columns)
            raise InputError(
                f"partition {type(self).__name__.lower()} needs a data source with columns "
                f"({listed}); {name} has none; {opt('partition', 'file:PATH')} tells the "
                "client of each of its images"
            )

    def wants(self) -> dict[str, str]:
        """The columns of the data source that it deals by, as of `Request.columns`."""
        return {}

    def trains_on_all(self) -> bool:
        """Whether clients train on all that they own, and non-members are images of no client."""
        return False

    def kinds(self, data: ImageSet | EncodedSet, clients: int) -> IntArray:
        """(N,) what images are dealt by; within one kind, members and non-members are alike.

        Args:
            data: images, or their encoded form.
            clients: number of clients, >= 1.

        Returns:
            int64 (N,).

        Raises:
            InputError: the images do not tell.
        """
        if self.by_classes and clients > 1 and not data.labelled:
            lack = (
                f"partition {type(self).__name__.lower()} deals by classes, and the images of "
                f"{data.name} have no labels; {opt('partition', 'iid')} and "
                f"{opt('partition', 'quantity')} need none"
            )
            raise IncompleteError([lack], {"partition": "iid"})
        return data.labels

    def notes(self, data: ImageSet, clients: int) -> list[Note]:
        """Notes for the report: who the clients are."""
        return []

    @abstractmethod
    def __call__(self, kinds: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """Deal positions 0..N-1 to `clients` parts: disjoint, complete, each sorted, none empty.

        Args:
            kinds: int64 (N,), of `kinds`: labels, but for an `OwnerPartition`.
            clients: number of parts, >= 1. One part is always all positions.
            rng: the only source of randomness.

        Raises:
            InputError: too few images for the clients under this law.
        """


class RandomPartition(Partition):
    """A partition that deals images at random; it calls `deal` for two clients or more."""

    min_size = 1  # fewest images of a client

    def __call__(self, kinds: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        law = f"partition {type(self).__name__.lower()}"
        each = 1 if clients == 1 else self.min_size
        if len(kinds) < clients * each:
            raise InputError(
                f"{law}: {len(kinds)} images are too few for {clients} clients of at least "
                f"{each} each"
            )
        if clients == 1:
            return [np.arange(len(kinds))]
        return [np.sort(part) for part in self.deal(kinds, clients, rng)]

    @abstractmethod
    def deal(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """The parts of two clients or more, in any order; arguments as of the call.

        Args:
            labels: int64 (N,), the class of each image.
            clients: number of clients, >= 2.
            rng: the only source of randomness.

        Returns:
            One index array for each client.
        """


class OwnerPartition(Partition):
    """A partition that finds each image with its client: `kinds` are clients, -1 for none.

    A client holds its own images and no others, in every role: it trains on some of them, others
    are non-members, and those of the client of that number in the placebo federation; unless it
    trains on all of them.
    """

    owned: ClassVar[bool] = True

    def __call__(self, kinds: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """The images of each client present, ascending by client; nothing is drawn."""
        present = np.unique(kinds)
        if len(present) != clients:
            raise InputError(
                f"partition {type(self).__name__.lower()}: {len(kinds)} images drawn from those of "
                f"{clients} clients are of {len(present)} of them only; draw more, or name fewer "
                "clients"
            )
        return [np.flatnonzero(kinds == client) for client in present]


def by_class(labels: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """Positions of the images of each class present, ascending by class, shuffled within it.

    Args:
        labels: int64 (N,), the class of each image.
        rng: the only source of randomness.

    Returns:
        One index array for each class.
    """
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def dirichlet_cuts(
    alpha: float, totals: IntArray, clients: int, rng: np.random.Generator
) -> IntArray:
    """(K, clients - 1) ascending cut points in 0..total of each of K totals, so that the pieces are
    in Dirichlet(alpha, ..., alpha) proportions, rounded.

    Args:
        alpha: concentration of the Dirichlet distribution, > 0; small values give uneven parts.
        totals: (K,) images of each class.
        clients: number of clients, >= 1.
        rng: the only source of randomness.

    Returns:
        int64 (K, clients - 1), ascending along each row.
    """
    shares = rng.dirichlet(np.full(clients, float(alpha)), size=len(totals))
    # The smallest alphas underflow to a row without mass: all of it to one client.
    empty = ~(np.abs(shares.sum(axis=1) - 1) < 0.5)
    shares[empty] = np.eye(clients)[rng.integers(clients, size=int(empty.sum()))]
    ends = np.cumsum(shares, axis=1)[:, :-1]
    return np.minimum(np.rint(ends * totals[:, None]).astype(np.int64), totals[:, None])
