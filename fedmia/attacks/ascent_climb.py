"""Static ascent as its paper has it: many steps up the loss of the images under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._reference import distinct
from fedmia.attacks.ascent_static import RATES, AscentStatic
from fedmia.attacks.base import Attack, Known, Scores, negatives_option
from fedmia.data.images import digests
from fedmia.settings import option
from fedmia.threat import Threat, WhiteBox

STEPS = 10  # of each climb that `auto` tries: the local rounds of the paper (Sec. V-A2)


@dataclass
class AscentClimb(Attack):
    """Many steps of gradient ascent on the released model, and how far the loss rises in them.

    The climb of the paper, which states its rate (.1, to be adapted) and not its steps: `auto`
    climbs the known images at each of RATES and takes the rate and the number of steps, at least
    two, at which the rise tells them apart best. One step at a low rate is `ascent-static`, a
    statistic of the gradient; so the loss before the climb and `grad-norm` are its controls.
    """

    paper: ClassVar[str] = (
        "Chen et al., Federated Contrastive Learning, Sec. IV-C, V-A2, V-B4, Fig. 10-12"
    )
    needs: ClassVar[Threat] = Threat("white_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("ascent",)
    act: ClassVar[str] = "ascent"
    without: ClassVar[Mapping[str, str]] = AscentStatic.without
    by_round: ClassVar[bool] = False

    steps: int | Literal["auto"] = option(
        "auto", "ascent steps on each batch under test (auto: chosen on known images)", ge=1
    )
    lr: float | Literal["auto"] = option(
        "auto", "learning rate of the ascent (auto: chosen on known images)", gt=0
    )
    batch: int = option(8, "images climbed together, from one copy of the released model", ge=1)
    pairs: int = option(4, "pairs of fixed views an image", ge=1)
    negatives: str = negatives_option()

    @property
    def learns(self) -> bool:
        return "auto" in (self.steps, self.lr)

    @property
    def choices(self) -> dict[str, Any]:
        climb = {"steps": self._climb.steps, "lr": self._climb.lr}
        return {name: value for name, value in climb.items() if getattr(self, name) == "auto"}

    def fit(self, view: WhiteBox, known: Known, rng: np.random.Generator) -> None:
        steps, lr = self.steps, self.lr
        if self.learns:
            images, truth = known.both()
            # All that the attacker holds climbs, so that fits on some known images share it.
            climbing = distinct(images if view.held is None else torch.cat([view.held, images]))
            at = {name: i for i, name in enumerate(digests(climbing.numpy()))}
            rows = [at[name] for name in digests(images.numpy())]
            longest = STEPS if steps == "auto" else steps
            losses_by_rate = {
                rate: self._fit_climb(view, known, rng, longest, rate).by_step(view, climbing)
                for rate in (RATES if lr == "auto" else (lr,))
            }
            steps, lr = choose_climb(
                {rate: losses[:, rows] for rate, losses in losses_by_rate.items()},
                truth,
                2 if steps == "auto" else steps,
            )
        self._climb = self._fit_climb(view, known, rng, int(steps), float(lr))

    def score(self, view: WhiteBox, images: Tensor) -> Scores:
        """Minus the rise of each image's loss in the climb."""
        return self._climb.score(view, images)

    def score_without(self, view: WhiteBox, images: Tensor) -> Scores | None:
        """(N, 2) minus the loss before the climb, and what `grad-norm` says."""
        return self._climb.score_without(view, images)

    def _fit_climb(
        self, view: WhiteBox, known: Known, rng: np.random.Generator, steps: int, lr: float
    ) -> AscentStatic:
        """The climb of so many steps at a rate, which chooses nothing."""
        one = AscentStatic(
            steps=steps, lr=lr, batch=self.batch, pairs=self.pairs, negatives=self.negatives
        )
        one.fit(view, known, rng)
        return one


def choose_climb(
    losses_by_rate: Mapping[float, Scores], truth: NDArray[np.int64], least: int = 2
) -> tuple[int, float]:
    """Steps and rate at which the rise of the loss tells members best, by AUC on known images.

    Of equal ones the lowest rate counts, then the fewest steps. A climb counts until the first
    step after which a loss is not finite; where none does, the first is taken.

    Args:
        losses_by_rate: rate -> losses of the known images by step, (G + 1, K), of G >= `least`.
        truth: (K,), 1 = member.
        least: fewest steps.

    Returns:
        The number of steps, and the rate.
    """
    from sklearn.metrics import roc_auc_score

    best, choice = -1.0, (least, min(losses_by_rate))
    for lr, losses in sorted(losses_by_rate.items()):
        for steps in range(least, len(losses)):
            if not np.isfinite(losses[: steps + 1]).all():
                break
            auc = float(roc_auc_score(truth, losses[0] - losses[steps]))
            if auc > best:
                best, choice = auc, (steps, lr)
    return choice
