"""The live display of a run: rounds, loss, kNN, time left."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Shown:
    """A progress bar that is on the terminal while its context is open."""

    _bar: Progress

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()


class Display(Shown):
    """A progress bar on standard error; silent when `quiet` or not on a terminal."""

    def __init__(self, rounds: int, quiet: bool) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[seen]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("rounds", total=rounds, seen="")

    def round(self, branch: str, loss: float | None, knn: float | None) -> None:
        """One more round is done, of `branch`."""
        seen = "" if loss is None else f"loss {loss:.3f}"
        seen += "" if knn is None else f"  kNN {knn:.2f}"
        self._bar.update(self._task, advance=1, description=f"{branch} rounds", seen=seen)

    def say(self, what: str) -> None:
        """What is being done after the rounds."""
        self._bar.update(self._task, description=what, seen="")
