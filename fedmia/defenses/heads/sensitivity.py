"""How far one labelled image moves the weights of a head: Algorithm 2 of Yang et al. (2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from fedmia.data.images import IntArray
from fedmia.defenses.heads.stack import HeadStack
from fedmia.defenses.sensitivity import leave_one_out
from fedmia.settings.errors import InputError, opt

SIDE_BY_SIDE = 64  # pairs whose heads are trained at once: their weights are in memory together


def sample_sensitivity(
    fit: Callable[[Tensor], HeadStack], members: IntArray, pairs: int, rng: np.random.Generator
) -> Mapping[int, float]:
    """Largest distance of two heads, each without another one of the images: {1: L1, 2: L2}.

    A largest value seen is no bound, so no guarantee rests on it.

    Args:
        fit: heads trained on the rows (K, n), all with the same randomness.
        members: rows of the head's images, at least 2.
        pairs: m; the cost is 2 m heads.
        rng: draws the pairs.

    Returns:
        Order of the norm -> the largest distance of the sampled pairs.

    Raises:
        InputError: trainings that diverged.
    """
    largest = {1: 0.0, 2: 0.0}
    neighbours = list(leave_one_out(len(members), pairs, rng))
    for at in range(0, pairs, SIDE_BY_SIDE):
        rows = np.array(
            [members[side] for pair in neighbours[at : at + SIDE_BY_SIDE] for side in pair]
        )
        weights = fit(torch.from_numpy(rows)).flat()
        gaps = weights[0::2] - weights[1::2]
        for order in largest:
            distance = float(torch.linalg.vector_norm(gaps, order, dim=1).max())
            if not math.isfinite(distance):
                raise InputError(f"training of a head diverged; lower {opt('lr')}")
            largest[order] = max(largest[order], distance)
    return largest
