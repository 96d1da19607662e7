"""Baseline-B of EncoderMI: which views of an image a downstream classifier gets right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._downstream import downstream_classifier, labelled_images
from fedmia.attacks._fitted import LEAST, NetworkFitted
from fedmia.attacks._reference import sort_by_content
from fedmia.attacks.base import Known, refuse_few, refuse_other_size
from fedmia.data.classes import ClassNames
from fedmia.data.images import digests
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.threat import OUTPUTS, BlackBox, Shadow

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

FILE_IMAGES = 10_000  # of the downstream task, the paper's number


@dataclass
class BaselineB(NetworkFitted):
    """Whether a downstream classifier is right on the image and on each view, in a network.

    The label-only attack of Choquette-Choo et al. (ICML 2021). It needs the true classes of all
    images, those under attack too, and a downstream task of the same classes: part of the first
    shadow's non-members, or a file. The shadows' own classifiers learn from part of their
    non-members, which is then not fitted on. What the classifier is and the size of the network
    are not in the paper: as in Baseline-A.
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-B)"
    looks_at: ClassVar[tuple[str, ...]] = ("features", "similarity")  # views that agree

    views: int = option(10, "e, augmented views an image", ge=1)
    share: float = option(
        0.5, "of a shadow's non-members, what the downstream classifier learns from", gt=0, lt=1
    )
    downstream_file: str | None = option(
        None, "NumPy archive of images x and labels y of the same classes, as the downstream task"
    )
    layer: str = option(
        "avgpool", "output that the downstream classifier is trained on", choices=OUTPUTS
    )

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Fit on what the shadows' classifiers get right, then train the target's; one query an
        image of the task.

        Raises:
            InputError: as in `ShadowFitted.fit`, images without labels, a task of one class, or a
                file that cannot be read, shadows of images of another size.
        """
        refuse_other_size(self.name, view, known)
        self._filed = None if self.downstream_file is None else self._file_task(view)
        super().fit(view, known, rng)
        self._target = self._classifier(view, *self._task(view, view.shadows[0]))

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """(N, 1 + e) of ones and zeros under the target's classifier; 1 + e queries an image."""
        return self._mark_correct(self._target, view, images)

    def _examples(self, view: BlackBox, known: Known) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
        """Of each shadow as many members as non-members, none of them in its classifier's task."""
        for shadow in view.shadows:
            model = self._classifier(shadow.view, *self._task(view, shadow))
            others = self._split_shadows(shadow)[1]
            members = sort_by_content(shadow.members)[: len(others)]
            pool = Known(members, others[: len(members)])
            refuse_few(self.name, LEAST, len(pool.members), len(pool.nonmembers))
            images, truth = pool.both()
            yield self._mark_correct(model, shadow.view, images), truth

    def _split_shadows(self, shadow: Shadow) -> tuple[Tensor, Tensor]:
        """The non-members that the classifier learns from, and the rest; by content."""
        if self.downstream_file is not None:
            return shadow.nonmembers[:0], shadow.nonmembers
        ordered = sort_by_content(shadow.nonmembers)
        cut = round(self.share * len(ordered))
        return ordered[:cut], ordered[cut:]

    def _task(self, view: BlackBox, shadow: Shadow) -> tuple[Tensor, ClassNames]:
        """Images and classes that the shadow's classifier, or the target's, learns from."""
        if self._filed is None:
            images = self._split_shadows(shadow)[0]
            classes = shadow.view.labels(images)
        else:
            images, classes = self._filed
        if len(np.unique(classes)) < 2:
            raise InputError(
                f"{self.name}: a downstream task of {len(images)} images and "
                f"{len(np.unique(classes))} classes, needs at least 2 classes"
            )
        return images, classes

    def _file_task(self, view: BlackBox) -> tuple[Tensor, ClassNames]:
        """The file's images and classes, without those that a shadow was or was not trained on."""
        shape = tuple(view.shadows[0].members.shape[1:])
        images, classes = labelled_images(
            "file", self.downstream_file, FILE_IMAGES, shape, view.seed
        )
        pools = [x for s in view.shadows for x in (s.members, s.nonmembers)]
        met = {name for pool in pools for name in digests(pool.numpy())}
        apart = np.array([name not in met for name in digests(images.numpy())])
        return images[torch.from_numpy(apart)], classes[apart]

    def _classifier(self, view: BlackBox, images: Tensor, classes: ClassNames) -> Pipeline:
        return downstream_classifier(view.embed_plain(images, self.layer), classes)

    def _mark_correct(self, model: Pipeline, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, 1 + e): whether the model is right on the image, then on each view."""
        truth = view.labels(images)
        plain = view.embed_plain(images, self.layer)[:, None]
        rows = torch.cat([plain, view.embed_views(images, self.views, self.layer)], dim=1)
        predictions = model.predict(rows.flatten(0, 1).double().numpy()).reshape(rows.shape[:2])
        return torch.from_numpy((predictions == truth[:, None]).astype(np.float64))
