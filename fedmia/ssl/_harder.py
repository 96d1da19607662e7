"""Losses that mix-up and adversarial views add to a step: PartCrop's Table 7.

Mix-up is MixCo's (Kim et al., 2020, arXiv 2010.06300), which PartCrop cites; adversarial views are
RoCL's (Kim et al., NeurIPS 2020, arXiv 2006.07589). All that is random is keyed by the views, which
the training's own stream drew: no stream moves, and an image's draws do not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedmia.nets.keyed import keyed_uniforms

MIX_TEMPERATURE = 0.05  # of MixCo's softmax over the batch's keys and the queue: its public code's
START, SHARES = 1, 2  # keys of the draws
Losses = Callable[[Tensor, Tensor], Tensor]  # of two views of each image


def adversarial_view(
    losses: Losses, view1: Tensor, view2: Tensor, epsilon: float, steps: int
) -> Tensor:
    """The first views, moved within `epsilon` a pixel so that each image's loss rises: PGD.

    As in RoCL, it starts at random within epsilon; a step goes a quarter of epsilon (its 2/255 of
    8/255) along the gradient's signs, with fewer than four steps as far as makes epsilon together.

    Args:
        losses: of (B, C, H, W) each, (B,).
        view1, view2: (B, C, H, W) in [0, 1].
        epsilon: largest change of a pixel.
        steps: >= 1.

    Returns:
        (B, C, H, W) in [0, 1], without gradient.
    """
    start = keyed_uniforms(view1, START, view1[0].numel()).view(view1.shape)
    low, high = (view1 - epsilon).clamp(min=0), (view1 + epsilon).clamp(max=1)
    moved = (view1 + (2 * start - 1) * epsilon).clamp(low, high)
    for _ in range(steps):
        moved.requires_grad_()
        (slope,) = torch.autograd.grad(losses(moved, view2).sum(), moved)
        moved = moved.detach() + slope.sign() * (epsilon * max(1 / 4, 1 / steps))
        moved = moved.clamp(low, high)
    return moved


def mixed_losses(against: Losses, view1: Tensor, view2: Tensor) -> Tensor:
    """Loss of the mixture that each image is part of, (B,): MixCo, Eq. 3.

    The first half of the batch is mixed with the second, image by image, in a share s uniform over
    [0, 1), which is also the label: s of the first image, 1 - s of the other. Both images of a
    pair carry its loss, so the mean is over pairs. An odd last image is not mixed: it has 0.

    Args:
        against: of mixed images (M, C, H, W) and second views (B, C, H, W), the loss of each
            mixture where each image's key is the positive, (M, B).
        view1, view2: (B, C, H, W) in [0, 1].
    """
    half = len(view1) // 2
    extra = view1.new_zeros(len(view1))
    if half == 0:
        return extra
    first, second = view1[:half], view1[half : 2 * half]
    share = keyed_uniforms(first, SHARES, 1)
    mixed = torch.lerp(second, first, share[:, :, None, None])
    table = against(mixed, view2).float()
    pair = torch.lerp(table.diagonal(half)[:half], table.diagonal(), share[:, 0])
    return torch.cat([pair, pair, extra[2 * half :]])


def nce_against(q: Tensor, k: Tensor, negatives: Tensor) -> Tensor:
    """-log softmax of each query (M, P) over keys (B, P) and negatives (K, P), at the keys: (M, B).

    All of unit length.
    """
    logits = q @ torch.cat([k, negatives]).T / MIX_TEMPERATURE
    return torch.logsumexp(logits, dim=1, keepdim=True) - logits[:, : len(k)]
