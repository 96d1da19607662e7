"""Baseline-D of EncoderMI: the feature vector taken for a classifier's confidence scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedmia.attacks._encodermi import NetworkFitted
from fedmia.attacks.base import Scores
from fedmia.errors import InputError
from fedmia.settings.option import option
from fedmia.threat import OUTPUTS, BlackBox


@dataclass
class BaselineD(NetworkFitted):
    """The plain image's feature vector, in a network fitted on shadow encoders.

    An encoder's features have no common order with another's, so this is near chance, as in the
    paper. Neither sorting nor the network's size is in the paper's text: the vector goes in as it
    is unless `rank`, into the network of EncoderMI-V.
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-D)"
    looks_at: ClassVar[tuple[str, ...]] = ("features",)

    layer: str = option("avgpool", "output that is read", choices=OUTPUTS)
    rank: bool = option(False, "sort each vector in descending order, as Baseline-A sorts scores")

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, D)."""
        features = view.embed_plain(images, self.layer).double()
        return features.sort(dim=1, descending=True).values if self.rank else features

    def decide(self, fitted: Any, inputs: Tensor) -> Scores:
        """As `NetworkFitted.decide`.

        Raises:
            InputError: the target's feature vector is not as long as the shadows'.
        """
        learned = fitted[1][0].in_features
        if inputs.shape[1] != learned:
            raise InputError(
                f"{self.name}: feature vectors of length {inputs.shape[1]} at '{self.layer}', "
                f"but the shadow encoders' have {learned}: it needs an architecture of that width"
            )
        return super().decide(fitted, inputs)
