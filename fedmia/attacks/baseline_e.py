"""Baseline-E of EncoderMI: an image's patches as words, the centre one against the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._baselines import Patch
from fedmia.attacks._encodermi import ThresholdFitted
from fedmia.errors import InputError
from fedmia.settings.option import option
from fedmia.threat import OUTPUTS, BlackBox


@dataclass
class BaselineE(ThresholdFitted):
    """Mean cosine of the centre patch and the others, less the shadows' best threshold.

    The paper divides the image evenly into 3x1, 3x3 (the best) or 3x5 patches. It does not say
    how the encoder takes them: here each is resized to the image's size, as a random crop is.
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-E)"
    looks_at: ClassVar[tuple[str, ...]] = ("patches",)

    rows: int = option(3, "patches from top to bottom, odd", ge=1)
    columns: int = option(3, "patches from left to right, odd", ge=1)
    layer: str = option(
        "encoder", "output that is compared: the projection, or pooled features", choices=OUTPUTS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows * self.columns < 3 or self.rows * self.columns % 2 == 0:
            raise InputError(
                "BaselineE.rows and columns must be odd, and more than 1 patch: "
                f"{self.rows}x{self.columns} has no centre patch with others"
            )

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, 1); rows x columns queries an image."""
        patches = [
            Patch(row, column, self.rows, self.columns)
            for row in range(self.rows)
            for column in range(self.columns)
        ]
        rows = [view.embed_views(images, 1, self.layer, patch)[:, 0] for patch in patches]
        centre = rows.pop(len(rows) // 2)
        cosines = F.cosine_similarity(centre.double(), torch.stack(rows).double(), dim=2)
        return cosines.mean(dim=0)[:, None]
