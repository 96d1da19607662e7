"""Sets of images of one kind: of each an attacker asks whether it was trained on as a whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmia.seeding import rng

SIZE = 8  # images a set: "a batch of data to be inferred" (Chen et al., Sec. V-B4)
MOST = 64  # sets of one kind, since each may be climbed by itself

Index = NDArray[np.int64]
# (S, B) and (T, B): positions of disjoint sets among the scored members and among the non-members.
ImageSets = tuple[Index, Index]


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
        (S, B) positions of the images of each set of members, and (T, B) of those of non-members.
    """

    def draw_sets(count: int, kind: str) -> Index:
        order = rng(seed, "sets", kind).permutation(count)
        full = min(count // size, MOST)
        return np.asarray(order[: full * size].reshape(full, size), dtype=np.int64)

    return draw_sets(members, "members"), draw_sets(nonmembers, "nonmembers")
