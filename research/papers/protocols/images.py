"""The images of one encoder in their roles, and what a switch makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.seeding import rng
from fedmia.settings.tree import from_tree
from fedmia.ssl.augment import Augment, content_uniforms
from research.papers.central import draw_images
from research.papers.central_settings import Central

# Of members in PartCrop's public code (mia_util.py:75-96): RandomResizedCrop(.2, 1) and a flip.
MEMBERS_VIEW = Augment(crop_min=0.2, crop_max=1.0, flip=0.5, operations=("crop", "flip"))
SIDES = ("members", "unseen", "others", "test file", "other source")
Images = Mapping[str, tuple[Tensor, Tensor]]  # side -> known and scored uint8 (N, C, H, W)


def encoder_settings(
    plan: Mapping[str, Any], method: str, seed: int, sources: Mapping[str, Any]
) -> Central:
    """The settings of one encoder.

    Args:
        plan: of one scale.
        method: of `plan["methods"]`.
        seed: root of its randomness.
        sources: section `data` of the training images, by `train`.

    Returns:
        The complete settings; its non-members are all that the roles need.
    """
    known, scored = plan["known"], plan["scored"]
    sizes = {"members": plan["members"], "nonmembers": 2 * (known + scored) + 2 * scored}
    own = {"data": sources["train"], "seed": seed, "device": "cpu", "threads": 1}
    return from_tree(Central, {**plan["methods"][method], **sizes, **own})


def draw_sides(config: Central, plan: Mapping[str, Any], sources: Mapping[str, Any]) -> Images:
    """Every side of an encoder: no image in two of them, the known apart from the scored.

    Args:
        config: of the encoder, as of `encoder_settings`.
        plan: of its scale.
        sources: section `data` of the images, by `train`, `test` and `other`.

    Returns:
        `members`, half of them known; of the same source `unseen` and `others`, none of which the
        encoder was trained on; `test file`, `other source`; and `pairs`, scored alone: each made of
        two more images that it never saw.
    """
    known, scored = plan["known"], plan["scored"]
    own, rest = (torch.from_numpy(side.images) for side in draw_images(config))
    rest = rest[rng(config.seed, "protocols", "roles").permutation(len(rest))]
    own = own[rng(config.seed, "protocols", "known").permutation(len(own))]
    size = known + scored
    sides = {"members": own, "unseen": rest[:size], "others": rest[size : 2 * size]}
    for side, name in (("test file", "test"), ("other source", "other")):
        tree = {"data": sources[name], "members": size, "nonmembers": 4, "seed": config.seed}
        drawn = draw_images(from_tree(Central, tree))[0].images
        order = rng(config.seed, "protocols", name).permutation(size)
        sides[side] = torch.from_numpy(drawn[order])
    cuts = {side: len(own) // 2 if side == "members" else known for side in sides}
    two = rest[2 * size :]
    pairs = concatenate(two[:scored], two[scored:])
    return {
        **{side: (images[: cuts[side]], images[cuts[side] :]) for side, images in sides.items()},
        "pairs": (pairs[:0], pairs),
    }


def member_views(images: Tensor, seed: int) -> Tensor:
    """One random crop of each image, mirrored at random, as PartCrop's public code shows members.

    There a crop is drawn anew at every pass, and resized bicubically; here once, bilinearly.

    Args:
        images: uint8 (N, C, H, W).
        seed: of the draws, which depend on it and the image's content.

    Returns:
        uint8 (N, C, H, W).
    """
    uniforms = content_uniforms(images, seed, 1, MEMBERS_VIEW.draws, stream="protocols views")
    views = MEMBERS_VIEW(images.float() / 255, torch.from_numpy(uniforms[:, 0].copy()))
    return to_bytes(views)


def concatenate(left: Tensor, right: Tensor) -> Tensor:
    """Two images side by side, resized to the size of one (EncoderMI, Sec. 6: what is no member of
    CLIP).

    Args:
        left: uint8 (N, C, H, W).
        right: uint8 (N, C, H, W).

    Returns:
        uint8 (N, C, H, W).
    """
    wide = torch.cat([left, right], dim=3).float() / 255
    size = [left.shape[2], left.shape[3]]
    return to_bytes(F.interpolate(wide, size, mode="bilinear", antialias=True))


def to_bytes(pixels: Tensor) -> Tensor:
    """uint8 of pixels in [0, 1], rounded."""
    return torch.from_numpy(np.rint(pixels.clamp(0, 1).numpy() * 255).astype(np.uint8))
