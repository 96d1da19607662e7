"""Sets of images of one kind: of each an attacker asks whether it was trained on as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmia.options.seeding import rng

SIZE = 8  # images a set: "a batch of data to be inferred" (Chen et al., Sec. V-B4)
MOST = 64  # sets of one kind, since each may be climbed by itself

Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImageSets:
    """Disjoint sets, each of members alone or of non-members alone.

    Attributes:
        members: (S, B) positions among the scored members.
        nonmembers: (T, B) positions among the scored non-members.
    """

    members: Index
    nonmembers: Index

    @property
    def size(self) -> int:
        """B, images a set."""
        return int(self.members.shape[1])


def form_sets(members: int, nonmembers: int, seed: int, size: int = SIZE) -> ImageSets:
    """At most MOST sets of `size` a side, at random: a function of the arguments alone, so known
    before a federation begins. What does not fill a set is left out.

    Args:
        members, nonmembers: how many of each are scored.
        seed: the run's root seed.
    """

    def dealt(count: int, kind: str) -> Index:
        order = rng(seed, "sets", kind).permutation(count)
        full = min(count // size, MOST)
        return np.asarray(order[: full * size].reshape(full, size), dtype=np.int64)

    return ImageSets(dealt(members, "members"), dealt(nonmembers, "nonmembers"))
