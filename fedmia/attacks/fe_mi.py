"""Fe-MI: the feature vector itself, read by a small network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedmia.attacks._selector import (
    ScaledNetwork,
    TrainingRecipe,
    halving_factor,
    relu_attacker,
    tanh_attacker,
)
from fedmia.attacks.base import Attack, Known, Scores
from fedmia.settings import option
from fedmia.threat import OUTPUTS, BlackBox, Threat

RECIPES = {
    "lpla": (relu_attacker, TrainingRecipe(500, 128)),
    "sdmia": (tanh_attacker, TrainingRecipe(10_000, None, halving_factor)),
}


@dataclass
class FeMI(Attack):
    """Feature-based attack: a network on the image's min-max scaled feature vector.

    One query an image. Of all attacks it needs the most known images: each feature has a weight
    of its own. The default `steps` leave all 500 epochs for 512 known images; 4,000 of 512 features
    take 5 s on one core with them and 40 s without, and find a leak of norms equally well; a leak
    that is no sum over features may need all epochs. The report says where they were cut.
    """

    paper: ClassVar[str] = (
        "Gao et al., AAAI 2023 (person re-identification); as in Sun et al., LpLA, Table 1"
    )
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("features", "norm")
    by_round: ClassVar[bool] = False
    least_known: ClassVar[int] = 2

    recipe: str = option(
        "lpla",
        "network and training: lpla (3 linear layers, ReLU, batch 128, 500 epochs) or sdmia "
        "(5 linear layers, Tanh, full batch, 10,000 epochs)",
        choices=tuple(RECIPES),
    )
    steps: int = option(
        2000, "most training steps; the recipe's epochs are cut to them (0: all of them)", ge=0
    )
    layer: str = option("avgpool", "output that is read", choices=OUTPUTS)

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        images, truth = known.both()
        features = view.embed_plain(images, self.layer)
        network, recipe = RECIPES[self.recipe]
        self._model = ScaledNetwork(
            network(features.shape[1]), features, truth, rng, recipe, self.steps
        )

    @property
    def choices(self) -> dict[str, Any]:
        """How many of the recipe's epochs there were, where `steps` cut them."""
        return dict(self._model.cut)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        return np.asarray(self._model.scores(view.embed_plain(images, self.layer)))
