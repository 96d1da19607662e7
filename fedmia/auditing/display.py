"""The live display of an audit: which attack, how many are left, and for how long."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedmia.runtime.progress import Shown


class Display(Shown):
    """Bars on standard error; on no terminal a line for each finished attack; silent if quiet.

    Args:
        attacks: to run on the encoder, each again on the untrained control.
    """

    def __init__(self, attacks: int, quiet: bool) -> None:
        console = Console(stderr=True)
        self._quiet = quiet
        self._plain = not quiet and not console.is_terminal
        self._total = attacks
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._attacks = self._bar.add_task("attacks", total=max(2 * attacks, 1))
        self._epochs = self._bar.add_task("shadow epochs", total=1, visible=False)

    def tell(self, model: str, attack: str, finished: bool) -> None:
        """An attack on `model` begins, or is done with."""
        if finished:
            self._bar.update(self._attacks, advance=1)
        else:
            self._bar.update(self._attacks, description=f"{attack} on the {model} encoder")
            if self._plain:
                print(f"fedmia: {attack} on the {model} encoder", file=sys.stderr)

    def ran(self, count: int) -> None:
        """Only `count` of the attacks could run, so the control has as many to go."""
        self._bar.update(self._attacks, total=self._total + count)

    def epochs(self, done: int, total: int) -> None:
        """Training of the shadows."""
        self._bar.update(self._epochs, completed=done, total=total, visible=True)

    def say(self, line: str) -> None:
        """A line for the user."""
        if self._plain:
            print(f"fedmia: {line}", file=sys.stderr)
        elif not self._quiet:
            self._bar.console.print(line, highlight=False)
