"""Baseline-A of EncoderMI: confidence scores of a downstream classifier on the encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sklearn.pipeline import Pipeline
from torch import Tensor

from fedmia.attacks._baselines import DownstreamFitted, confidences
from fedmia.threat import BlackBox


@dataclass
class BaselineA(DownstreamFitted):
    """Sorted confidence scores of a downstream classifier, in a network fitted on shadows.

    One downstream task, with labels of its own images only, is learned on the features of each
    shadow encoder and of the target.
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-A)"

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, k) of k classes, each row in descending order."""
        return self._sorted(self.classifier(view), view, images)

    def target_inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        return self._sorted(self._target, view, images)

    def _sorted(self, model: Pipeline, view: BlackBox, images: Tensor) -> Tensor:
        found = confidences(model, view.embed_plain(images, self.layer))
        return found.sort(dim=1, descending=True).values
