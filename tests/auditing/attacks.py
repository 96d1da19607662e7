"""Attacks that keep what they are given, and do what a test says when they score: as
`tests.auditing.attacks:NAME`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.threat import Threat
from tests.auditing.brought import tiny


@dataclass(frozen=True)
class Given:
    """What an attack had when it scored."""

    attack: str
    view: Any
    known: Known
    images: Tensor


GIVEN: list[Given] = []
ACTS: dict[str, Callable[[], object]] = {}  # by the name of a class


@dataclass
class Mean(Attack):
    """The mean of an image's pixels: a score that says whose it is."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    learns: ClassVar[bool] = False  # type: ignore[assignment]

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        vars(self)["known"] = known

    def score(self, view: Any, images: Tensor) -> Scores:
        GIVEN.append(Given(type(self).__name__, view, vars(self)["known"], images))
        ACTS.get(type(self).__name__, bool)()
        return means(images.numpy())


class Other(Mean):
    """The same by another name."""


class Learns(Mean):
    """Fitted on known images."""

    learns: ClassVar[bool] = True  # type: ignore[assignment]


NOW = [0.0]  # the clock of a test


class Slow(Learns):
    """Takes 3 s for each known member and .25 s for each score, by the clock of the test, and 7 s
    more at its first fit: it is imported."""

    by_round: ClassVar[bool] = False  # none of the quick ones

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        NOW[0] += 3 * len(known.members) + (NOW[0] == 100) * 7
        super().fit(view, known, rng)

    def score(self, view: Any, images: Tensor) -> Scores:
        NOW[0] += 0.25 * len(images)
        return super().score(view, images)


class Fails(Mean):
    """Never scores."""

    def score(self, view: Any, images: Tensor) -> Scores:
        fail()
        return super().score(view, images)


class Embeds(Mean):
    """Embeds the images, too."""

    def score(self, view: Any, images: Tensor) -> Scores:
        view.embed_plain(images)
        return super().score(view, images)


def means(images: np.ndarray) -> Scores:
    """(N,) of (N, C, H, W)."""
    return np.asarray(images.astype(np.float64).mean(axis=(1, 2, 3)))


def named(*classes: str) -> str:
    """As `--attacks` takes them."""
    return ",".join(f"{__name__}:{one}" for one in classes)


@contextmanager
def acting(name: str, act: Callable[[], object]) -> Iterator[None]:
    """`act()` is called whenever the attack of that class scores."""
    ACTS[name] = act
    try:
        yield
    finally:
        del ACTS[name]


def fail() -> None:
    raise ZeroDivisionError("a slip\nof two lines")


def interrupts(times: int = 1) -> Callable[[], None]:
    """Ctrl-C, so many times at all."""
    left = [times]

    def interrupt() -> None:
        while left[0]:
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)

    return interrupt


def interrupted() -> nn.Module:
    """An encoder that is built while the user presses Ctrl-C."""
    signal.raise_signal(signal.SIGINT)
    return tiny()
