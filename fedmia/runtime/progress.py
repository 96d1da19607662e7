"""The live displays: of a run its rounds, loss and kNN, of an audit its attacks; time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from fedmia.records.note import Note
from fedmia.runtime.forecast import cost_of, makespan
from fedmia.runtime.heartbeat import INTERVAL, REFRESH, Heartbeat, format_seconds, notebook_line
from fedmia.settings.session import short_name

FEW = 3  # attacks that are not worth an estimate of their time
SURE = 10.0  # seconds of rounds that give an estimate of all

# Of a round: its branch and number, mean loss, kNN accuracy, seconds.
Rounds = Callable[[str, int, float | None, float | None, float], None]


class ProgressBars:
    """Bars on standard error while its context is open; nothing if `quiet`.

    On no terminal a line every `interval` seconds says what runs, how much is done and how long it
    takes. In a Jupyter notebook that line is replaced every second. `beating` holds that line also
    before and after the bars.

    Args:
        quiet: show nothing.
        more_columns: columns, before those of the time.
        over: a finished bar shows how long it took.
        interval: seconds between two lines on no terminal.
        clock: gives the time in seconds.
    """

    def __init__(
        self, quiet: bool, *more_columns: TextColumn, over: bool = False,
        interval: float = INTERVAL, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        console = Console(stderr=True)
        columns = (*more_columns, TimeElapsedColumn(), TextColumn("left"), TimeLeft(over))
        silent = quiet or not console.is_terminal
        self._plain = silent and not quiet
        self._interval, self._clock = interval, clock
        self._line: Callable[[str], None] | None = None
        self._heart: Heartbeat | None = None
        self._open, self._step = 0, ""
        self._status = console.status("data")
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *columns,
            console=console, disable=silent, get_time=clock,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._status.stop()
        self._bar.start()
        self._start_heart()
        self._step = ""
        return self

    def __exit__(self, *_: object) -> None:
        self._step = "report"
        self._stop_heart()
        self._bar.stop()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """The lines of a whole command: also while it reads its images and writes its report."""
        self._step = "data"
        self._start_heart()
        if not self._bar.disable:
            self._status.start()
        try:
            yield
        finally:
            self._status.stop()
            self._stop_heart()

    def _start_heart(self) -> None:
        self._open += 1
        if self._open > 1:
            return
        self._began = self._clock()
        if self._plain:
            self._line = notebook_line()
            self._heart = Heartbeat(self.beat, REFRESH if self._line else self._interval)
            self._heart.start()

    def _stop_heart(self) -> None:
        self._open -= 1
        if self._open or self._heart is None:
            return
        self._heart.stop()
        self._heart = None
        if self._line is not None:
            self._line(f"fedmia: ended after {format_seconds(self._clock() - self._began)}")

    def beat(self) -> None:
        """Show the line of the moment, where there is no terminal."""
        text = f"fedmia: {self.state()}"
        if self._line is None:
            print(text, file=sys.stderr, flush=True)
            return
        try:
            self._line(text)
        except Exception:  # a front end that takes no updates: lines come in its place
            self._line = None
            print(text, file=sys.stderr, flush=True)

    def line(self, text: str) -> None:
        """Show a line to the user; nothing if quiet."""
        if self._plain or not self._bar.disable:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Show a line to the user, quiet or not: what changes the numbers of the run."""
        if self._bar.disable:
            print(f"fedmia: {text}", file=sys.stderr, flush=True)
        else:
            self._bar.console.print(f"fedmia: {text}", highlight=False, markup=False)

    def _show_piece(self, task_id: TaskID, piece: str, finished: bool) -> None:
        """A piece of a task, perhaps beside others, begins or is done."""
        task = self._bar.tasks[task_id]
        now, took = task.fields.setdefault("now", {}), task.fields.setdefault("took", [])
        if finished:
            took.append(task.get_time() - now.pop(piece))
        else:
            now[piece] = task.get_time()
        most = max(len(now), task.fields.get("workers", 1))
        self._bar.update(task_id, advance=int(finished), seen=", ".join(now), workers=most)

    def state(self) -> str:
        """What runs now, how much is done, the time since the start and an estimate of the rest."""
        if self._step:
            return f"{self._step}, {format_seconds(self._clock() - self._began)} elapsed"
        tasks = [task for task in self._bar.tasks if task.visible]
        tasks = [task for task in tasks if not task.finished] or tasks[-1:]
        parts = [describe_task(task) for task in tasks]
        parts.append(f"{format_seconds(self._clock() - self._began)} elapsed")
        left = seconds_left(tasks[0]) if tasks else None
        if left:
            parts.append(f"about {format_seconds(left)} left")
        return ", ".join(parts)


