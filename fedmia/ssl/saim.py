"""SAIM: stochastic autoregressive image modelling (Qi et al., AAAI 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.transformer import EPS, VisionTransformer, attend, feed_forward
from fedmia.settings import option
from fedmia.settings.errors import InputError, opt
from fedmia.ssl._patches import PatchSSL
from fedmia.ssl.mae import MaskedAutoencoder


class AutoregressiveModel(MaskedAutoencoder):
    """MAE's orders, bank and state around another decoder, `QueryDecoder`.

    The bank's rows are the encoder's outputs, which see all patches as an observer's do.
    """

    def reconstruction(self, view: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """Mean squared error of each patch as predicted from those before it in `order`.

        Args:
            view: (B, C, H, W) in [0, 1].
            order: (B, n) of `order`, the first patch first.

        Returns:
            the loss (B,), and the encoder's last tokens where all patches are seen (B, 1 + n, D).
        """
        vit, pixels = self._vit, self.encoder.normalise(view)
        decoder = cast(QueryDecoder, self.decoder)
        grid, path = vit.tokens(pixels), vit.path_factors(pixels)
        tokens, rank = grid.flatten(1, 2), order.argsort(dim=1)
        before = rank[:, :, None] > rank[:, None, :]  # of a patch, the others that it may see
        own = torch.eye(order.shape[1], dtype=torch.bool, device=view.device)
        # Every token sees the class token, which sees itself alone.
        content = F.pad(F.pad(before | own, (1, 0), value=True), (0, 0, 1, 0))
        content[:, 0, 0] = True
        # Queries are places alone; 0 * puts them on the way back from loss to views, where
        # per-image gradients are found.
        x = vit.positions(0 * grid).flatten(1, 2)
        blocks = iter(decoder.blocks)
        for place, tokens_now in enumerate(vit.after_blocks(tokens, path, content), 1):
            if place % decoder.step == 0:
                x = next(blocks)(x, tokens_now, F.pad(before, (1, 0), value=True))
        guess = decoder.predict(vit.norm(x))
        target = self.targets(smoothed(pixels, self.spec.smoothing))
        with torch.no_grad():
            latent = vit.encode(tokens, path)[-1]
        return (guess.float() - target).square().mean(dim=(1, 2)), latent


@dataclass(frozen=True)
class SAIM(PatchSSL):
    """SAIM: predicts each patch from those before it in a random order; needs a transformer.

    Of the paper: an order drawn for each image; an encoder whose tokens see themselves and what
    comes before (content mask); a decoder beside it, block for block, whose queries are positions
    alone and see what comes before (query mask); its norm, which is the encoder's last, and its
    prediction head of two layers; targets smoothed by a Gaussian, then normalised patch by patch.
    Simplified for a CPU: the decoder has 4 blocks, each of which reads the encoder after a quarter
    of its blocks (the paper's 12 read one each).

    In training the class token sees itself alone, so `--model.pool mean` gives outputs that rest
    on what was trained.
    """

    paper: ClassVar[str] = "Qi et al., AAAI 2023, arXiv 2212.01610"

    smoothing: float = option(
        1.0, "deviation in pixels of the Gaussian that smooths the target (0: none)", ge=0
    )
    decoder_depth: int = option(
        4, "blocks of the decoder, a divisor of the encoder's (12 in the paper)", ge=1
    )

    @property
    def parts(self) -> tuple[type[MaskedAutoencoder], type[nn.Module]]:
        return AutoregressiveModel, QueryDecoder


def smoothed(pixels: Tensor, sigma: float) -> Tensor:
    """Images under a Gaussian, cut off at 4 sigma, with zeros around them as in the public code.

    Args:
        pixels: normalised, (B, C, H, W).
        sigma: in pixels; 0 leaves the images as they are.

    Returns:
        of the same shape.
    """
    if sigma == 0:
        return pixels
    reach, C = round(4 * sigma), pixels.shape[1]
    tap = torch.arange(-reach, reach + 1, device=pixels.device)
    line = torch.softmax(-(tap**2) / (2 * sigma**2), dim=0).to(pixels.dtype)
    kernel = line.outer(line).expand(C, 1, -1, -1)
    out: Tensor = F.conv2d(pixels, kernel, padding=reach, groups=C)
    return out


class QueryBlock(nn.Module):
    """Attention from queries to the encoder's tokens, then an MLP.

    Args:
        width: length of the tokens.
        heads: attention heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=EPS), nn.LayerNorm(width, eps=EPS)
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = feed_forward(width)

    def forward(self, x: Tensor, content: Tensor, mask: Tensor) -> Tensor:
        """The next queries.

        Args:
            x: queries (B, n, D).
            content: the encoder's tokens (B, 1 + n, D), the class token first.
            mask: true where a query sees a token, (B, n, 1 + n).

        Returns:
            (B, n, D).
        """
        k, v = self.kv(self.norm1(content)).chunk(2, dim=2)
        x = x + self.proj(attend(self.q(self.norm1(x)), k, v, self.heads, mask))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class QueryDecoder(nn.Module):
    """Blocks that run beside the encoder's, and a head that predicts pixels.

    Args:
        vit: the encoder's backbone.
        spec: options of SAIM.

    Raises:
        InputError: a depth that does not divide the encoder's.
    """

    def __init__(self, vit: VisionTransformer, spec: SAIM) -> None:
        super().__init__()
        width, depth = vit.width, spec.decoder_depth
        if vit.depth % depth:
            raise InputError(
                f"{opt('ssl.decoder_depth')} must divide the encoder's depth ({vit.depth}), "
                f"got {depth}"
            )
        self.step = vit.depth // depth
        self.blocks = nn.ModuleList(QueryBlock(width, vit.heads) for _ in range(depth))
        self.predict = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, vit.embed.in_features)
        )
