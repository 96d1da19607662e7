"""SeMI from rounds: a likelihood ratio over the whole sequence of the model's updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedmia.attacks._measure import logit
from fedmia.attacks._reference import RoundReferenceAttack
from fedmia.attacks.base import Known, Scores
from fedmia.settings import option
from fedmia.threat import BlackBox


@dataclass
class SeMIRounds(RoundReferenceAttack):
    """Sequential test: the likelihood of an image's signal over all updates, member or not.

    What each update adds to the signal (its logit) is brought to mean 0 and deviation 1 on the
    known non-members. There these changes are Gaussian with the covariance C of the non-members
    (Ledoit-Wolf); a member gains one deviation more in every update. The score is
    log N(changes; 1, C) - log N(changes; 0, C). So an update counts for what the others do not
    say, and nothing is diluted in the last model. Of one received model it is the same for all.

    After the paper's abstract, as its text was not at hand. It derives the optimal test for the
    sequence of an empirical mean, into which a target comes at one update; here members are
    trained on in every round. The signal, the equal gains and the covariance are fedmia's.
    """

    name: ClassVar[str] = "semi-rounds"
    paper: ClassVar[str] = (
        "Michel et al., Sequential Membership Inference Attacks, arXiv 2602.16596 (abstract)"
    )
    least_known: ClassVar[int] = 2

    references: float = option(
        1.0, "share of the received models, from the first on, before the last one", gt=0, le=1
    )

    @property
    def learns_from_members(self) -> bool:
        return False

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Learn what updates change of images that are not trained on.

        Raises:
            InputError: no model of a round.
        """
        super().fit(view, known, rng)
        changes = self._changes(view, known.nonmembers)
        self._mean, spread = changes.mean(axis=0), changes.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        from sklearn.covariance import ledoit_wolf

        covariance = ledoit_wolf((changes - self._mean) / self._spread, assume_centered=True)[0]
        self._weights = np.linalg.pinv(covariance, hermitian=True).sum(axis=1)  # (R,)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        standard = (self._changes(view, images) - self._mean) / self._spread
        return np.asarray((standard - 1 / 2) @ self._weights)

    def _changes(self, view: BlackBox, images: Tensor) -> Scores:
        """(N, R): of the signal, in the updates between the models in the order of their rounds."""
        target, earlier, _ = self.read(view, images)
        return np.diff(logit(np.concatenate([earlier, target[None]])), axis=0).T
