"""Sets of images of one kind: of each an attacker asks whether it was trained on as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmia.seeding import rng

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
    """Deal the scored images into at most MOST sets a side, at random.

    The sets depend on the arguments alone, so they are known before a federation begins. Images
    that do not fill a set are left out.

    Args:
        members: number of scored members.
        nonmembers: number of scored non-members.
        seed: the run's root seed.
        size: images a set.

    Returns:
        The indices of the images of each set.
    """

    def draw_sets(count: int, kind: str) -> Index:
        order = rng(seed, "sets", kind).permutation(count)
        full = min(count // size, MOST)
        return np.asarray(order[: full * size].reshape(full, size), dtype=np.int64)

    return ImageSets(draw_sets(members, "members"), draw_sets(nonmembers, "nonmembers"))
