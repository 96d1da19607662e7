"""What the log of `flwr run` shows of the rounds."""

from __future__ import annotations

from typing import Any

from fedmia.observers.run_observers import ObserverGroup
from fedmia.runtime.progress import Display


class LogDisplay(Display):
    """A run in the log: a line for each finished round, and for each client that failed.

    Args:
        rounds: number of rounds of all branches.
        observing: observers of the run, called after each round.
    """

    def __init__(self, rounds: int, observing: ObserverGroup) -> None:
        def done(*finished: Any) -> None:
            show_round(*finished)
            observing.round(*finished)

        super().__init__(rounds, True, done)

    def line(self, text: str) -> None:
        """Print a line."""
        self.warn(text)

    def warn(self, text: str) -> None:
        """Print a line."""
        print(f"fedmia: {text}", flush=True)


def show_round(branch: str, round: int, loss: float | None, knn: float | None, s: float) -> None:
    """Print a line on a finished round.

    Args:
        branch: of the run: `main`, or a control.
        round: 1, 2, ...
        loss: mean training loss of the honest clients, or None.
        knn: kNN accuracy in [0, 1], or None.
        s: seconds that the round took.
    """
    text = "" if loss is None else f", loss {loss:.3f}"
    text += "" if knn is None else f", kNN {knn:.2f}"
    print(f"fedmia: {branch} round {round} took {s:.1f} s{text}", flush=True)
