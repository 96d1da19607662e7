"""Vision transformer (Dosovitskiy et al., ICLR 2021) whose last map is its patch tokens.

Nothing is added in place and every parameter lives in a module that maps a batch to a batch, or
Opacus' per-sample gradients fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import SelfInitialisedLayer, Trunk
from fedmia.nets.keyed import content_words, keyed_uniforms
from fedmia.settings.errors import InputError, option_error

STAGES = 4
EPS = 1e-6  # of the layer norms, as in the public code of DINO and MAE
STD = 0.02  # of learned tokens and positions


def patchify(x: Tensor, patch: int) -> Tensor:
    """Pixels of each patch.

    Args:
        x: images (B, C, H, W).
        patch: side of a patch in pixels.

    Returns:
        (B, H/patch, W/patch, patch * patch * C), a patch row by row, its channels last.

    Raises:
        InputError: a side that is not a multiple of the patch.
    """
    B, C, H, W = x.shape
    if patch > H or patch > W or H % patch or W % patch:
        raise InputError(f"images of {H}x{W} pixels do not divide into patches of {patch}x{patch}")
    h, w = H // patch, W // patch
    cut = x.reshape(B, C, h, patch, w, patch).permute(0, 2, 4, 3, 5, 1)
    return cut.reshape(B, h, w, patch * patch * C)


def check_width(owner: object, width: int, heads: int, prefix: str = "") -> None:
    """Refuse a width that cannot be split over heads, or into sines and cosines of two axes.

    Args:
        owner: the plugin whose options they are.
        width: length of a token.
        heads: of the attention.
        prefix: of the names of both options, such as `decoder_`.

    Raises:
        InputError: the width is no multiple of the heads, or none of 4.
    """
    if width % heads:
        fits = f"must be a multiple of {prefix}heads ({heads})"
        raise option_error(owner, f"{prefix}width: {width}, {fits}")
    if width % 4:
        raise option_error(owner, f"{prefix}width: {width}, must be a multiple of 4")


class ClassToken(SelfInitialisedLayer):
    """A learned token put before the others: (B, n, D) -> (B, 1 + n, D).

    Args:
        width: D.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1, width))

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.cat([self.weight.expand(tokens.shape[0], -1, -1), tokens], dim=1)

    def draw(self, generator: torch.Generator) -> None:
        nn.init.trunc_normal_(self.weight, std=STD, generator=generator)


class Positions(nn.Module):
    """Adds to each token what stands for its place: (B, h, w, D) -> (B, h, w, D).

    Another grid than (H, W) gets the bicubic interpolation of it, as in DINO.
    """

    weight: Tensor  # (1, H, W, D)

    def forward(self, grid: Tensor) -> Tensor:
        """Tokens of any grid (B, h, w, D), each with its place added."""
        if grid.shape[1:3] == self.weight.shape[1:3]:
            return grid + self.weight
        maps = self.weight.permute(0, 3, 1, 2)
        size = (grid.shape[1], grid.shape[2])
        fitted = F.interpolate(maps, size=size, mode="bicubic", align_corners=False)
        return grid + fitted.permute(0, 2, 3, 1)


class LearnedPositions(Positions, SelfInitialisedLayer):
    """Positions that train.

    Args:
        width: D.
        side: H = W, patches a side.
    """

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, side, side, width))

    def draw(self, generator: torch.Generator) -> None:
        nn.init.trunc_normal_(self.weight, std=STD, generator=generator)


class SineCosinePositions(Positions):
    """Fixed ones: half of D for the row, half for the column (MAE, MoCo v3).

    Args:
        width: D, a multiple of 4.
        side: H = W, patches a side.
    """

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        weight = torch.empty(1, side, side, width)
        if not weight.is_meta:  # there a sum would import torch's compiler, for one second
            weight.copy_(sine_cosine(width, side))
        # A constant, neither averaged nor saved.
        self.register_buffer("weight", weight, persistent=False)


