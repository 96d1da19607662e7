"""CAE: a context autoencoder (Chen et al., IJCV 2023) that predicts latents, then pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from fedmia.nets.transformer import (
    EPS,
    Block,
    ClassToken,
    SineCosinePositions,
    VisionTransformer,
    attend,
    feed_forward,
)
from fedmia.settings import option
from fedmia.ssl.mae import MAE, MaskedAutoencoder, take, visible_count


class ContextAutoencoder(MaskedAutoencoder):
    """MAE's masks, bank and state around another decoder, `ContextDecoder`."""

    def reconstruction(self, view: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """Mean squared error of the masked patches' pixels plus lambda times that of their latents.

        Args:
            view: (B, C, H, W) in [0, 1].
            order: (B, n) of `order`.

        Returns:
            the loss (B,), and the encoder's last tokens (B, 1 + visible, D).
        """
        vit, pixels = self._vit, self.encoder.normalise(view)
        decoder = cast(ContextDecoder, self.decoder)
        grid = vit.tokens(pixels)
        tokens, count = grid.flatten(1, 2), visible_count(order.shape[1], self.spec.mask)
        visible, masked = order[:, :count], order[:, count:]
        latent = vit.encode(take(tokens, visible), vit.path_factors(pixels))[-1]
        with torch.no_grad():
            aligned = decoder.project(vit.encode(take(tokens, masked))[-1][:, 1:])
        places = decoder.places(order, (grid.shape[1], grid.shape[2]))
        predicted, guess = decoder(latent[:, 1:], places)
        target = take(self.targets(pixels), masked)
        error = (guess.float() - target).square().mean(dim=(1, 2))
        apart = (predicted.float() - aligned.float()).square().mean(dim=(1, 2))
        return error + self.spec.alignment * apart, latent


@dataclass(frozen=True)
class CAE(MAE):
    """CAE: predicts the latents of masked patches, then their pixels; needs a vision transformer.

    The paper's targets are tokens of DALL-E's tokenizer, a network to download; here they are the
    masked patches' pixels, as MAE's. The paper masks blocks, here patches are masked at random. The
    encoder has no layer scale. The loss adds up as in the paper: target + lambda * alignment.

    Attributes:
        decoder_width: where it is not the encoder's, latents are projected and normalised first.
    """

    paper: ClassVar[str] = "Chen et al., IJCV 2023, arXiv 2202.03026"

    mask: float = option(0.5, "share of the patches that are masked", gt=0, lt=1)
    regressor_depth: int = option(4, "cross-attention blocks that predict latents", ge=1)
    alignment: float = option(2.0, "lambda, weight of the alignment of latents", ge=0)

    @property
    def parts(self) -> tuple[type[MaskedAutoencoder], type[nn.Module]]:
        return ContextAutoencoder, ContextDecoder


class CrossBlock(nn.Module):
    """Attention from masked to visible and masked patches, then an MLP; the public code's
    `RegresserBlock` without layer scale.

    Args:
        width: length of the tokens.
        heads: attention heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_q, self.norm_k, self.norm_v, self.norm2 = (
            nn.LayerNorm(width, eps=EPS) for _ in range(4)
        )
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.mlp = feed_forward(width)

    def forward(self, x: Tensor, visible: Tensor, places: Tensor) -> Tensor:
        """The masked patches' next tokens.

        Args:
            x: (B, m, width), masked patches.
            visible: (B, v, width).
            places: (B, v + m, width), positions of the visible, then of the masked patches.

        Returns:
            (B, m, width).
        """
        both = torch.cat([visible, x], dim=1)
        q = self.q(self.norm_q(x + places[:, visible.shape[1] :]))
        k, v = self.k(self.norm_k(both + places)), self.v(self.norm_v(both))
        x = x + self.proj(attend(q, k, v, self.heads))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class ContextDecoder(nn.Module):
    """Latent contextual regressor, and a decoder of the masked patches alone.

    Args:
        vit: the encoder's backbone.
        spec: options of CAE.
    """

    def __init__(self, vit: VisionTransformer, spec: CAE) -> None:
        super().__init__()
        width, heads = spec.decoder_width, spec.decoder_heads
        same = width == vit.width
        layers = () if same else (nn.Linear(vit.width, width), nn.LayerNorm(width, eps=EPS))
        self.project = nn.Sequential(*layers)
        # The mask token is a layer that Opacus knows, and on its way back from loss to views.
        self.token = ClassToken(width)
        self.positions = SineCosinePositions(width, vit.side)
        self.regressor = nn.ModuleList(
            CrossBlock(width, heads) for _ in range(spec.regressor_depth)
        )
        self.regressor_norm = nn.LayerNorm(width, eps=EPS)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(spec.decoder_depth))
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.predict = nn.Linear(width, vit.embed.in_features)

    def places(self, order: Tensor, grid: tuple[int, int]) -> Tensor:
        """Positions of patches, as the decoder's attention adds them.

        Args:
            order: indices of patches (B, n), 0 to h * w - 1.
            grid: patches of the image in height and width (h, w).

        Returns:
            fixed sine-cosine positions (B, n, width).
        """
        blank = self.positions.weight.new_zeros(len(order), *grid, self.token.weight.shape[2])
        return take(self.positions(blank).flatten(1, 2), order)

    def forward(self, latent: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted latents (B, m, width) and values (B, m, outputs) of the masked patches.

        Args:
            latent: (B, v, D) of the visible patches, without the class token.
            places: (B, v + m, width) of `places`.

        Returns:
            latents and values.
        """
        visible, count = self.project(latent), latent.shape[1]
        masked = places[:, count:]
        x = self.token(visible)[:, :1].expand(-1, masked.shape[1], -1)
        for block in self.regressor:
            x = block(x, visible, places)
        predicted = self.regressor_norm(x)
        x = predicted + masked
        for block in self.blocks:
            x = block(x)
        return predicted, self.predict(self.norm(x))
