"""Vision transformers of public code under timm's names: what the shapes of their tensors tell."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from fedmia.errors import InputError

PATCHES, BLOCK = "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"
HEAD = 64  # channels of an attention head, in every width of the paper
# MoCo v3's ViT-Small alone has as many heads as a ViT-Base; no shape shows it.
MOCO_V3, SMALL, SMALL_HEADS = "MoCo v3", 384, 12
EPS = 1e-6  # of the layer norms


def is_vit(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the tensors are a vision transformer's."""
    return PATCHES in tensors and BLOCK in tensors and "pos_embed" in tensors


def heads(width: int, form: str) -> int:
    """Attention heads of a transformer from the code base `form`."""
    return SMALL_HEADS if form == MOCO_V3 and width == SMALL else width // HEAD


def set_heads(module: nn.Module, form: str) -> list[str]:
    """Give timm's ViT-Small the heads that MoCo v3's has; notes."""
    if form != MOCO_V3 or getattr(module, "embed_dim", None) != SMALL:
        return []
    for part in module.modules():
        if hasattr(part, "num_heads") and hasattr(part, "qkv"):
            attention: Any = part
            attention.num_heads = SMALL_HEADS
            attention.head_dim = SMALL // SMALL_HEADS
            attention.scale = attention.head_dim**-0.5
    return [f"Attention has {SMALL_HEADS} heads, as in MoCo v3's own ViT-Small."]


def build(
    tensors: Mapping[str, Tensor], form: str, size: int | None, where: str, notes: list[str]
) -> Any:
    """timm's transformer of the depth and widths that the tensors tell, for images of `size`
    (None: that of the file's positions).

    Raises:
        InputError: timm is not installed, a width without a known number of heads, positions
            that are no square.
    """
    try:
        vit = importlib.import_module("timm.models.vision_transformer")
    except ImportError:
        raise InputError(
            f"{where} is a ViT, which needs the extra: pip install 'fedmia[timm]'"
        ) from None
    width, channels, patch = tensors[PATCHES].shape[:3]
    depth = len({n.split(".")[1] for n in tensors if n.startswith("blocks.")})
    token, registers = "cls_token" in tensors, tensors.get("reg_token")
    places = tensors["pos_embed"].shape[1] - token
    if width % HEAD or math.isqrt(places) ** 2 != places or registers is not None:
        raise InputError(f"{where}: no ViT that its shapes tell; name it with timm:NAME")
    count = heads(width, form)
    notes.append(f"Attention is taken to have {count} heads, which no shape of a tensor tells.")
    return vit.VisionTransformer(
        img_size=size or math.isqrt(places) * patch,
        patch_size=patch,
        in_chans=channels,
        num_classes=0,
        dynamic_img_size=True,
        global_pool="token" if token else "avg",
        class_token=token,
        embed_dim=width,
        depth=depth,
        num_heads=count,
        mlp_ratio=tensors["blocks.0.mlp.fc1.weight"].shape[0] / width,
        qkv_bias="blocks.0.attn.qkv.bias" in tensors,
        init_values=1.0 if "blocks.0.ls1.gamma" in tensors else None,
        norm_layer=partial(nn.LayerNorm, eps=EPS),
    )
