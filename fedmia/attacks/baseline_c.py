"""Baseline-C of EncoderMI: confidence scores of targeted adversarial examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor

from fedmia.attacks._adversarial import Adversarial, Downstream
from fedmia.attacks._baselines import DownstreamFitted, confidences
from fedmia.attacks.base import Known
from fedmia.errors import InputError
from fedmia.settings.option import option
from fedmia.threat import BlackBox, WhiteBox


@dataclass
class BaselineC(DownstreamFitted):
    """Confidence scores of adversarial examples towards each class, in a network on shadows.

    For each of the k classes of the downstream task, PGD finds an example on a shadow's downstream
    classifier; the k score vectors are put side by side. The attacker has gradients of its own
    encoders only: the target's images are disturbed on the first shadow. PGD's steps are not in
    the paper (here those of Madry et al., 2018: 7 of 2/255).
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-C)"

    epsilon: float = option(8 / 255, "largest change of a pixel in [0, 1]", gt=0, le=1)
    steps: int = option(7, "steps of PGD", ge=1)
    step: float = option(2 / 255, "change of a pixel in one step", gt=0, le=1)
    _crafts: tuple[Adversarial, ...] = field(default=(), init=False, repr=False)

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """As `DownstreamFitted.fit`.

        Raises:
            InputError: also where the shadows' weights are not at hand.
        """
        super().fit(view, known, rng)
        first = view.shadows[0].view
        self._crafts = self._deceive(first, self.classifier(first))

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, k^2): k vectors of k confidences; k queries an image."""
        model = self.classifier(view)
        return self._answers(model, self._deceive(view, model), view, images)

    def target_inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        return self._answers(self._target, self._crafts, view, images)

    def _deceive(self, view: BlackBox, model: Pipeline) -> tuple[Adversarial, ...]:
        """One recipe a class."""
        if not isinstance(view, WhiteBox):
            raise InputError(f"{self.name}: needs shadow encoders whose weights the attacker has")
        network = Downstream(view.copy_method().encoder, model, self.layer)
        how = (self.epsilon, self.steps, self.step, network)
        return tuple(Adversarial(network.digest(), t, *how) for t in range(network.classes))

    def _answers(
        self, model: Pipeline, crafts: tuple[Adversarial, ...], view: BlackBox, images: Tensor
    ) -> Tensor:
        rows = [view.embed_views(images, 1, self.layer, craft)[:, 0] for craft in crafts]
        return torch.cat([confidences(model, row) for row in rows], dim=1)
