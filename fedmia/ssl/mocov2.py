"""MoCo v2 (Chen et al., 2020): MLP head, blur, stronger colour, temperature 0.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedmia.settings.option import option
from fedmia.ssl.augment import Augment
from fedmia.ssl.moco import MoCo


@dataclass(frozen=True)
class MoCoV2(MoCo):
    """MoCo v2: MoCo with an MLP head, blur, jitter at p 0.8 and temperature 0.2."""

    paper: ClassVar[str] = "Chen et al., 2020, arXiv 2003.04297"

    temperature: float = option(0.2, "T of InfoNCE", gt=0)

    @property
    def augment(self) -> Augment:
        return self.recipe(jitter_p=0.8, hue=0.1, blur_p=0.5)

    def head(self, width: int) -> nn.Module:
        """Linear-ReLU-Linear, without batch norm, as in the public code."""
        return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.dim))
