"""Federations under a watch whose scores are drawn; all else is `fedmia.flower.Watch`'s own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from fedmia.flower import Watch
from fedmia.seeding import rng
from fedmia.statistics.auc import AucEstimate, auc_estimate
from tests.recording.plain import PlainGrid

FAR = 3.0  # of a recognised member, in standard deviations


class Simulated(Watch):
    """Looks at scores that are drawn, of the AUC that the path says after each round."""

    def __init__(
        self, path: Sequence[float], shape: str, images: int, kept: float,
        stream: np.random.Generator, **how: Any,
    ) -> None:  # fmt: skip
        super().__init__(every=1, looks=len(path), **how)
        self._own = self.draw
        self.path, self.shape, self.kept, self.stream = path, shape, kept, stream
        self.lasting = stream.normal(0, 1, (2, images))  # what an image keeps from look to look
        self.ranks = stream.random(images)  # of members, by how soon they are recognised

    def draw(self, round: int, state: Any) -> AucEstimate:
        fresh = self.stream.normal(0, 1, self.lasting.shape)
        members, others = np.sqrt(self.kept) * self.lasting + np.sqrt(1 - self.kept) * fresh
        auc = self.path[max(round, 1) - 1]
        if self.shape == "shifted":
            return auc_estimate(members + norm.ppf(auc) * np.sqrt(2), others)
        part = (auc - 0.5) / (norm.cdf(FAR / np.sqrt(2)) - 0.5)
        return auc_estimate(members + FAR * (self.ranks < part), others)

    def _say(self, *_: Any) -> None:
        """Thousands of looks are not logged."""


def stop_of(watch: Simulated) -> int | None:
    """The look, from 1, at which a run is stopped; None: it is not."""
    with watch.looking(Path(), PlainGrid(lambda message, context: message)) as look:
        for round in range(len(watch.path) + 1):
            if not look(round, {}):
                return round
    return None


def stops(
    path: Sequence[float], bound: float, shape: str, images: int, kept: float, runs: int
) -> list[int | None]:
    """The look at which each of many runs is stopped."""
    stream = rng(0, "watch", str(path[-1]), str(bound), shape, images, str(kept))
    return [
        stop_of(Simulated(path, shape, images, kept, stream, stop_above=bound))
        for _ in range(runs)
    ]  # fmt: skip
