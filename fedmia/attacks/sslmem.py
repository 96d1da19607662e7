"""SSLMem: how much closer an encoder brings an image's views than encoders without the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._cosine import pairwise
from fedmia.attacks._reference import sort_by_content
from fedmia.attacks.base import Attack, Known, Scores, refuse_other_size
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.threat import OUTPUTS, BlackBox, Threat

LEAST = 1e-12  # mean distance; below it an encoder gives one vector for everything


@dataclass
class SSLMem(Attack):
    """Memorisation score: how much closer an image's views lie than under encoders without it.

    The alignment loss of an image is the mean Euclidean distance of its views' representations. The
    score is its mean over encoders g that were not trained on the image, less that of the target f.
    The paper trains g on f's data without the image; an attacker has shadow encoders, trained like
    f on other images. Encoders differ in the scale of their representations, so each one's
    distances are divided by their mean over a holdout: the known non-members that it was not
    trained on. The paper measures memorisation and calls it no attack.
    """

    paper: ClassVar[str] = "Wang et al., SSLMem, ICLR 2024, arXiv 2401.12233, Sec. 3"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    uses_shadows: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("similarity", "norm")  # longer vectors lie farther apart
    least_known: ClassVar[int] = 1

    views: int = option(10, "augmented views an image", ge=2)
    layer: str = option(
        "avgpool", "representation that is compared: pooled features, or the projection",
        choices=OUTPUTS,
    )  # fmt: skip
    length: str = option(
        "own",
        "of a representation: its own, as in the paper, or unit, which leaves the angles alone",
        choices=("own", "unit"),
    )

    @property
    def learns_from_members(self) -> bool:
        return False

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Measure the holdout under every encoder.

        Raises:
            InputError: no shadows, of images of another size, or one that was trained on the whole
                holdout.
        """
        refuse_other_size(self.name, view, known)
        holdout = sort_by_content(known.nonmembers)
        self._typical = self._mean_alignment(view, holdout)
        self._typical_references = list[float]()
        for shadow in view.shadows:
            fresh = ~shadow.trained_on(holdout)
            if not fresh.any():
                raise InputError(
                    f"{self.name} needs known non-members that no shadow encoder was trained on; "
                    f"one was trained on all {len(holdout)}"
                )
            mean = self._mean_alignment(shadow.view, holdout[fresh])
            self._typical_references.append(mean)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        """How much closer (N,) an image's views lie under the target than under shadows that were
        not trained on it, each distance divided by its encoder's mean over the holdout.

        Raises:
            InputError: every shadow encoder was trained on one of the images.
        """
        own = self.alignment(view, images) / self._typical
        outside = np.stack([~shadow.trained_on(images) for shadow in view.shadows])
        count = outside.sum(axis=0)
        if (count == 0).any():
            raise InputError(
                f"{self.name} needs for each image a shadow encoder not trained on it; "
                f"{int((count == 0).sum())} of {len(images)} images have none among {len(outside)}"
            )
        references = np.stack(
            [
                self.alignment(shadow.view, images) / typical
                for shadow, typical in zip(view.shadows, self._typical_references, strict=True)
            ]
        )
        return np.asarray((references * outside).sum(axis=0) / count - own)

    def alignment(self, view: BlackBox, images: Tensor) -> Scores:
        """Mean Euclidean distance of all pairs of an image's views.

        Args:
            view: of the target or of a shadow.
            images: uint8 (N, C, H, W).

        Returns:
            float64 (N,), at least 0; small where the encoder knows that the views are one image.
        """
        rows = view.embed_views(images, self.views, self.layer)
        if self.length == "unit":
            rows = F.normalize(rows.double(), dim=2)
        return np.asarray(-pairwise(rows, "euclidean").mean(dim=1).numpy())

    def _mean_alignment(self, view: BlackBox, images: Tensor) -> float:
        return max(float(self.alignment(view, images).mean()), LEAST)
