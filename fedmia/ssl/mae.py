"""MAE: a masked autoencoder (He et al., CVPR 2022) for small images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.keyed import keyed_uniforms
from fedmia.nets.transformer import (
    EPS,
    Block,
    SineCosinePositions,
    VisionTransformer,
    check_width,
    patchify,
)
from fedmia.seeding import draw_seed
from fedmia.settings import option
from fedmia.ssl._patches import PatchSSL, vision_transformer
from fedmia.ssl._twoview import TwoView
from fedmia.ssl.bank import Bank
from fedmia.ssl.base import Encoder


class MaskedAutoencoder(TwoView):
    """A vision transformer on the visible patches, a decoder, and a bank for observers.

    Which patches are masked depends on the view's content, on how many steps the client has made
    and on a seed drawn when built: an image's loss is its own, in whatever batch it comes.

    MAE has no loss of encoder outputs: `output_losses` asks, as for MoCo, whether the encoder takes
    two views of an image for one image. The bank's rows are the pooled vectors of the visible
    patches that were trained on; no gradient depends on them.

    Args:
        encoder: its backbone is a vision transformer.
        decoder: predicts the pixels of masked patches.
        spec: the options.
        K: length of the bank.
        generator: the stream of the bank and of the masks' seed.
    """

    LOCAL: ClassVar[Mapping[str, str]] = {"steps": "steps", "key.seed": "seed"}

    def __init__(
        self, encoder: Encoder, decoder: nn.Module, spec: Any, K: int, generator: torch.Generator
    ) -> None:
        super().__init__(encoder, spec, bank=Bank.random(K, encoder.backbone.width, generator))
        self.decoder = decoder
        self.seed = draw_seed(generator)
        self.steps = 0

    @property
    def remembers(self) -> str:
        return ""

    @property
    def _vit(self) -> VisionTransformer:
        return vision_transformer(self.encoder.backbone, self.spec)

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Reconstruction loss of `view1` (B,); `view2` is not looked at, as MAE takes one view."""
        order = self.order(view1, self.seed + self.steps)
        loss, latent = self.reconstruction(view1, order)
        self.remember(self._vit.pooled(latent))
        return loss

    def order(self, view: Tensor, key: int) -> Tensor:
        """A random order of the patches of each image, the visible ones first.

        Keyed by the view's content and `key`. Patches of one `mask_unit` stay together.

        Args:
            view: (B, C, H, W) in [0, 1].
            key: tells the orders of one view apart.

        Returns:
            indices of patches, (B, n).
        """
        h, w = view.shape[2] // self._vit.patch, view.shape[3] // self._vit.patch
        side = self.spec.mask_unit
        units = (-(-h // side), -(-w // side))
        uniforms = keyed_uniforms(view, key, units[0] * units[1]).unflatten(1, units)
        patches = uniforms.repeat_interleave(side, dim=1).repeat_interleave(side, dim=2)
        return patches[:, :h, :w].flatten(1).argsort(dim=1, stable=True)

    def reconstruction(self, view: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """Mean squared error over the masked patches' pixels, and the visible patches' tokens.

        Args:
            view: (B, C, H, W) in [0, 1].
            order: (B, n) of `order`.

        Returns:
            the loss (B,), and the encoder's last tokens (B, 1 + visible, D), the class token first.
        """
        vit, pixels = self._vit, self.encoder.normalise(view)
        tokens = vit.tokens(pixels)
        grid = (tokens.shape[1], tokens.shape[2])
        visible = visible_count(order.shape[1], self.spec.mask)
        visible_tokens = take(tokens.flatten(1, 2), order[:, :visible])
        latent = vit.encode(visible_tokens, vit.path_factors(pixels))[-1]
        guess = self.decoder(latent, order, grid)
        masked = order[:, visible:]
        error = take(guess, masked).float() - take(self.targets(pixels), masked)
        return error.square().mean(dim=(1, 2)), latent

    def targets(self, pixels: Tensor) -> Tensor:
        """The values of every patch that are to be predicted, (B, n, outputs), of normalised images
        (B, C, H, W): each patch normalised by itself where the options say so."""
        values = patchify(pixels, self._vit.patch).flatten(1, 2)
        if not self.spec.norm_pix:
            return values
        mean = values.mean(dim=-1, keepdim=True)
        variance = values.var(dim=-1, keepdim=True)
        return (values - mean) / (variance + 1e-6).sqrt()

    def after_step(self) -> None:
        """The next step masks anew; the batch's pooled vectors go into the bank."""
        super().after_step()
        self.steps += 1

    def renew(self, images: int | None, generator: torch.Generator) -> bool:
        super().renew(images, generator)
        self.seed, self.steps = draw_seed(generator), 0
        return True

    def shared_modules(self) -> Mapping[str, nn.Module]:
        """The encoder and the decoder: all that trains is averaged."""
        return {"": self.encoder, "decoder.": self.decoder}


@dataclass(frozen=True)
class MAE(PatchSSL):
    """MAE: reconstructs masked patches; needs a vision transformer (`--model vit-tiny`).

    The encoder has no head: its output is the backbone's pooled vector. Views are cropped and
    flipped only. The decoder is small, for a CPU (the paper's: 8 blocks of width 512, 16 heads).
    MAE of long sequences (Hu et al., 2022, arXiv 2210.07224) is `mask_unit` 2 with patches of half
    the side, or images of twice the side: what is masked stays as large, the sequence is 4 times
    as long.
    """

    paper: ClassVar[str] = "He et al., CVPR 2022, arXiv 2111.06377"

    mask: float = option(0.75, "share of the patches that are masked", gt=0, lt=1)
    decoder_width: int = option(
        128, "length of the decoder's tokens, a multiple of 4 and of its heads", ge=4
    )
    decoder_depth: int = option(4, "blocks of the decoder", ge=1)
    decoder_heads: int = option(4, "attention heads of the decoder", ge=1)
    mask_unit: int = option(
        1, "side in patches of the squares that are masked whole (2 for long sequences)", ge=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_width(self, self.decoder_width, self.decoder_heads, "decoder_")

    @property
    def parts(self) -> tuple[type[MaskedAutoencoder], type[nn.Module]]:
        return MaskedAutoencoder, Decoder


def visible_count(patches: int, mask: float) -> int:
    """Of `patches` >= 2, how many stay visible where the share `mask` is masked: as the public code
    rounds, but at least 1 seen and 1 masked."""
    return min(max(int(patches * (1 - mask)), 1), patches - 1)


def take(tokens: Tensor, indices: Tensor) -> Tensor:
    """(B, k, D): the tokens of (B, n, D) at `indices` (B, k)."""
    return tokens.gather(1, indices[:, :, None].expand(-1, -1, tokens.shape[2]))


class Decoder(nn.Module):
    """Predicts every patch's pixels from the visible patches' tokens.

    The mask token is a column of `embed`: a masked patch comes in as zeros and a 1, a visible one
    as its token and a 0. So the layer is one that Opacus knows.

    Args:
        vit: the encoder's backbone, of tokens of length D.
        spec: options of MAE that give width, depth and heads.
    """

    def __init__(self, vit: VisionTransformer, spec: MAE) -> None:
        super().__init__()
        width, blocks = spec.decoder_width, range(spec.decoder_depth)
        self.embed = nn.Linear(vit.width + 1, width)
        self.positions = SineCosinePositions(width, vit.side)
        self.blocks = nn.ModuleList(Block(width, spec.decoder_heads) for _ in blocks)
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.predict = nn.Linear(width, vit.embed.in_features)

    def forward(self, latent: Tensor, order: Tensor, grid: tuple[int, int]) -> Tensor:
        """Predicted values of all patches.

        Args:
            latent: (B, 1 + v, D), class token first, then the visible patches in `order`.
            order: (B, n) of `MaskedAutoencoder.order`.
            grid: (h, w), n = h * w.

        Returns:
            (B, n, outputs).
        """
        B, visible, D = latent.shape
        hidden = F.pad(latent.new_zeros(B, order.shape[1] + 1 - visible, D), (0, 1), value=1.0)
        shuffled = torch.cat([F.pad(latent, (0, 1)), hidden], dim=1)
        patches = take(shuffled[:, 1:], order.argsort(dim=1))
        x = self.embed(torch.cat([shuffled[:, :1], patches], dim=1))
        placed = self.positions(x[:, 1:].unflatten(1, grid)).flatten(1, 2)
        x = torch.cat([x[:, :1], placed], dim=1)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.predict(self.norm(x))[:, 1:]
        return out
