"""The live displays: of a run its rounds, loss and kNN, of an audit its attacks; time left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# Of a round: its branch and number, mean loss, kNN accuracy, seconds.
Rounds = Callable[[str, int, float | None, float | None, float], None]


class ProgressBars:
    """Bars on standard error while its context is open; silent if `quiet` or on no terminal.

    Args:
        quiet: show nothing.
        more_columns: columns, before those of the time.
        over: a finished bar shows how long it took.
    """

    def __init__(self, quiet: bool, *more_columns: TextColumn, over: bool = False) -> None:
        console = Console(stderr=True)
        done = TextColumn("{task.completed:.0f}/{task.total:.0f}")
        time_left = TimeRemainingColumn(elapsed_when_finished=over)
        columns = (*more_columns, TimeElapsedColumn(), TextColumn("left"), time_left)
        silent = quiet or not console.is_terminal
        self._plain = silent and not quiet
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), done, *columns,
            console=console, disable=silent,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class Display(ProgressBars):
    """The rounds of a run.

    Args:
        rounds: number of rounds of all branches.
        quiet: show nothing.
        also: called after each round with the arguments of `round`.
    """

    def __init__(self, rounds: int, quiet: bool, also: Rounds | None = None) -> None:
        super().__init__(quiet, TextColumn("{task.fields[seen]}"))
        self._also = also
        self._task = self._bar.add_task("rounds", total=rounds, seen="")

    def round(
        self, branch: str, round: int, loss: float | None, knn: float | None, seconds: float
    ) -> None:
        """One more round is done.

        Args:
            branch: of the run: `main`, or a control.
            round: 1, 2, ...
            loss: mean training loss of the honest clients, or None.
            knn: kNN accuracy in [0, 1], or None.
            seconds: that the round took.
        """
        loss_text = "" if loss is None else f"loss {loss:.3f}"
        loss_text += "" if knn is None else f"  kNN {knn:.2f}"
        self._bar.update(self._task, advance=1, description=f"{branch} rounds", seen=loss_text)
        if self._also is not None:
            self._also(branch, round, loss, knn, seconds)

    def say(self, what: str) -> None:
        """Show the step that follows the rounds."""
        self._bar.update(self._task, description=what, seen="")

    def skip(self, rounds: int) -> None:
        """Count rounds that an earlier process finished."""
        self._bar.update(self._task, completed=rounds)


class AuditDisplay(ProgressBars):
    """The attacks of an audit; on no terminal a line for each, silent if `quiet`.

    Args:
        attacks: number of attacks on the encoder; each runs again on the untrained control.
        quiet: show nothing.
    """

    def __init__(self, attacks: int, quiet: bool) -> None:
        super().__init__(quiet, over=True)
        self._quiet = quiet
        self._total = attacks
        self._attacks = self._bar.add_task("attacks", total=max(2 * attacks, 1))
        self._epochs = self._bar.add_task("shadow epochs", total=1, visible=False)

    def show_step(self, model: str, attack: str, finished: bool) -> None:
        """An attack on a model begins, or is done.

        Args:
            model: the encoder or its control.
            attack: name of the attack.
            finished: whether it is done.
        """
        if finished:
            self._bar.update(self._attacks, advance=1)
        else:
            self._bar.update(self._attacks, description=f"{attack} on the {model} encoder")
            if self._plain:
                print(f"fedmia: {attack} on the {model} encoder", file=sys.stderr)

    def ran(self, count: int) -> None:
        """Only `count` of the attacks could run, so the control runs as many."""
        self._bar.update(self._attacks, total=self._total + count)

    def epochs(self, done: int, total: int) -> None:
        """Training of the shadows goes on.

        Args:
            done: epochs of all shadows so far.
            total: epochs of all shadows.
        """
        self._bar.update(self._epochs, completed=done, total=total, visible=True)

    def say(self, line: str) -> None:
        """Show a line to the user."""
        if self._plain:
            print(f"fedmia: {line}", file=sys.stderr)
        elif not self._quiet:
            self._bar.console.print(line, highlight=False)


class SweepDisplay(ProgressBars):
    """The runs of a sweep; on no terminal a line for each that ends, silent if `quiet`.

    Args:
        runs: number of runs to be done.
        quiet: show nothing.
    """

    def __init__(self, runs: int, quiet: bool) -> None:
        super().__init__(quiet, TextColumn("{task.fields[seen]}"), over=True)
        self._runs = self._bar.add_task("runs", total=max(runs, 1), seen="")
        self._now: list[str] = []

    def began(self, name: str) -> None:
        """A run begins."""
        self._now.append(name)
        self._bar.update(self._runs, seen=", ".join(self._now))

    def ended(self, name: str, reason: str | None) -> None:
        """A run is over.

        Args:
            name: of the run.
            reason: why it failed, None where it did not.
        """
        self._now.remove(name)
        self._bar.update(self._runs, advance=1, seen=", ".join(self._now))
        line = f"{name} failed: {reason}" if reason else f"{name} is finished"
        if self._plain:
            print(f"fedmia: {line}", file=sys.stderr)
        elif reason:
            self._bar.console.print(line, highlight=False, markup=False)


class HeadDisplay(ProgressBars):
    """The heads of a comparison; silent if `quiet` or on no terminal.

    Args:
        heads: number of heads to be trained and attacked.
        quiet: show nothing.
    """

    def __init__(self, heads: int, quiet: bool) -> None:
        super().__init__(quiet)
        self._heads = self._bar.add_task("heads", total=heads)

    def ended(self) -> None:
        """One more head is done."""
        self._bar.update(self._heads, advance=1)
