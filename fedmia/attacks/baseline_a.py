"""Baseline-A of EncoderMI: confidence scores of a downstream classifier on the encoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmia.attacks._baselines import TASKS, confidences, downstream_classifier, labelled_images
from fedmia.attacks._encodermi import NetworkFitted
from fedmia.attacks._mlp import mlp
from fedmia.attacks.base import Known, NotFitted, Scores
from fedmia.options import option
from fedmia.threat import OUTPUTS, BlackBox


@dataclass
class BaselineA(NetworkFitted):
    """Sorted confidence scores of a downstream classifier, in a network fitted on shadows.

    One downstream task, with the labels of its own images only, is learned on the features of
    each shadow encoder and of the target. The paper's task is 10,000 images of CIFAR-10, apart
    from what was trained on; the default here is textures drawn on the spot, which are in nobody's
    training data. The paper does not say what the downstream classifier is (here multinomial
    logistic regression), nor the size of the network (here that of EncoderMI-V).
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-A)"
    looks_at: ClassVar[tuple[str, ...]] = ("features",)

    downstream: str = option("synthetic", "labelled images of the downstream task", choices=TASKS)
    downstream_file: str | None = option(
        None, "NumPy archive of images x and labels y, as the downstream task (none: `downstream`)"
    )
    downstream_images: int = option(1000, "images of the downstream task, queried once each", ge=10)
    layer: str = option(
        "avgpool", "output that the downstream classifier is trained on", choices=OUTPUTS
    )
    _task: tuple[Tensor, NDArray[np.int64]] | None = field(default=None, init=False, repr=False)
    _target: Any = field(default=None, init=False, repr=False)

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Fit on the shadows' classifiers, then train the target's; one query an image of the task.

        Raises:
            InputError: as in `ShadowFitted.fit`, or an unknown or unreadable downstream task.
        """
        self._target = None
        shape = tuple(view.shadows[0].members.shape[1:])
        self._task = labelled_images(
            self.downstream, self.downstream_file, self.downstream_images, shape, view.seed
        )
        super().fit(view, known, rng)
        self._target = self._classifier(view)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        if self._target is None:
            raise NotFitted(f"{self.name}: call fit before score")
        return self.decide(
            self._fitted, confidences(self._target, view.embed_plain(images, self.layer))
        )

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, k) sorted confidences of a classifier trained on the view's features."""
        return confidences(self._classifier(view), view.embed_plain(images, self.layer))

    def network(self, width: int) -> nn.Module:
        return mlp((width, 256, 256))

    def _classifier(self, view: BlackBox) -> Any:
        assert self._task is not None
        images, labels = self._task
        return downstream_classifier(view.embed_plain(images, self.layer), labels)
