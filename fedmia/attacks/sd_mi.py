"""SD-MI: how far an image's features lie from those of anchor images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmia.attacks._selector import (
    AnchorSelector,
    ScaledNetwork,
    TrainingRecipe,
    halving_factor,
    tanh_attacker,
)
from fedmia.attacks.base import Attack, Known, Scores
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.threat import OUTPUTS, BlackBox, Threat

MOST_ANCHORS = 2000  # of both papers
STEPS = 1000  # that suffice without a selector
CHUNK = 4096  # images whose distances to all anchors are held at once


@dataclass
class SDMI(Attack):
    """Similarity-distribution attack: a network on the distances to anchor images.

    The anchors are drawn from the known images, as many of each side as its share, and are not
    among those that the network is fitted on. The code of the paper draws them from the very
    images that it scores, so that some lie at distance 0 of themselves; here none does. With
    `selector` each image weighs the anchors by its own features (the paper's ASSD).

    One query an image; anchors are known images and are asked for once, in the fit. The default
    `steps` leave all 200 epochs for 850 known images. 4,000 of 512 features would take 4,800 steps,
    at 1.3 s a hundred on one core; 500 and 2,000 of them find a leak of norms equally well. The
    selector goes on learning: of a leak along one direction, 2,000 known images a side, it finds
    0.81 (AUC) after 1,000 steps and 0.89 after all. The report says where they were cut.
    """

    paper: ClassVar[str] = (
        "Gao et al., AAAI 2023 (person re-identification); as in Sun et al., LpLA, Eq. 10-11"
    )
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("features", "norm")
    by_round: ClassVar[bool] = False

    anchors: int = option(
        0,
        f"anchor images, set apart from the known ones (0: a quarter of them, at most "
        f"{MOST_ANCHORS})",
        ge=0,
    )
    distance: str = option(
        "squared",
        "Euclidean distance squared as in the paper's code, or plain as in LpLA's Eq. 10",
        choices=("squared", "euclidean"),
    )
    selector: bool = option(False, "weigh the anchors by the image's own features (ASSD)")
    recipe: str = option(
        "lpla",
        "training: lpla (batch 128, 200 epochs) or sdmia (full batch, 30,000 epochs or 5,000 "
        "with the selector)",
        choices=("lpla", "sdmia"),
    )
    steps: int | None = option(
        None,
        "most training steps, to which the recipe's epochs are cut (none: 1000, with the selector "
        "all of them; 0: all of them)",
        ge=0,
    )
    layer: str = option("avgpool", "output between which distances are taken", choices=OUTPUTS)

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Choose the anchors, and train on the distances of the other known images to them.

        Raises:
            InputError: fewer than 2 known images of a side are left beside the anchors.
        """
        images, truth = known.both()
        chosen = choose_anchors(truth, self.anchors, rng)
        vectors = view.embed_plain(images, self.layer)
        self._anchors = vectors[chosen]
        inputs = self._inputs(vectors[~chosen])
        network: nn.Module = tanh_attacker(len(self._anchors))
        if self.selector:
            network = AnchorSelector(len(self._anchors), vectors.shape[1], network)
        steps = (0 if self.selector else STEPS) if self.steps is None else self.steps
        self._model = ScaledNetwork(network, inputs, truth[~chosen], rng, self._recipe(), steps)

    @property
    def choices(self) -> dict[str, Any]:
        """How many of the recipe's epochs there were, where `steps` cut them."""
        return dict(self._model.cut)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        vectors = view.embed_plain(images, self.layer)
        return np.concatenate(
            [self._model.scores(self._inputs(part)) for part in vectors.split(CHUNK)]
        )

    def _inputs(self, vectors: Tensor) -> Tensor:
        """(N, A) distances to the anchors, and beside them the vectors where a selector reads."""
        rows = distances(vectors, self._anchors, self.distance)
        return torch.cat([rows, vectors.double()], dim=1) if self.selector else rows

    def _recipe(self) -> TrainingRecipe:
        if self.recipe == "lpla":
            return TrainingRecipe(200, 128)
        return TrainingRecipe(5_000 if self.selector else 30_000, None, halving_factor)


def distances(vectors: Tensor, anchors: Tensor, kind: str) -> Tensor:
    """float64 (N, A) Euclidean distances of (N, P) to (A, P), or their squares (`squared`)."""
    lengths = torch.cdist(vectors.double(), anchors.double(), compute_mode="use_mm_for_euclid_dist")
    return lengths.square() if kind == "squared" else lengths


def choose_anchors(
    truth: NDArray[np.int64], count: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """(N,) which known images are anchors: `count` of them (0: a quarter, at most MOST_ANCHORS),
    of each side its share.

    Args:
        truth: of the known images, `(N,)`, 1 = member.
        count: of both sides together.
        rng: of the choice within a side.

    Returns:
        True for an anchor.

    Raises:
        InputError: fewer than 2 of a side are left.
    """
    target = count or max(1, min(len(truth) // 4, MOST_ANCHORS))
    sides = [np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)]
    of_members = round(target * len(sides[0]) / max(1, len(truth)))
    takes = (of_members, target - of_members)
    if any(len(side) - take < 2 for side, take in zip(sides, takes, strict=True)):
        raise InputError(
            f"sd-mi: {len(sides[0])} known members and {len(sides[1])} known non-members leave "
            f"fewer than 2 of a side beside {target} anchors"
        )
    chosen = np.zeros(len(truth), dtype=bool)
    for side, take in zip(sides, takes, strict=True):
        chosen[rng.permutation(side)[:take]] = True
    return chosen
