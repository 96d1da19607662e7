"""The masked autoencoder's parts: which patches are seen, the decoder, the target."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets._keyed import keyed_uniforms
from fedmia.nets._vit import EPS, Block, SineCosinePositions


def visible_count(patches: int, mask: float) -> int:
    """Patches that stay visible: as the public code rounds, but at least 1 seen and 1 masked."""
    return min(max(int(patches * (1 - mask)), 1), patches - 1)


def patch_order(view: Tensor, patches: int, key: int) -> Tensor:
    """A random order of the patches (B, n) of each image, keyed by its content and `key`.

    The first of them are the visible ones.
    """
    return keyed_uniforms(view, key, patches).argsort(dim=1, stable=True)


def take(tokens: Tensor, indices: Tensor) -> Tensor:
    """(B, k, D): the tokens of (B, n, D) at `indices` (B, k)."""
    return tokens.gather(1, indices[:, :, None].expand(-1, -1, tokens.shape[2]))


def normalised_patches(patches: Tensor) -> Tensor:
    """Each patch (..., P) less its mean, over its standard deviation (`norm_pix_loss`)."""
    mean = patches.mean(dim=-1, keepdim=True)
    variance = patches.var(dim=-1, keepdim=True)
    return (patches - mean) / (variance + 1e-6).sqrt()


class Decoder(nn.Module):
    """Predicts every patch's pixels from the visible patches' tokens.

    The mask token is a column of `embed`: a masked patch comes in as zeros and a 1, a visible one
    as its token and a 0. So the layer is one that Opacus knows.

    Args:
        inputs: D, length of the encoder's tokens.
        width: length of the decoder's own, a multiple of `heads` and of 4.
        side: patches a side.
        outputs: pixel values of a patch.
    """

    def __init__(
        self, inputs: int, *, width: int, depth: int, heads: int, side: int, outputs: int
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs + 1, width)
        self.positions = SineCosinePositions(width, side)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.predict = nn.Linear(width, outputs)

    def forward(self, latent: Tensor, order: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, n, outputs) of n = h * w patches.

        Args:
            latent: (B, 1 + v, D), class token first, then the visible patches in `order`.
            order: (B, n) of `patch_order`.
            grid: (h, w).
        """
        B, seen, D = latent.shape
        hidden = F.pad(latent.new_zeros(B, order.shape[1] + 1 - seen, D), (0, 1), value=1.0)
        shuffled = torch.cat([F.pad(latent, (0, 1)), hidden], dim=1)
        patches = take(shuffled[:, 1:], order.argsort(dim=1))
        x = self.embed(torch.cat([shuffled[:, :1], patches], dim=1))
        placed = self.positions(x[:, 1:].unflatten(1, grid)).flatten(1, 2)
        x = torch.cat([x[:, :1], placed], dim=1)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.predict(self.norm(x))[:, 1:]
        return out