def describe_task(task: Task) -> str:
    """`main rounds 3/30, loss 5.100`: what a task does, and how much of it is done."""
    text = f"{task.description} {int(task.completed)}/{task.total or 0:.0f}"
    return f"{text}, {task.fields['seen']}" if task.fields.get("seen") else text


def seconds_left(task: Task) -> float | None:
    """Seconds that the rest of a task takes, by what is done; None before its first step.

    Its fields may have steps that do not count (`skipped`), the seconds that they took (`since`),
    and how many steps tell a rate (`least`). Of pieces side by side they have the seconds that each
    `took`, when those that run `now` began, and how many ran at once (`workers`).
    """
    done = task.completed - task.fields.get("skipped", 0)
    if task.elapsed is None or done <= 0 or task.total is None:
        return None
    if done < task.fields.get("least", 0):
        return None
    left = task.total - task.completed
    if "took" not in task.fields:
        return cost_of(left, task.elapsed - task.fields.get("since", 0.0), done)
    each, began = fmean(task.fields["took"]), list(task.fields["now"].values())
    rest = [max(0.0, each - (task.get_time() - at)) for at in began]
    return makespan(rest + [each] * (int(left) - len(rest)), task.fields["workers"])


class TimeLeft(ProgressColumn):
    """A bar's time left, as `seconds_left` tells it.

    Args:
        over: a finished bar shows how long it took.
    """

    max_refresh = 0.5  # seconds

    def __init__(self, over: bool) -> None:
        self._over = over
        super().__init__()

    def render(self, task: Task) -> Text:
        """`0:01:30`."""
        over = self._over and task.finished
        seconds = task.finished_time if over else seconds_left(task)
        style = "progress.elapsed" if over else "progress.remaining"
        if seconds is None:
            return Text("-:--:--", style)
        minutes, rest = divmod(int(seconds), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02}:{rest:02}", style)


class Display(ProgressBars):
    """The rounds of a run.

    Args:
        rounds: number of rounds of all branches; 0: `plan` will tell it.
        quiet: show nothing.
        also: called after each round with the arguments of `round`.
    """

    def __init__(self, rounds: int, quiet: bool, also: Rounds | None = None) -> None:
        super().__init__(quiet, TextColumn("{task.fields[seen]}"))
        self._also = also
        self._task = self._bar.add_task("rounds", total=rounds, seen="")
        self._replies, self._loss, self._estimated, self._warm = 0, "", False, False

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
        self._replies, self._loss = 0, loss_text
        done = int(self._bar.tasks[self._task].completed) + 1
        self._show_rounds(done, description=f"{branch} rounds", seen=loss_text)
        if self._also is not None:
            self._also(branch, round, loss, knn, seconds)

    def plan(self, rounds: int) -> None:
        """How many rounds all branches have, once that is known."""
        self._bar.update(self._task, total=rounds)

    def reply(self, share: float, clients: int) -> None:
        """One more client of the round at work is done.

        Args:
            share: its part of the round's work.
            clients: of the round.
        """
        self._replies, done = self._replies + 1, self._bar.tasks[self._task].completed
        text = f"{self._loss}, client {min(self._replies, clients)}/{clients}".removeprefix(", ")
        completed, first = min(done + share, int(done) + 0.99), dict[str, Any]()
        if not self._warm:  # the first client takes longer: it waits for imports
            elapsed = self._bar.tasks[self._task].elapsed or 0.0
            first = {"skipped": completed, "since": elapsed, "least": completed - done}
            self._warm = True
        self._show_rounds(completed, seen=text, **first)

    def _show_rounds(self, completed: float, **fields: Any) -> None:
        """Show how many rounds are done, and once, as soon as it can be told, what all take."""
        self._bar.update(self._task, completed=completed, **fields)
        task = self._bar.tasks[self._task]
        if not self._estimated and (task.elapsed or 0.0) > SURE and (left := seconds_left(task)):
            self._estimated = True
            self.line(f"the rounds take about {format_seconds(left)} more, then come the attacks")

    def say(self, what: str) -> None:
        """Show the step that follows the rounds."""
        self._bar.update(self._task, description=what, seen="")

    def begin_scoring(self, pieces: int) -> None:
        """The rounds are over, their scoring begins.

        Args:
            pieces: number of pieces of work, each a set of attacks on one model.
        """
        self._bar.update(self._task, visible=False)
        self._scoring = self._bar.add_task("attacks and controls", total=pieces, seen="")

    def scoring(self, piece: str, finished: bool) -> None:
        """A piece of the scoring begins, or is done.

        Args:
            piece: its name.
            finished: whether it is done.
        """
        self._show_piece(self._scoring, piece, finished)

    def skip(self, rounds: int) -> None:
        """Count rounds that an earlier process finished."""
        self._bar.update(self._task, completed=rounds, skipped=rounds)


