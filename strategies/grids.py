"""What a grid of ours can do beyond Flower's `Grid`, and what holds of Flower's own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from flwr.serverapp import Grid

ReplyObserver = Callable[[str, int], None]


class GridExtras(ABC):
    """What the rounds ask of a grid beyond Flower's methods.

    A grid inherits it beside Flower's `Grid`; one that wraps another passes `extras_of` that on.
    """

    @property
    @abstractmethod
    def ahead(self) -> float:
        """Orders that may be out at once."""

    @property
    @abstractmethod
    def stopped(self) -> bool:
        """Whether a watch stopped the federation: the grid sends no order any more."""

    @property
    @abstractmethod
    def device(self) -> str:
        """Where updates come: the device of their tensors."""

    @abstractmethod
    def client_nodes(self) -> dict[int, int] | None:
        """Node id of each client by partition id; None where a roll call has to ask for it."""

    @abstractmethod
    def accept(self, node: int) -> None:
        """Keep the state that came with the last reply of a node: its update is averaged."""

    @abstractmethod
    def observe_replies(self, observe: ReplyObserver) -> None:
        """Call `observe` with the branch and the partition id of each reply from now on."""


class PlainExtras(GridExtras):
    """Of Flower's own grids: they take all orders at once, and their nodes keep their states."""

    @property
    def ahead(self) -> float:
        return math.inf

    @property
    def stopped(self) -> bool:
        return False

    @property
    def device(self) -> str:
        return "cpu"

    def client_nodes(self) -> dict[int, int] | None:
        return None

    def accept(self, node: int) -> None:
        return None

    def observe_replies(self, observe: ReplyObserver) -> None:
        return None


def extras_of(grid: Grid) -> GridExtras:
    """What a grid can do beyond Flower's methods.

    Args:
        grid: Flower's way to the clients.

    Returns:
        The grid itself where it is one of ours, else those of Flower's own.
    """
    return grid if isinstance(grid, GridExtras) else PlainExtras()
