"""Coordinate-wise trimmed mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ExpectedRound, Update
from strategies._columns import average_middle, clamp_between
from strategies.base import FederatedStrategy


@dataclass
class TrimmedMean(FederatedStrategy):
    """The mean of each weight over the clients, less its b smallest and b largest values.

    b 0 is the uniform mean; the largest b that leaves one value, or two, is the median.
    b is a number of clients: a share of them, as the paper's beta, trims nothing of few clients.
    It holds the updates of all clients of a round at once.
    """

    paper: ClassVar[str] = "Yin et al., ICML 2018, arXiv 1803.01498, Algorithm 1, Option II"
    singles: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    neutral: ClassVar[Mapping[str, Any]] = {"trim": 0}

    trim: int = option(1, "b, clients trimmed at either end of each weight; 0 is FedAvg", ge=0)

    @property
    def least(self) -> int:
        """One value has to be left."""
        return 2 * self.trim + 1

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        return average_middle([update.state for update in updates], self.trim)

    def passing(self, crafted: State, expected: ExpectedRound) -> State:
        """Each weight within those of honest clients that are not trimmed."""
        guesses = expected.guesses
        return clamp_between(crafted, guesses, self.trim) if self.trim and guesses else crafted
