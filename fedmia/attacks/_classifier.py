"""What attacks share whose known images train a small classifier."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from torch import Tensor

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.attacks.classifier import decide, fit_classifier


class ClassifierAttack(Attack):
    """An attack whose known images train a small classifier on some features (its option)."""

    classifier: str
    _model: Any = None

    @abstractmethod
    def inputs(self, view: Any, images: Tensor) -> Scores:
        """The features (N, F) of uint8 (N, C, H, W)."""

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        images, truth = known.both()
        self._model = fit_classifier(self.classifier, self.inputs(view, images), truth)

    def score(self, view: Any, images: Tensor) -> Scores:
        return decide(self._model, self.inputs(view, images))
