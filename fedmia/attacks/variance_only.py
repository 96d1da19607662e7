"""Variance-onlyMI: the features of an image trained on vary less as it is turned and shifted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._network import NetworkAttack
from fedmia.settings import Options, option
from fedmia.threat import OUTPUTS, BlackBox


@dataclass(frozen=True)
class Rotations(Options):
    """An image turned about its centre and shifted, black where nothing is left.

    Choquette-Choo et al. (ICML 2021, Sec. 3.3) turn by at most 15 degrees, and shift by whole
    pixels i, j with |i| + |j| = d; each is an attack of its own there. A view here is both.
    """

    degrees: float = option(15.0, "largest angle, to either side", ge=0, le=180)
    translate: int = option(1, "d, pixels of the shift, |i| + |j|", ge=0)

    @property
    def draws(self) -> int:
        """Uniforms that one view of one image consumes: the angle and the shift."""
        return 2

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """One view (B, C, H, W) of each of (B, C, H, W) in [0, 1], from (B, 2) in [0, 1)."""
        B, _, H, W = images.shape
        turn = (2 * uniforms[:, 0] - 1) * math.radians(self.degrees)
        cos, sin, (right, down) = torch.cos(turn), torch.sin(turn), self._shift(uniforms[:, 1])
        # `affine_grid` counts half sides: a pixel is 2 / side, and a turn must keep pixels square.
        # A row reads where an output pixel comes from: first shifted back, then turned back.
        x, y = 2 * right / W, 2 * down / H
        rows = [cos, sin * H / W, -cos * x - sin * H / W * y]
        rows += [-sin * W / H, cos, sin * W / H * x - cos * y]
        grid = F.affine_grid(torch.stack(rows, dim=1).view(B, 2, 3), [B, 1, H, W], False)
        return F.grid_sample(images, grid, padding_mode="zeros", align_corners=False)

    def _shift(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels to the right and down, (B,) each: one of the 4 d places with |i| + |j| = d."""
        d = self.translate
        at = (u * 4 * d).floor()
        side, along = at.div(max(d, 1), rounding_mode="floor"), at.remainder(max(d, 1))
        # From (d, 0) around: each quarter steps towards the next corner.
        i, j = d - along, along
        right = torch.where(side == 0, i, torch.where(side == 1, -j, torch.where(side == 2, -i, j)))
        down = torch.where(side == 0, j, torch.where(side == 1, i, torch.where(side == 2, -j, -i)))
        return right, down


@dataclass
class VarianceOnly(NetworkAttack):
    """Variance of each feature over turned and shifted views, in a small network.

    The paper takes the augmentations from label-only inference, and says neither how many views
    nor how far they go: here 16, of at most 15 degrees and one pixel. `views` queries an image.
    """

    paper: ClassVar[str] = "Zhu et al., PartCrop, Sec. 5.3 and App. C (Variance-onlyMI)"
    looks_at: ClassVar[tuple[str, ...]] = ("similarity", "norm")  # longer vectors vary more

    views: int = option(16, "turned and shifted views an image", ge=2)
    degrees: float = option(15.0, "largest angle, to either side", ge=0, le=180)
    translate: int = option(1, "pixels of the shift, |i| + |j|", ge=0)
    layer: str = option("avgpool", "output whose features are read", choices=OUTPUTS)

    def inputs(self, view: BlackBox, images: Tensor) -> list[Tensor]:
        recipe = Rotations(degrees=self.degrees, translate=self.translate)
        rows = view.embed_views(images, self.views, self.layer, recipe)
        return [rows.double().var(dim=1).float()]
