"""LiRA from a federation's rounds: the earlier global models take the place of shadows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedmia.attacks._measure import logit
from fedmia.attacks._reference import FromRounds, mean_and_sum, pooled_deviation
from fedmia.attacks.base import Known, Scores
from fedmia.errors import InputError
from fedmia.settings.option import option
from fedmia.threat import BlackBox


@dataclass
class LiRARounds(FromRounds):
    """LiRA from rounds: how far an image's signal stands out from that of the earlier rounds.

    The signals of all images drift from round to round, so each model's are first brought to mean
    0 and deviation 1 on the known images, members and non-members alike. The score is then offline
    LiRA's, (x - mean) / deviation over the references. As they are few, an image's variance is
    drawn towards that of the known images: (prior v_known + sum of squares) / (prior + R - 1). One
    reference tells no variance: the score is then the gain itself.
    """

    paper: ClassVar[str] = (
        "Carlini et al., Membership Inference Attacks From First Principles, Alg. 1; references by "
        "round are fedmia's"
    )

    prior: float = option(4.0, "rounds that the known images' variance counts as", gt=0)
    _centre: Scores | None = field(default=None, init=False, repr=False)
    _deviation: Scores | None = field(default=None, init=False, repr=False)
    _typical: float | None = field(default=None, init=False, repr=False)

    @property
    def learns(self) -> bool:
        return False

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Raises InputError: fewer than 2 known images, or no model of a round."""
        super().fit(view, known, rng)
        assert self._others is not None
        if len(self._others) < 2:
            raise InputError(f"{self.name} needs at least 2 known images, got {len(self._others)}")
        rows = self._logits(view, self._others)
        spread = rows.std(axis=1)
        self._centre, self._deviation = rows.mean(axis=1), np.where(spread > 0, spread, 1.0)
        references = self._standard(rows)[1:]
        self._typical = pooled_deviation(references, np.ones(references.shape, dtype=bool))

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        rows = self._standard(self._logits(view, images))
        mean, squares = mean_and_sum(rows[1:], np.ones(rows[1:].shape, dtype=bool))
        gain = np.asarray(rows[0] - mean)
        if not self._typical:
            return gain
        freedom = len(rows) - 2
        variance = (self.prior * self._typical**2 + squares) / (self.prior + freedom)
        return np.asarray(gain / np.sqrt(variance))

    def _logits(self, view: BlackBox, images: Tensor) -> Scores:
        """(1 + R, N): of the last model, then of the references."""
        target, references, _ = self.readings(view, images)
        return logit(np.concatenate([target[None], references]))

    def _standard(self, rows: Scores) -> Scores:
        assert self._centre is not None and self._deviation is not None
        return np.asarray((rows - self._centre[:, None]) / self._deviation[:, None])
