"""What EncoderMI's baselines read of a downstream task with labels."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks._fitted import NetworkFitted
from fedmia.attacks.base import Known, Scores, refuse_other_size
from fedmia.attacks.classifier import build_classifier
from fedmia.data.base import Request
from fedmia.data.classes import ClassNames
from fedmia.data.digits import Digits
from fedmia.data.npz import Npz
from fedmia.data.synthetic import Synthetic
from fedmia.seeding import rng as stream
from fedmia.seeding import seed_words
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.threat import OUTPUTS, BlackBox

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

TASKS = ("synthetic", "digits")


def labelled_images(
    task: str, file: str | None, count: int, shape: tuple[int, ...], seed: int
) -> tuple[Tensor, ClassNames]:
    """At most `count` images of a downstream task, of the shape that the encoder takes.

    Args:
        task: `synthetic`, textures of ten classes drawn on the spot, which are in no data set;
            or `digits`, scikit-learn's.
        file: a NumPy archive of images `x` and labels `y`, in place of `task`.
        shape: (C, H, W); grey images are repeated over three channels, colours become their luma.
        seed: of the choice of images.

    Returns:
        uint8 (N, C, H, W) and the names of their classes (N,).

    Raises:
        InputError: a file that cannot be read, or a task of a single class.
    """
    channels, size, _ = shape
    # A stream of its own: not the textures that a run with this seed trains on.
    request = Request(file, None, size, seed_words(seed, "downstream")[0])
    if file is not None:
        dataset = Npz().load(request)
    elif task == "digits":
        dataset = Digits().load(request)
    else:
        dataset = Synthetic(images=count, pixels=max(size, 4)).load(request)
    subset = dataset.take(stream(seed, "downstream").permutation(len(dataset))[:count])
    if len(np.unique(subset.labels)) < 2:
        raise InputError(f"downstream task {file or task}: {len(subset)} images of a single class")
    images = torch.from_numpy(subset.images)
    if images.shape[1] != channels:
        grey = channels != 3
        from torchvision.transforms.v2.functional import rgb_to_grayscale

        images = rgb_to_grayscale(images) if grey else images.expand(-1, 3, -1, -1).contiguous()
    return images, subset.class_labels()


def downstream_classifier(features: Tensor, labels: ClassNames) -> Pipeline:
    """Multinomial logistic regression on features (N, D), standardised on them."""
    return build_classifier("lr").fit(features.double().numpy(), labels)


def confidences(model: Pipeline, features: Tensor) -> Tensor:
    """float64 (N, k) confidence scores of features (N, D)."""
    probabilities: Any = model.predict_proba(features.double().numpy())
    return torch.from_numpy(probabilities)


@dataclass
class DownstreamFitted(NetworkFitted):
    """Reads a downstream classifier: one trained on each shadow's features, one on the target's.

    The task's images have labels; those that are scored need none. The paper's task is 10,000
    images of CIFAR-10, apart from what was trained on; the default here is textures drawn on the
    spot. It does not say what the downstream classifier is (here multinomial logistic
    regression), nor the size of the network on its scores (here that of EncoderMI-V).
    """

    looks_at: ClassVar[tuple[str, ...]] = ("features",)

    downstream: str = option(
        "synthetic", "labelled images of the downstream task", choices=TASKS,
        needs=("downstream_file", None),
    )  # fmt: skip
    downstream_file: str | None = option(
        None, "NumPy archive of images x and labels y, as the downstream task (none: `downstream`)"
    )
    downstream_images: int = option(1000, "images of the downstream task, queried once each", ge=10)
    layer: str = option(
        "avgpool", "output that the downstream classifier is trained on", choices=OUTPUTS
    )

    @abstractmethod
    def answers(self, model: Pipeline, view: BlackBox, images: Tensor) -> Tensor:
        """`inputs` by a downstream classifier that is trained already."""

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        return self.answers(self.classifier(view), view, images)

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Fit on the shadows' classifiers, then train the target's; one query an image of the task.

        Raises:
            InputError: as in `ShadowFitted.fit`, a downstream task that cannot be read, or shadows
                of images of another size.
        """
        refuse_other_size(self.name, view, known)
        shape = tuple(view.shadows[0].members.shape[1:])
        self._task = labelled_images(
            self.downstream, self.downstream_file, self.downstream_images, shape, view.seed
        )
        super().fit(view, known, rng)
        self._target = self.classifier(view)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        return self.decide(self._fitted, self.answers(self._target, view, images))

    def classifier(self, view: BlackBox) -> Pipeline:
        """The downstream classifier on the features of the view's encoder."""
        images, labels = self._task
        return downstream_classifier(view.embed_plain(images, self.layer), labels)
