"""Vision transformers of public code under timm's names: what the shapes of their tensors tell."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedmia.encoders.base import EncoderFacts
from fedmia.encoders.hub import import_extra
from fedmia.records.note import Note
from fedmia.settings.errors import InputError

PATCHES, BLOCK = "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"
FC1, FC2, TABLE = "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight", "pos_embed"
# What other code calls a part that timm calls otherwise.
RENAMED = (
    (r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),  # DINOv2's chunks keep the number of a block
    (r"^(blocks\..*)\.gamma_([12])$", r"\1.ls\2.gamma"),
    (r"^layers\.(\d+)\.(?=ln|norm|attn|ffn)", r"blocks.\1."),  # mmselfsup from here on
    (r"^(blocks\.\d+)\.ln", r"\1.norm"),
    (r"\.(mlp\.w12|ffn\.layers\.0\.0)\.", ".mlp.fc1."),
    (r"\.(mlp\.w3|ffn\.layers\.1)\.", ".mlp.fc2."),
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (r"^(ln|norm)1\.", "norm."),
)
# Heads by width, or width and depth: no shape tells. Others, to `WIDEST`, have `HEAD` channels.
HEADS: dict[Any, int] = {1152: 16, 1280: 16, 1408: 16, 1536: 24, 1664: 16, (768, 8): 8}
HEAD, LEAST, WIDEST = 64, 192, 1024
# Code with twelve heads in narrow ViTs: MoCo v3, others where positions are sines (none at first).
MOCO_V3, OTHERS = "MoCo v3", ("solo-learn", "mmselfsup")
NARROW, NARROW_HEADS = (192, 384), 12
EPS = 1e-6  # of the layer norms


def is_vit(tensors: Mapping[str, Tensor]) -> bool:
    """Whether tensors with canonical names are a vision transformer's of images."""
    return tensors.keys() >= {PATCHES, BLOCK, FC1, FC2, TABLE} and tensors[PATCHES].ndim == 4


def canonical_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """timm's names for a ViT's tensors; other tensors keep theirs.

    DINOv2's registers have no positions: as timm keeps them, the class token holds its own, and
    the table those of the patches alone.
    """
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in RENAMED:
            name = re.sub(old, new, name)
        renamed[name] = tensor
    if renamed.keys() >= {"register_tokens", "cls_token", TABLE}:
        renamed["reg_token"] = renamed.pop("register_tokens")
        renamed["cls_token"] = renamed["cls_token"] + renamed[TABLE][:, :1]
        renamed[TABLE] = renamed[TABLE][:, 1:]
    return renamed


def heads(tensors: Mapping[str, Tensor], form: str) -> int | None:
    """Attention heads of a ViT from the code base `form`; None: not known."""
    width = tensors[PATCHES].shape[0]
    depth = len({n.split(".")[1] for n in tensors if n.startswith("blocks.")})
    if (norm := tensors.get("blocks.0.attn.q_norm.weight")) is not None:
        return width // len(norm) if len(norm) else None
    sines = form in OTHERS and not tensors[TABLE][:, 0].any()
    if width in NARROW and (sines or form == MOCO_V3):
        return NARROW_HEADS
    usual = width // HEAD if width % HEAD == 0 and LEAST <= width <= WIDEST else None
    return HEADS.get((width, depth), HEADS.get(width, usual))


def set_heads(module: nn.Module, tensors: Mapping[str, Tensor], form: str) -> list[Note]:
    """Give timm's narrow ViTs the twelve heads that the code base `form` has; notes."""
    width = tensors[PATCHES].shape[0] if is_vit(tensors) else 0
    if width not in NARROW or heads(tensors, form) != NARROW_HEADS:
        return []
    for part in module.modules():
        if hasattr(part, "num_heads") and hasattr(part, "qkv"):
            attention: Any = part
            attention.num_heads, attention.head_dim = NARROW_HEADS, width // NARROW_HEADS
            attention.scale = attention.head_dim**-0.5
    return [Note("heads-of-code-base", {"heads": NARROW_HEADS, "form": form})]


class QuickGELU(nn.Module):
    """OpenAI's, which no tensor tells."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


def use_quick_gelu(module: nn.Module) -> list[Note]:
    """Put it in place of every GELU, as open_clip does for OpenAI's own weights; notes."""
    for name in (places := [n for n, m in module.named_modules() if isinstance(m, nn.GELU)]):
        module.set_submodule(name, QuickGELU())
    return [Note("quick-gelu")] if places else []


def build(facts: EncoderFacts, tensors: Mapping[str, Tensor], form: str) -> Any:
    """timm's transformer of the depth and widths that the tensors tell, for images of the size that
    the user wants, else that of the file's positions.

    Raises:
        InputError: timm is not installed, a width without a known number of heads, positions
            that are no square.
    """
    where, size = facts.where, facts.load_options.size
    vit = import_extra("timm.models.vision_transformer", f"{where} is a ViT, which", "timm")
    width, channels, patch = tensors[PATCHES].shape[:3]
    token, pooled = "cls_token" in tensors, "fc_norm.weight" in tensors
    registers = tensors["reg_token"].shape[1] if "reg_token" in tensors else 0
    places, count = tensors[TABLE].shape[1], heads(tensors, form)
    alone = math.isqrt(places) ** 2 == places  # only patches have positions
    places -= 0 if alone else token + registers
    if count is None or math.isqrt(max(places, 0)) ** 2 != places:
        raise InputError(f"{where}: no ViT that its shapes tell; name it with timm:NAME")
    facts.notes.append(Note("heads-assumed", {"heads": count}))
    gated = (hidden := tensors[FC1].shape[0]) == 2 * tensors[FC2].shape[1]
    return vit.VisionTransformer(
        img_size=size or math.isqrt(places) * patch,
        patch_size=patch,
        in_chans=channels,
        num_classes=0,
        dynamic_img_size=True,
        global_pool="token" if token and not pooled else "avg",
        class_token=token,
        reg_tokens=registers,
        no_embed_class=alone,
        embed_dim=width,
        depth=len({n.split(".")[1] for n in tensors if n.startswith("blocks.")}),
        num_heads=count,
        mlp_ratio=(hidden + 0.5) / width,  # what timm rounds down
        mlp_layer=vit.SwiGLUPacked if gated else vit.Mlp,
        act_layer=nn.SiLU if gated else nn.GELU,
        qkv_bias="blocks.0.attn.qkv.bias" in tensors,
        qk_norm="blocks.0.attn.q_norm.weight" in tensors,
        init_values=1.0 if "blocks.0.ls1.gamma" in tensors else None,
        fc_norm=pooled,
        norm_layer=partial(nn.LayerNorm, eps=EPS),
    )
