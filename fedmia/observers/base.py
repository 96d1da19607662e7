"""What an observer is: told of a run while it goes and when it is over; it answers nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmia.records.rows import Report
from fedmia.settings import Options


@dataclass
class RunObserver(Options, ABC):
    """An experiment tracker, chosen by `--observe NAME`. One file holds one tracker.

    `begin` comes first and `end` last, in one thread that is the observer's own; the run waits for
    each call. What it is given is its own copy. Whatever it raises or prints, and where it never
    returns, the run and its report stay the same.
    """

    def check(self, folder: Path | None) -> None:
        """Whether it can observe a run into `folder` (`--out`), before anything is loaded.

        Raises:
            InputError: a package or the folder is missing.
        """
        return None

    @abstractmethod
    def begin(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """A run begins.

        Args:
            config: all its settings, nested, as in config.yaml.
            folder: of its results, made; None where it keeps none.
        """

    @abstractmethod
    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Finite numbers by name, whose groups are parted by `/`.

        Args:
            values: after every round of a branch `main/loss`, `main/knn` (accuracy in [0, 1], of
                evaluated rounds) and `main/seconds`; when the run is over, of each evaluated
                round `leakage/ATTACK` and `layers/LAYER` (AUC), and once the report's figures:
                `auc/ATTACK`, `auc_low/ATTACK`, `utility/knn` and so on.
            step: the round, 0 before the first; the last one for the report's figures.
        """

    @abstractmethod
    def report(self, report: Report, figures: Mapping[str, bytes], prefix: str) -> None:
        """The run is over. On private images each node has a report, told as it comes.

        Args:
            report: what report.json holds.
            figures: PNG by name; none where the run keeps no folder.
            prefix: of the names under which a tracker keeps these: `client-0003/` for the report
                of a node, whose `scalars` have it already; else empty.
        """

    @abstractmethod
    def end(self, failed: bool) -> None:
        """The last call.

        Args:
            failed: the run ended by an error.
        """