def sine_cosine(width: int, side: int) -> Tensor:
    """The fixed positions of a square grid of patches.

    Args:
        width: length of a token, a multiple of 4.
        side: patches a side.

    Returns:
        float32 (side, side, width): sines, then cosines, of the row, then of the column.
    """
    rates = 10000.0 ** -(torch.arange(width // 4, dtype=torch.float64) / (width / 4))
    angles = torch.arange(side, dtype=torch.float64)[:, None] * rates
    line = torch.cat([angles.sin(), angles.cos()], dim=1).float()  # side x D/2
    rows, columns = line[:, None].expand(-1, side, -1), line[None].expand(side, -1, -1)
    return torch.cat([rows, columns], dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention of several heads.

    Args:
        q: queries (B, n, D).
        k, v: keys and values (B, m, D).
        heads: into how many D is split.
        mask: true where a query sees a key, (B, n, m); None: everywhere.

    Returns:
        (B, n, D), the mixed values of the heads side by side.
    """
    q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    every_head = None if mask is None else mask[:, None]
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=every_head)  # B x heads x n x D/heads
    out: Tensor = mixed.transpose(1, 2).flatten(2)
    return out


def feed_forward(width: int) -> nn.Sequential:
    """The two layers of a block that follow its attention, (B, n, width) -> (B, n, width)."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Attention(nn.Module):
    """Multi-head self-attention.

    Args:
        width: D, length of a token.
        heads: into how many D is split.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=2)
        out: Tensor = self.proj(attend(q, k, v, self.heads, mask))
        return out


class Block(nn.Module):
    """Attention, then an MLP four times as wide; each normalised before, added after.

    Args:
        width: D, length of a token.
        heads: into how many D is split.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=EPS)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=EPS)
        self.mlp = feed_forward(width)

    def forward(
        self, x: Tensor, factors: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Tokens after the block.

        Args:
            x: tokens (B, n, D).
            factors: (B, 2), of the two branches before they are added; None: 1.
            mask: as of `attend`.

        Returns:
            (B, n, D).
        """
        out = self.attn(self.norm1(x), mask)
        x = x + (out if factors is None else out * factors[:, :1, None])
        out = self.mlp(self.norm2(x))
        return x + (out if factors is None else out * factors[:, 1:, None])


class VisionTransformer(Trunk):
    """Patches, a class token and pre-norm blocks in four stages.

    Args:
        channels: of the images.
        size: their side in pixels; a multiple of `patch`. Other sizes may be embedded too.
        patch: side of a patch in pixels.
        spec: the options of `fedmia.nets.vit`. What is pooled comes after the last norm, and
            `drop_path`, that of the last block, rises linearly from 0.
    """

    layers = tuple(f"layer{i}" for i in range(1, STAGES + 1))

    def __init__(self, channels: int, size: int, patch: int, spec: Any) -> None:
        super().__init__()
        width, depth, heads = spec.width, spec.depth, spec.heads
        self.width, self.channels, self.patch, self.side = width, channels, patch, size // patch
        self.depth, self.heads = depth, heads
        self.drop_path, self.pooling = spec.drop_path, spec.pool
        self.embed = nn.Linear(patch * patch * channels, width)
        kind = LearnedPositions if spec.positions == "learned" else SineCosinePositions
        self.positions = kind(width, self.side)
        self.cls = ClassToken(width)
        ends = [depth * i // STAGES for i in range(STAGES + 1)]
        for name, first, last in zip(self.layers, ends, ends[1:], strict=False):
            self.add_module(name, nn.ModuleList(Block(width, heads) for _ in range(last - first)))
        self.norm = nn.LayerNorm(width, eps=EPS)

    def tokens(self, x: Tensor) -> Tensor:
        """(B, h, w, D): patches embedded, with their positions, before any block.

        Raises:
            InputError: a side that is not a multiple of the patch.
        """
        out: Tensor = self.positions(self.embed(patchify(x, self.patch)))
        return out

    def encode(self, tokens: Tensor, path: Tensor | None = None) -> list[Tensor]:
        """Tokens (B, 1 + n, D) after each stage, the last one's normalised; the class token first.

        Args:
            tokens: (B, n, D), any of the patches' in any order.
            path: (B, 2 * depth) of `path_factors`, or None.
        """
        ends = [self.depth * i // STAGES for i in range(1, STAGES + 1)]
        stages = [x for i, x in enumerate(self.after_blocks(tokens, path), 1) if i in ends]
        return [*stages[:-1], self.norm(stages[-1])]

    def after_blocks(
        self, tokens: Tensor, path: Tensor | None = None, mask: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Tokens (B, 1 + n, D) after each block, the class token first.

        Args:
            tokens: (B, n, D), any of the patches' in any order.
            path: (B, 2 * depth) of `path_factors`, or None.
            mask: true where a token sees another, (B, 1 + n, 1 + n); None: everywhere.

        Yields:
            the tokens, not normalised.
        """
        x = self.cls(tokens)
        factors = iter([None] * self.depth if path is None else path.split(2, dim=1))
        for name in self.layers:
            for block in self.get_submodule(name).children():
                x = block(x, next(factors), mask)
                yield x

    def pooled(self, last: Tensor) -> Tensor:
        """(B, D) of the last stage's tokens (B, 1 + n, D)."""
        return last[:, 0] if self.pooling == "cls" else last[:, 1:].mean(dim=1)

    def path_factors(self, x: Tensor) -> Tensor | None:
        """Factors (B, 2 * depth) of stochastic depth: 0 with the branch's rate p, else 1/(1 - p).

        None outside training, or where nothing is dropped.
        """
        if not self.training or not self.drop_path:
            return None
        rates = torch.linspace(0, self.drop_path, self.depth, device=x.device).repeat_interleave(2)
        return ((self.uniforms(x, len(rates)) >= rates) / (1 - rates)).to(x.dtype)

    def uniforms(self, x: Tensor, draws: int, use: int = 0) -> Tensor:
        """Uniforms (B, draws) in [0, 1), keyed by the image's content and the class token, which
        changes at every step.

        Args:
            x: pixels (B, C, H, W).
            draws: how many for each image.
            use: tells several uses of one image in one step apart.
        """
        return keyed_uniforms(x, content_words(self.cls.weight)[0] + use, draws)

    def trunk(self, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Patch tokens after each stage as maps (B, D, h, w), and the pooled vector (B, D)."""
        grid = self.tokens(x)
        h, w = grid.shape[1:3]
        stages = self.encode(grid.flatten(1, 2), self.path_factors(x))
        maps = [s[:, 1:].transpose(1, 2).unflatten(2, (h, w)) for s in stages]
        return dict(zip(self.layers, maps, strict=True)), self.pooled(stages[-1])
