"""How sure an encoder seems of an image, without labels: a number between 0 and 1.

LiRA and RMIA start from the probability of an image's true label. An encoder has no labels; here
stand three quantities that its answers tell, each brought into (0, 1), so that its logit may be
taken for Gaussian as Carlini et al. take that of the label's probability.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._cosine import pairwise_cosines
from fedmia.attacks.base import Scores
from fedmia.data.images import digests
from fedmia.settings.errors import InputError
from fedmia.threat import BlackBox

SIGNALS = ("similarity", "loss", "norm")
EDGE = 1e-9  # the least distance to 0 and to 1, so that every logit is finite
CHUNK = 256  # images whose pairs meet all negatives at once


def membership_signal(
    view: BlackBox, images: Tensor, others: Tensor, *, signal: str, views: int, layer: str,
    temperature: float,
) -> Scores:  # fmt: skip
    """One of SIGNALS as a number in (0, 1), from black-box answers alone.

    - `similarity`: (1 + c) / 2 of the mean cosine c of the image's views. Its logit is 2 artanh c.
    - `loss`: exp of minus the mean InfoNCE loss of view i against view V/2 + i and the images that
      the attacker knows: the probability (a geometric mean) of picking the right one of them.
    - `norm`: m / (m + |v|) for the plain image's features v, m the geometric mean of the norms of
      the known images under the same encoder. Its logit is log m - log |v|: members are taken to
      be shorter (LpLA, Fig. 4), which is a convention, not a finding.

    N x views queries (`norm`: N), and one for each of `others` except for `similarity`.

    Args:
        images: uint8 (N, C, H, W).
        others: uint8 (K, C, H, W) that the attacker knows.
        signal: one of SIGNALS.
        views: an image; of an odd number the last is no part of the loss.
        layer: one of OUTPUTS, or `auto`: the projection, but pooled features for `norm`.
        temperature: of the loss.

    Returns:
        (N,) float64 from EDGE to 1 - EDGE.

    Raises:
        InputError: `others` are too few for the signal.
    """
    least = {"similarity": 0, "norm": 1, "loss": 2}[signal]
    if len(others) < least:
        raise InputError(
            f"signal '{signal}' needs at least {least} known images, got {len(others)}"
        )
    if layer == "auto":
        layer = "avgpool" if signal == "norm" else "encoder"
    if signal == "norm":
        values = _shortness(view, images, others, layer)
    else:
        rows = view.embed_views(images, views, layer)
        if signal == "similarity":
            values = (1 + pairwise_cosines(rows).mean(axis=1)) / 2
        else:
            keys = view.embed_plain(others, layer)
            values = _picked(rows, images, keys, others, temperature)
    return np.clip(values, EDGE, 1 - EDGE)


def _shortness(view: BlackBox, images: Tensor, others: Tensor, layer: str) -> Scores:
    typical = _log_norms(view.embed_plain(others, layer)).mean()
    logit = typical - _log_norms(view.embed_plain(images, layer))
    return np.asarray(torch.sigmoid(logit).numpy(), dtype=np.float64)


def _picked(
    rows: Tensor, images: Tensor, keys: Tensor, others: Tensor, temperature: float
) -> Scores:
    keys = F.normalize(keys.double(), dim=1)
    place = {name: i for i, name in enumerate(digests(others.numpy()))}
    itself = [place.get(name, -1) for name in digests(images.numpy())]
    # An image is no negative of its own: a known one would else look less of a member.
    same = torch.tensor(itself)[:, None] == torch.arange(len(keys))
    parts = zip(rows.split(CHUNK), same.split(CHUNK), strict=True)
    logs = [log_picked(part, keys, mask, temperature) for part, mask in parts]
    return np.asarray(torch.cat(logs).exp().numpy(), dtype=np.float64)


def log_picked(rows: Tensor, keys: Tensor, skip: Tensor, temperature: float) -> Tensor:
    """Minus the mean InfoNCE loss (N,) of rows (N, V, P), view i with view V//2 + i.

    Args:
        keys: (K, P) of length 1, the negatives.
        skip: (N, K) which of them an image passes over.
    """
    unit, half = F.normalize(rows.double(), dim=2), rows.shape[1] // 2
    first, second = unit[:, :half], unit[:, half : 2 * half]
    right = (first * second).sum(dim=2, keepdim=True)  # N x V/2 x 1
    wrong = (first @ keys.T).masked_fill(skip[:, None, :], -torch.inf)
    logits = torch.cat([right, wrong], dim=2) / temperature
    return torch.log_softmax(logits, dim=2)[:, :, 0].mean(dim=1)


def logit(p: Scores) -> Scores:
    """log(p / (1 - p))."""
    return np.asarray(np.log(p) - np.log1p(-p))


def _log_norms(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors.double(), dim=1).clamp_min(1e-12).log()
