"""What a client would leak: an own shadow estimate on public images, never on anybody's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from fedmia.data.images import IntArray
from fedmia.defenses.base import Preparation
from fedmia.settings.errors import InputError, opt
from fedmia.statistics.auc import auc_estimate, auc_interval

if TYPE_CHECKING:
    from fedmia.ssl.train import Job

VIEWS = 8  # of an image, for its similarity
LEAST = 8  # public images


@dataclass(frozen=True)
class LeakEstimate:
    """The shadow after one round.

    Attributes:
        leak: AUC in [0, 1] of the similarity score, images trained on against those held out.
        low: lower limit of its 95 % interval.
        loss: mean loss of the images held out, with those trained on as negatives.
    """

    leak: float
    low: float
    loss: float


def split_public(preparation: Preparation) -> tuple[IntArray, IntArray]:
    """Positions of the public images in two halves: to train on, and to hold out."""
    order = preparation.rng.permutation(len(preparation.public))
    half = len(order) // 2
    return np.sort(order[:half]), np.sort(order[half:])


def estimates(
    preparation: Preparation, parts: tuple[IntArray, IntArray], change: Callable[[Job], None]
) -> Iterator[LeakEstimate]:
    """One estimate a round of a federation of one, trained on the first of `parts`.

    Args:
        change: of each round's job, before the client's own defences change it.
    """
    assert preparation.rehearse_alone is not None
    inside, outside = (torch.from_numpy(preparation.public[part]) for part in parts)
    for view in preparation.rehearse_alone(parts[0], change):
        rows, losses = view.views_and_losses(outside, VIEWS, "held")
        known = similarity(view.embed_views(inside, VIEWS))
        leak = auc_estimate(known, similarity(rows))
        yield LeakEstimate(leak.value, auc_interval(leak)[0], float(losses.double().mean()))


def similarity(rows: Tensor) -> NDArray[np.float64]:
    """Mean cosine (N,) of all pairs of an image's views (N, M, P), M >= 2."""
    count = rows.shape[1]
    together = normalize(rows.double(), dim=2).sum(dim=1).square().sum(dim=1)
    return np.asarray(((together - count) / (count * (count - 1))).numpy())


def require_public(public: int, what: str, other: str, pretrained: bool = False) -> None:
    """Refuse to estimate on too few public images, or on those that the encoder knows.

    Args:
        what: of the defence, that rests on them. other: its option that does without.
        pretrained: the federation starts from training on all of them.

    Raises:
        InputError: naming how many are needed.
    """
    if pretrained:
        raise InputError(
            f"{what} holds public images out, and {opt('pretrain.mode', 'public')} trains on all "
            f"of them before; give its {other}"
        )
    if public < LEAST:
        raise InputError(
            f"{what} needs images that no client holds: {opt('split.public')}: {public}, must be "
            f">= {LEAST}; or give its {other}"
        )
