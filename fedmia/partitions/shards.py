"""Shards: every client holds images of a few classes only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmia.data.images import IntArray
from fedmia.partitions.base import RandomPartition, by_class
from fedmia.settings import option


@dataclass(frozen=True)
class Shards(RandomPartition):
    """Few classes a client: each class is cut into shards, each client gets `classes` of them.

    McMahan et al. (2017) give each client 2 shards. With as many shards as there are classes, every
    client holds images of all classes.
    """

    by_classes: ClassVar[bool] = True
    paper: ClassVar[str] = "McMahan et al., 'Communication-Efficient Learning', AISTATS 2017"

    classes: int = option(2, "classes that each client holds", ge=1)

    def deal(self, labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
        """Parts of `classes` classes each, where the images allow it.

        Unlike the paper's, no shard holds two classes. A client gets more classes where
        clients x classes is less than the number of classes (all images are dealt), and fewer
        where there are not enough images or classes. Larger classes are cut into more shards, so
        that sizes are similar.
        """
        groups = by_class(labels, rng)
        totals = np.array([len(g) for g in groups])
        shards = shard_counts(totals, clients, self.classes)
        holders = assign(shards, clients, rng)
        parts: list[list[IntArray]] = [[] for _ in range(clients)]
        for group, takers in zip(groups, holders, strict=True):
            for client, piece in zip(takers, np.array_split(group, len(takers)), strict=True):
                parts[client].append(piece)
        return [np.concatenate(p) for p in parts]


def shard_counts(totals: IntArray, clients: int, classes: int) -> IntArray:
    """Into how many shards each class is cut: at least 1, at most one a client or one an image.

    Args:
        totals: images of each class, all >= 1.
        clients: number of clients.
        classes: shards wanted for each client.

    Returns:
        Counts that sum to max(clients * classes, number of classes) where the bounds allow it.
    """
    most = np.minimum(totals, clients)
    counts = np.ones_like(totals)
    total = min(max(clients * classes, len(totals)), int(most.sum()))
    for _ in range(total - len(totals)):
        # Cut the class whose shards are the largest once more.
        counts[np.argmax(np.where(counts < most, totals / counts, -1.0))] += 1
    return counts


def assign(shards: IntArray, clients: int, rng: np.random.Generator) -> list[list[int]]:
    """Deal shards to clients: no client gets two of one class, and all get equally many.

    Clients choose in turn, each the classes with the most shards left (ties by chance). No shard is
    left over while no class has more shards than there are clients.

    Args:
        shards: (K,) shards of each class.
        clients: number of clients.
        rng: the only source of randomness.

    Returns:
        For each class, the clients that hold one of its shards.
    """
    remaining = shards.copy()
    total = int(shards.sum())
    hands = np.full(clients, total // clients)
    hands[rng.permutation(clients)[: total % clients]] += 1
    holders: list[list[int]] = [[] for _ in shards]
    for client in rng.permutation(clients):
        tie = rng.permutation(len(remaining))
        for chosen in tie[np.argsort(-remaining[tie], kind="stable")][: hands[client]]:
            holders[chosen].append(int(client))
            remaining[chosen] -= 1
    return holders
