"""Coordinate-wise median."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from strategies._columns import average_middle
from strategies.base import FederatedStrategy


class Median(FederatedStrategy):
    """The median of each weight over the clients; of an even number the mean of the middle two.

    It holds the updates of all clients of a round at once.
    """

    paper: ClassVar[str] = "Yin et al., ICML 2018, arXiv 1803.01498, Algorithm 1, Option I"
    singles: ClassVar[bool] = True

    @property
    def least(self) -> int:
        """Of two the median is the mean."""
        return 3

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        states = [update.state for update in updates]
        return average_middle(states, len(states))
