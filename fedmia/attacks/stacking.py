"""Stacking: one classifier on the scores of all attacks that an attacker can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedmia.attacks.ascent_climb import AscentClimb
from fedmia.attacks.ascent_static import AscentStatic
from fedmia.attacks.base import Attack, Known, Scores
from fedmia.attacks.baseline import BaselineA, BaselineD, BaselineE
from fedmia.attacks.baseline_b import BaselineB
from fedmia.attacks.baseline_c import BaselineC
from fedmia.attacks.bavaria import BaVarIA
from fedmia.attacks.classifier import CLASSIFIERS, decide, fit_classifier
from fedmia.attacks.combined import Combined
from fedmia.attacks.dov4mm import DOV4MM
from fedmia.attacks.encodermi import EncoderMIS, EncoderMIT, EncoderMIV
from fedmia.attacks.fe_mi import FeMI
from fedmia.attacks.grad_norm import GradNorm
from fedmia.attacks.internal import Internal
from fedmia.attacks.lira import LiRA, LiRARounds
from fedmia.attacks.loss_slope import LossSlope
from fedmia.attacks.lpla import LpLA
from fedmia.attacks.partcrop import (
    PartCrop,
    PartCropCosine,
    PartCropEnergy,
    PartCropLogistic,
    PartCropV2,
)
from fedmia.attacks.rmia import RMIA, RMIARounds
from fedmia.attacks.sd_mi import SDMI
from fedmia.attacks.semi import SeMIRounds
from fedmia.attacks.similarity import Similarity
from fedmia.attacks.sslmem import SSLMem
from fedmia.attacks.supervised_mi import SupervisedMI
from fedmia.attacks.variance_only import VarianceOnly
from fedmia.settings import option
from fedmia.settings.errors import unknown_name
from fedmia.statistics.subjects import halves
from fedmia.threat import BlackBox, Threat

# Every attack on a released model, or on a client's models of rounds, that scores images.
READABLE: tuple[type[Attack], ...] = (
    AscentClimb, AscentStatic, BaselineA, BaselineB, BaselineC, BaselineD, BaselineE, BaVarIA,
    Combined, DOV4MM, EncoderMIS, EncoderMIT, EncoderMIV, FeMI, GradNorm, Internal, LiRA,
    LiRARounds, LossSlope, LpLA, PartCrop, PartCropCosine, PartCropEnergy, PartCropLogistic,
    PartCropV2, RMIA, RMIARounds, SDMI, SeMIRounds, Similarity, SSLMem, SupervisedMI, VarianceOnly,
)  # fmt: skip


@dataclass
class Stacking(Attack):
    """Stacked attacks of a black box: a classifier on all their scores.

    An attack scores images that it was fitted on unlike others, so no score that the classifier
    learns from is of such an image: the attacks are fitted on half of the known images, and their
    scores of the other half, with its truth, fit the classifier. Both halves take either part, and
    the score is the mean of the two classifiers' decisions. Known images of one subject stay in one
    half. Images under test are seen by `score` alone.
    """

    paper: ClassVar[str] = "Wolpert, Stacked Generalization, Neural Networks 1992; the attacks' own"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("similarity", "norm")
    by_round: ClassVar[bool] = False
    least_known: ClassVar[int] = 4

    attacks: tuple[str, ...] | None = option(
        None,
        "built-in ones whose scores are read, at their defaults (none: all that train no network "
        "and no shadows, and need no more than this attack)",
    )
    classifier: str = option("lr", "classifier on the scores", choices=CLASSIFIERS)

    def asks_shadows(self) -> bool:
        return any(part.asks_shadows() for part in self.parts())

    @property
    def choices(self) -> dict[str, Any]:
        """The attacks, where they are left open."""
        return {} if self.attacks else {"attacks": ", ".join(part.name for part in self.parts())}

    def parts(self) -> list[Attack]:
        """Fresh attacks whose scores are read.

        Raises:
            InputError: one that is not READABLE, or needs more than this attack.
        """
        every = {cls.name: cls for cls in READABLE if self.needs.covers(cls.needs)}
        if self.attacks is None:
            return [cls() for cls in every.values() if is_short(cls)]
        for name in self.attacks:
            if name not in every:
                raise unknown_name(f"attack of {self.name}", name, every)
        return [every[name]() for name in self.attacks]

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Fit the attacks on either half of the known images, and a classifier on the other.

        Raises:
            InputError: an attack refuses the view, or half of the known images.
        """
        of = known.subjects or (np.arange(len(known.members)), np.arange(len(known.nonmembers)))
        places = zip(halves(of[0], rng), halves(of[1], rng), strict=True)
        first, second = (Known(known.members[m], known.nonmembers[o]) for m, o in places)
        self._stacks = []
        for half, rest in ((first, second), (second, first)):
            parts = self.parts()
            for part in parts:
                part.fit(view, half, rng)
            images, truth = rest.both()
            rows = score_all(parts, view, images)
            self._stacks.append((parts, fit_classifier(self.classifier, rows, truth)))

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        decisions = [decide(model, score_all(parts, view, images)) for parts, model in self._stacks]
        return np.mean(decisions, axis=0)


def is_short(cls: type[Attack]) -> bool:
    """Whether an attack trains no network and no shadow: it is scored on models of many rounds, or
    reads them itself."""
    return (cls.by_round or "trajectory" in cls.looks_at) and not cls.uses_shadows


def score_all(parts: list[Attack], view: BlackBox, images: Tensor) -> Scores:
    """(N, A) scores of images (N, C, H, W) by fitted attacks."""
    return np.stack([part.score(view, images) for part in parts], axis=1)


class StackingWhite(Stacking):
    """Stacked attacks of a white box: a classifier on all their scores."""

    name: ClassVar[str] = "stacking-white"
    needs: ClassVar[Threat] = Threat("white_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("similarity", "norm", "loss", "features", "layers")


class StackingRounds(Stacking):
    """Stacked attacks of a client, of the rounds among them: a classifier on all their scores."""

    name: ClassVar[str] = "stacking-rounds"
    needs: ClassVar[Threat] = Threat("white_box", "client")
    looks_at: ClassVar[tuple[str, ...]] = ("trajectory", *StackingWhite.looks_at)
