"""Stacking: one classifier on the scores of all attacks that an attacker can run."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedmia.attacks._classifier import CLASSIFIERS, decide, fit_classifier
from fedmia.attacks.base import ActiveAttack, Attack, DatasetAttack, Known, Scores
from fedmia.options.errors import InputError, unknown_name
from fedmia.options.option import option
from fedmia.statistics.subjects import halves
from fedmia.threat import BlackBox, Threat


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
            InputError: one that has no score of an image, or needs more than this attack.
        """
        every = built_in_attacks()
        if self.attacks is None:
            return [cls() for cls in every.values() if self._may_read(cls) and is_short(cls)]
        for name in self.attacks:
            if name not in every:
                raise unknown_name("attack", name, every)
            if not self._may_read(every[name]):
                raise InputError(
                    f"{self.name} cannot read attack '{name}': it reads those on a released model "
                    f"with {self.needs.access} access as {self.needs.vantage}"
                )
        return [every[name]() for name in self.attacks]

    def _may_read(self, cls: type[Attack]) -> bool:
        apart = issubclass(cls, (ActiveAttack, DatasetAttack, Stacking))
        return not apart and self.needs.covers(cls.needs)

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


def built_in_attacks() -> dict[str, type[Attack]]:
    """The attacks of this package by name, in its order."""
    package = importlib.import_module("fedmia.attacks")  # finds this file among the others
    classes = (getattr(package, name) for name in package.__all__)
    whole = (c for c in classes if issubclass(c, Attack) and not inspect.isabstract(c))
    return {c.name: c for c in sorted(whole, key=lambda c: c.name)}


def is_short(cls: type[Attack]) -> bool:
    """Whether an attack trains no network and no shadow: it is scored on models of many rounds, or
    reads them itself."""
    return (cls.by_round or "trajectory" in cls.looks_at) and not cls.uses_shadows


def score_all(parts: list[Attack], view: BlackBox, images: Tensor) -> Scores:
    """(N, A) scores of images (N, C, H, W) by fitted attacks."""
    return np.stack([part.score(view, images) for part in parts], axis=1)


@dataclass
class StackingWhite(Stacking):
    """Stacked attacks of a white box: a classifier on all their scores."""

    name: ClassVar[str] = "stacking-white"
    needs: ClassVar[Threat] = Threat("white_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("similarity", "norm", "loss", "features", "layers")


@dataclass
class StackingRounds(Stacking):
    """Stacked attacks of a client, of the rounds among them: a classifier on all their scores."""

    name: ClassVar[str] = "stacking-rounds"
    needs: ClassVar[Threat] = Threat("white_box", "client")
    looks_at: ClassVar[tuple[str, ...]] = ("trajectory", *StackingWhite.looks_at)