class AuditDisplay(ProgressBars):
    """The attacks of an audit; on no terminal a line for each, silent if `quiet`.

    Args:
        attacks: number of attacks that are asked for; `plan` says how many run.
        quiet: show nothing.
        in_words: words a note for the reader.
    """

    def __init__(self, attacks: int, quiet: bool, in_words: Callable[[Note], str]) -> None:
        super().__init__(quiet, TextColumn("{task.fields[seen]}"), over=True)
        self.quiet, self._in_words = quiet, in_words
        self._total = attacks
        self._attacks = self._bar.add_task("attacks", total=max(attacks, 1), seen="")
        self._epochs = self._bar.add_task("shadow epochs", total=1, visible=False, seen="")

    def note(self, note: Note) -> None:
        """Show a note of the report to come."""
        self.line(self._in_words(note))

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
            attack = short_name(attack)
            self._bar.update(
                self._attacks, description="attacks", seen=f"now {attack} on the {model} encoder"
            )
            if self._plain and self._line is None:
                task = self._bar.tasks[self._attacks]
                number = f"attack {task.completed + 1:.0f} of {task.total or 0:.0f}"
                self.line(f"{number}: {attack} on the {model} encoder")

    @property
    def wants_forecast(self) -> bool:
        """Whether the user should hear, before the first attack, how long all will take."""
        return not self.quiet and self._total > FEW

    def forecast(self, seconds: float, quick: float, beside: Sequence[str]) -> None:
        """Say before the first attack how long all will take.

        Args:
            seconds: of the attacks and their controls.
            quick: of those that `--attacks quick` runs.
            beside: attacks that the estimate leaves out.
        """
        line = f"the attacks take about {format_seconds(seconds)}, by a rehearsal on a few images"
        if beside:
            line += f" (without {', '.join(map(short_name, beside))})"
        less = f"; --attacks quick takes about {format_seconds(quick)}" * (quick < seconds)
        self.line(f"{line}{less}")

    def leave_out(self, names: Sequence[str], seconds: float, beside: Sequence[str]) -> None:
        """Say which attacks could run and are not asked for.

        Args:
            names: of these attacks.
            seconds: of them and their controls; 0: not known.
            beside: those of them that the estimate leaves out.
        """
        took = f", about {format_seconds(seconds)} more" if seconds else ""
        if beside:
            took += f" (without {', '.join(map(short_name, beside))})"
        listed = ", ".join(map(short_name, names))
        self.line(f"not asked for{took}: {listed}; --attacks all runs them, too")

    def plan(self, attacks: int, controls: int) -> None:
        """So many of the attacks can run, and so many again on the control, once that is known."""
        self._total = attacks
        self._bar.update(self._attacks, total=max(attacks + controls, 1))

    def ran(self, count: int) -> None:
        """The attacks are done; `count` of them run again on the control."""
        self._bar.update(self._attacks, total=self._total + count)

    def epochs(self, done: int, total: int) -> None:
        """Training of the shadows goes on.

        Args:
            done: epochs of all shadows so far.
            total: epochs of all shadows.
        """
        self._bar.update(self._epochs, completed=done, total=total, visible=True)


class StudyDisplay(ProgressBars):
    """The jobs of a study or of papers' tables; on no terminal a line for each that ends, silent if
    `quiet`.

    Args:
        jobs: number of jobs to be done.
        quiet: show nothing.
    """

    def __init__(self, jobs: int, quiet: bool) -> None:
        super().__init__(quiet, TextColumn("{task.fields[seen]}"), over=True)
        self._jobs = self._bar.add_task("jobs", total=max(jobs, 1), seen="")
        self._done, self._all = 0, jobs

    def began(self, name: str) -> None:
        """A job begins."""
        self._show_piece(self._jobs, name, False)

    def ended(self, name: str, reason: str | None) -> None:
        """A job is over.

        Args:
            name: of the job.
            reason: why it failed, None where it did not.
        """
        self._done, task, took = self._done + 1, self._bar.tasks[self._jobs], ""
        began = task.fields.get("now", {}).get(name)
        if began is None:  # what it needs failed
            self._bar.update(self._jobs, advance=1)
        else:
            took = f" ({format_seconds(task.get_time() - began)})"
            self._show_piece(self._jobs, name, True)
        if reason or self._plain:
            how = f"failed: {reason}" if reason else "is finished"
            self.line(f"{self._done}/{self._all} {name} {how}{took}")
