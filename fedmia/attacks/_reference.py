"""Attacks that compare an image's signal with what models without the image make of it."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._measure import SIGNALS, logit, membership_signal
from fedmia.attacks.base import Attack, Known, Scores, refuse_other_size
from fedmia.data.images import digests, rank_digests
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.threat import OUTPUTS, BlackBox, ClientView, Threat

MODES = ("auto", "offline", "online")


class ReferenceSignals(NamedTuple):
    """Signals in (0, 1) of N images: of the target (N,), of R reference models (R, N), and which
    of these were trained on which image, bool (R, N)."""

    target: Scores
    references: Scores
    inside: NDArray[np.bool_]

    def of(self, which: NDArray[np.bool_]) -> ReferenceSignals:
        """Those of some of the images, `which` (N,)."""
        return ReferenceSignals(
            self.target[which], self.references[:, which], self.inside[:, which]
        )


@dataclass
class ReferenceAttack(Attack):
    """An attack that reads one signal of an image from the target and from reference models."""

    looks_at: ClassVar[tuple[str, ...]] = ("similarity",)

    signal: str = option(
        "similarity",
        "of an image: how close its views lie, how well one view picks the other among the known "
        "images (loss), or how short its feature vector is (norm)",
        choices=SIGNALS,
    )
    views: int = option(
        24, "augmented views an image (norm: none)", ge=2, needs=("signal", "similarity", "loss")
    )
    layer: str = option(
        "auto",
        "output that is read (auto: the projection; pooled features for norm)",
        choices=("auto", *OUTPUTS),
    )
    temperature: float = option(0.2, "of the loss", gt=0, needs=("signal", "loss"))

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        self._others = sort_by_content(known.both()[0])

    @abstractmethod
    def models(self, view: BlackBox, images: Tensor) -> list[tuple[BlackBox, NDArray[np.bool_]]]:
        """The reference models, each with which of `images` (N,) it was trained on."""

    def measure(self, view: BlackBox, images: Tensor) -> Scores:
        """The signal (N,) in (0, 1) under one model.

        Raises:
            InputError: too few known images for the signal.
        """
        return membership_signal(
            view, images, self._others, signal=self.signal, views=self.views, layer=self.layer,
            temperature=self.temperature,
        )  # fmt: skip

    def read(self, view: BlackBox, images: Tensor) -> ReferenceSignals:
        """The signals of images (N, C, H, W) under the target and under every reference model.

        Raises:
            InputError: as of `measure` and `models`.
        """
        target = self.measure(view, images)  # first: a budget too small costs no reference
        models = self.models(view, images)
        rows = np.stack([self.measure(model, images) for model, _ in models])
        return ReferenceSignals(target, rows, np.stack([inside for _, inside in models]))


@dataclass
class ShadowReferenceAttack(ReferenceAttack):
    """The reference models are the attacker's shadow encoders."""

    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    uses_shadows: ClassVar[bool] = True

    mode: str = option(
        "auto",
        "offline: shadows that were not trained on the image; online: those that were as well "
        "(auto: online where every known image has both kinds, which stand for those to score)",
        choices=MODES,
    )
    _online = False

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Choose the mode, and keep the known images in an order of their own.

        Raises:
            InputError: the view has no shadows, or they take images of another size.
        """
        refuse_other_size(self.name, view, known)
        images = known.both()[0]
        inside = np.stack([s.trained_on(images) for s in view.shadows])
        both = inside.any(axis=0) & ~inside.all(axis=0)
        every = self.mode == "auto" and len(images) > 0 and bool(both.all())
        self._online = self.mode == "online" or every
        super().fit(view, known, rng)

    def models(self, view: BlackBox, images: Tensor) -> list[tuple[BlackBox, NDArray[np.bool_]]]:
        return [(s.view, s.trained_on(images)) for s in view.shadows]

    def require_references(self, inside: NDArray[np.bool_], least: int = 1) -> None:
        """Refuse images that too few shadows of either kind cover, `inside` (R, N).

        Raises:
            InputError: naming how many.
        """
        kinds = {"not trained on it": ~inside} | ({"trained on it": inside} if self._online else {})
        for kind, which in kinds.items():
            short = int((which.sum(axis=0) < least).sum())
            if short:
                raise InputError(
                    f"{self.name} ({'online' if self._online else 'offline'}) needs for each image "
                    f"at least {least} shadow encoder{'s' * (least > 1)} {kind}; {short} of "
                    f"{inside.shape[1]} images have fewer among the {len(inside)}"
                )


@dataclass
class GaussianReferenceAttack(ShadowReferenceAttack):
    """The signal is brought to a scale on which shadows may be taken for Gaussian."""

    scale: str = option(
        "logit",
        "of the signal p in (0, 1): log(p / (1 - p)) as in the paper, or none",
        choices=("logit", "none"),
    )
    pool: int = option(256, "images of the shadows that spreads are pooled over", ge=2)

    @property
    def learns(self) -> bool:
        return False

    def read_scaled(self, view: BlackBox, images: Tensor, least: int) -> ReferenceSignals:
        """`read`, scaled, of images that at least `least` shadows of either kind cover.

        Raises:
            InputError: too few shadows cover an image.
        """
        target, references, inside = self.read(view, images)
        self.require_references(inside, least)
        return ReferenceSignals(self._scaled(target), self._scaled(references), inside)

    def read_pool(self, view: BlackBox) -> tuple[Scores, NDArray[np.bool_]]:
        """Scaled signals (R, M) of known images and of some of the shadows' own, none of which is
        scored, and which shadow was trained on which (R, M)."""
        own = distinct(torch.cat([t for s in view.shadows for t in (s.members, s.nonmembers)]))
        images = sort_by_content(torch.cat([own[: self.pool], self._others]))
        rows = self._scaled(np.stack([self.measure(s.view, images) for s in view.shadows]))
        return rows, np.stack([s.trained_on(images) for s in view.shadows])

    def _scaled(self, p: Scores) -> Scores:
        return logit(p) if self.scale == "logit" else p


@dataclass
class RoundReferenceAttack(ReferenceAttack):
    """The reference models are the global models of a federation's earlier rounds.

    Every round trained on the members, the early ones for little time: what an image's signal has
    gained since is what the attack reads. Where only the first model of all was received, it is
    its own reference: there is no gain to read, and LiRA's scores are all 0.
    """

    needs: ClassVar[Threat] = Threat("white_box", "client")
    looks_at: ClassVar[tuple[str, ...]] = ("trajectory", "similarity")
    by_round: ClassVar[bool] = False

    references: float = option(
        0.5,
        "share of the received models, from the first on, that count as not yet knowing an image "
        "(never the last)",
        gt=0,
        le=1,
    )

    def models(self, view: BlackBox, images: Tensor) -> list[tuple[BlackBox, NDArray[np.bool_]]]:
        assert isinstance(view, ClientView)
        rounds = sorted(view.received)
        if not rounds:
            raise InputError(f"{self.name} needs the models of a federation's rounds, got none")
        earlier = rounds[: max(1, min(len(rounds) - 1, math.ceil(self.references * len(rounds))))]
        outside = np.zeros(len(images), dtype=bool)
        return [(view.at(r), outside) for r in earlier]


def sort_by_content(images: Tensor) -> Tensor:
    """The images in an order that their bytes alone decide, so that no sum depends on theirs."""
    return images[rank_digests(digests(images.numpy()))]


def mean_and_sum(values: Scores, which: NDArray[np.bool_]) -> tuple[Scores, Scores]:
    """Over the rows of (R, N) that `which` (R, N) picks: mean, and sum of squares about it, (N,).

    Columns of which nothing is picked give 0 and 0.
    """
    count = np.maximum(which.sum(axis=0), 1)
    mean = (values * which).sum(axis=0) / count
    return mean, (((values - mean) ** 2) * which).sum(axis=0)


def pooled_deviation(values: Scores, which: NDArray[np.bool_]) -> float | None:
    """Deviation of a model's value about its image's mean, over all images; None where no image
    has two models that `which` (R, N) picks."""
    freedom = int(np.maximum(which.sum(axis=0) - 1, 0).sum())
    if freedom == 0:
        return None
    return math.sqrt(float(mean_and_sum(values, which)[1].sum()) / freedom)


def distinct(images: Tensor) -> Tensor:
    """Each of uint8 (N, C, H, W) once, in the order of their content."""
    first = {name: i for i, name in enumerate(digests(images.numpy()))}
    return images[[first[name] for name in sorted(first)]]
