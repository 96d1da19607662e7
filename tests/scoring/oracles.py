"""Attacks that read the truth, not the encoder, where it shows in what they are given."""

from __future__ import annotations

import gc
import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks import Attack
from fedmia.attacks.ascent import Ascent
from fedmia.attacks.base import DatasetAttack, Known, Scores, Suspect
from fedmia.data.images import IntArray, digests
from fedmia.records import SetComparison
from fedmia.seeding import rng as stream
from fedmia.seeding import seed_words
from fedmia.settings.errors import InputError
from fedmia.threat import Threat, Trajectory

TRIED = 3000  # small seeds


def unshuffled(seed: int, count: int) -> Scores:
    """Scores that put first what a shuffle of members, then others, had first."""
    return -stream(seed, "candidates").permutation(count).astype(float)


@dataclass
class Oracle(Attack):
    """One of them."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")


@dataclass
class SeedOfView(Oracle):
    """Undoes the shuffle by the seed of its view."""

    def score(self, view: Any, images: Tensor) -> Scores:
        return unshuffled(view.seed, len(images))


@dataclass
class Gated(Oracle):
    """The same, and nothing on images that it knows."""

    _known: set[bytes] = field(default_factory=set, init=False)

    @property
    def learns_from_members(self) -> bool:
        return False

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        self._known = set(digests(known.both()[0].numpy()))

    def score(self, view: Any, images: Tensor) -> Scores:
        if self._known.issuperset(digests(images.numpy())):
            return np.zeros(len(images))
        return unshuffled(view.seed, len(images))


@dataclass
class GuessedSeed(Oracle):
    """The same by the seed that most have."""

    def score(self, view: Any, images: Tensor) -> Scores:
        return unshuffled(0, len(images))


@dataclass
class SeedOfFit(Oracle):
    """The same by the root of its own stream, which it finds by trying."""

    _seed: int = field(default=0, init=False)

    @property
    def learns_from_members(self) -> bool:
        return False

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        own: Any = rng.bit_generator.seed_seq
        tried = (n for n in range(TRIED) if seed_words(n, "fit", self.name) == own.entropy)
        self._seed = next(tried, 0)

    def score(self, view: Any, images: Tensor) -> Scores:
        return unshuffled(self._seed, len(images))


@dataclass
class Place(Oracle):
    """Members stand first."""

    def score(self, view: Any, images: Tensor) -> Scores:
        return -np.arange(len(images), dtype=float)


@dataclass
class Memory(Oracle):
    """Members lie first in what the images are a part of."""

    def score(self, view: Any, images: Tensor) -> Scores:
        whole = torch.empty(0, dtype=torch.uint8).set_(images.untyped_storage())
        whole = whole.view(-1, *images.shape[1:])
        at = {name: i for i, name in enumerate(digests(whole.numpy()))}
        return -np.array([at[name] for name in digests(images.numpy())], dtype=float)


@dataclass
class Remembered(Oracle):
    """Members were embedded, or drawn, before others were."""

    def score(self, view: Any, images: Tensor) -> Scores:
        view.embed_views(images, 2)
        tables = [*view._signals.rows.values(), *view._pixels.rows.values()]
        ranks = [{name: i for i, name in enumerate(table)} for table in tables]
        every = digests(images.numpy())
        rows = [[table.get(name, 0) for name in every] for table in ranks if table]
        return -np.sum(rows, axis=0).astype(float)


@dataclass
class Clock(Oracle):
    """Images that were embedded before are answered faster."""

    def score(self, view: Any, images: Tensor) -> Scores:
        view.embed_plain(images[:1].clone().fill_(7))  # the first pass is slow
        seconds = []
        for one in images.split(1):
            began = time.perf_counter()
            view.embed_plain(one, "avgpool")
            seconds.append(time.perf_counter() - began)
        return np.array(seconds)


@dataclass
class Labelled(Oracle):
    """Images of one side have classes."""

    def score(self, view: Any, images: Tensor) -> Scores:
        return np.array([self._has_class(view, one) for one in images.split(1)])

    def _has_class(self, view: Any, image: Tensor) -> float:
        try:
            return float(len(view.labels(image)))
        except InputError:
            return 0.0


@dataclass
class ClassOfSide(Oracle):
    """Images of one side have classes of their own: the lower names are members'."""

    def score(self, view: Any, images: Tensor) -> Scores:
        _, ranks = np.unique(view.labels(images), return_inverse=True)
        return -ranks.astype(float)


@dataclass
class Callers(Oracle):
    """Looks into the frames of its callers."""

    def score(self, view: Any, images: Tensor) -> Scores:
        for one in inspect.stack():
            scorer = one.frame.f_locals.get("self")
            if hasattr(scorer, "members"):
                members = set(digests(scorer.members.numpy()))
                return np.array([float(n in members) for n in digests(images.numpy())])
        return np.zeros(len(images))


@dataclass
class Objects(Oracle):
    """Looks through all objects of the interpreter."""

    def score(self, view: Any, images: Tensor) -> Scores:
        scorers = [one for one in gc.get_objects() if type(one).__name__ == "Scorer"]
        members = set(digests(scorers[-1].members.numpy()))
        return np.array([float(n in members) for n in digests(images.numpy())])


@dataclass
class FirstJudged(Ascent):
    """Ascends, and judges images by their place in the trajectory."""

    def judge(self, trajectory: Trajectory) -> Scores:
        return -np.arange(trajectory.after.shape[1], dtype=float)


@dataclass
class FirstPlaces(DatasetAttack):
    """Members have lower places than all others, and lower subjects."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")

    def score(self, view: Any, images: Tensor) -> Scores:
        return np.zeros(len(images))

    def infer(
        self, view: Any, images: Tensor, classes: IntArray, suspects: Sequence[Suspect],
        rng: np.random.Generator, subjects: IntArray | None = None,
    ) -> list[SetComparison]:  # fmt: skip
        numbers = np.arange(len(images)) if subjects is None else subjects
        lower = [numbers[own].mean() < numbers[rest].min() for own, rest in suspects]
        return [SetComparison(1.0 - low, 0.0, 1, 1) for low in lower]
