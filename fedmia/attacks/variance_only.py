"""Variance-onlyMI: the features of an image trained on vary less as it is turned and shifted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedmia.attacks._partcrop import NetworkAttack
from fedmia.attacks._rotations import Rotations
from fedmia.settings.option import option
from fedmia.threat import OUTPUTS, BlackBox


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
