"""SupervisedMI: the attack on a classifier's outputs, given an encoder's features instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedmia.attacks._network import NetworkAttack
from fedmia.settings import option
from fedmia.threat import OUTPUTS, BlackBox


@dataclass
class SupervisedMI(NetworkAttack):
    """The plain image's feature vector, as it is, in a small network; one query an image.

    Made for classifiers, whose outputs are confidences; on encoders the paper finds it at chance.
    """

    paper: ClassVar[str] = "Zhu et al., PartCrop, Sec. 5.3 and App. C (SupervisedMI)"
    looks_at: ClassVar[tuple[str, ...]] = ("features", "norm")

    layer: str = option("avgpool", "output of the encoder that is read", choices=OUTPUTS)

    def inputs(self, view: BlackBox, images: Tensor) -> list[Tensor]:
        return [view.embed_plain(images, self.layer).float()]
