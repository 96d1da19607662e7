"""What of a state is released, its norm, and how far one image moves it; in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from fedmia.data.images import IntArray
from fedmia.defenses.base import Preparation
from fedmia.settings.errors import InputError, opt
from fedmia.ssl.base import State


def protected(state: State) -> list[str]:
    """Names of the tensors that are clipped, noised and released: the float weights.

    Integer counters and batch norm's running statistics are not: a count of 1000 steps would
    fill the norm, and noise makes a variance negative.
    """
    return [n for n, t in state.items() if t.is_floating_point() and ".running_" not in n]


def refuse_running(norm: str) -> None:
    """Raise InputError for batch norm's statistics that are averaged: see `protected`."""
    if norm == "batch":
        raise InputError(
            "running statistics of batch norm are averaged but can be neither clipped nor noised; "
            "use group norm, or keep them local"
        )


def difference(after: State, before: State, names: list[str]) -> State:
    """after - before, float64."""
    return {n: after[n].double() - before[n].double() for n in names}


def norm(update: State, order: int) -> float:
    """L1 (order 1) or L2 (order 2) norm over all tensors together."""
    parts = [torch.linalg.vector_norm(t, order) for t in update.values()]
    return float(torch.linalg.vector_norm(torch.stack(parts), order)) if parts else 0.0


def measure_update(after: State, before: State, order: int) -> tuple[State, float]:
    """The update of the float weights, float64, and its norm of `order`.

    One without a finite norm becomes the null update: it has no norm to be clipped by, and would
    pass on what it is.

    Args:
        after: state that a client trained.
        before: state that it received.
        order: 1 or 2, of the norm.

    Returns:
        The update of the tensors that `protected` names, and its norm over all of them together.
    """
    update = difference(after, before, protected(after))
    length = norm(update, order)
    if math.isfinite(length):
        return update, length
    return {n: torch.zeros_like(t) for n, t in update.items()}, 0.0


def sampled_sensitivity(preparation: Preparation, pairs: int, order: int) -> float:
    """Largest distance of two trainings on the client's images without d_i and without d_j.

    The Sensitivity Sampler (Yang et al., Algorithm 2; Rubinstein and Alda, 2017).

    Both trainings of a pair draw the same randomness; otherwise the distance would measure it.

    Args:
        preparation: rehearses trainings of the client, and has its number of images.
        pairs: m, how many pairs; the cost is 2 m local trainings.
        order: 1 or 2, the norm of the distance.

    Returns:
        The distance between the released tensors of the two.

    Raises:
        InputError: fewer than 2 images, or trainings that diverged.
    """
    if preparation.images < 2:
        raise InputError(
            f"sensitivity 'sampled' needs clients of at least 2 images, got {preparation.images}"
        )
    largest = 0.0
    for without_i, without_j in leave_one_out(preparation.images, pairs, preparation.rng):
        one, other = preparation.rehearse(without_i), preparation.rehearse(without_j)
        gap = norm(difference(one, other, protected(one)), order)
        if not math.isfinite(gap):
            raise InputError(f"sensitivity 'sampled': training diverged; lower {opt('train.lr')}")
        largest = max(largest, gap)
    return largest


def leave_one_out(
    images: int, pairs: int, rng: np.random.Generator
) -> Iterator[tuple[IntArray, IntArray]]:
    """Places of all images but i, and of all but j, in `pairs` pairs: the data of Algorithm 2.

    d_j takes in one the place that d_i has in the other, so that the same order of training shows
    both the same images but for one. i and j differ (the paper may draw a pair twice the same,
    whose distance is 0).

    Args:
        images: number of images, at least 2.
        pairs: m, how many.
        rng: of i and j.

    Yields:
        Two arrays (images - 1,) of places in 0..images - 1.
    """
    for _ in range(pairs):
        i, j = rng.choice(images, 2, replace=False)
        without_i = np.delete(np.arange(images), i)
        yield without_i, np.where(without_i == j, i, without_i)
