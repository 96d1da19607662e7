"""The observers of one run: told in turn, and dropped with one line where they break."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

from fedmia.observers._values import drop_missing, round_values, run_values
from fedmia.observers.base import RunObserver
from fedmia.records.rows import Report
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.storage.manifest import FIGURES


class ObserverThread:
    """A thread that calls one observer, so that an observer that hangs stops nothing else.

    Args:
        observer: is called in that thread alone.
        patience: seconds that a call may take.
    """

    def __init__(self, observer: RunObserver, patience: float) -> None:
        self._observer, self._patience = observer, patience
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._answers: SimpleQueue[str | None] = SimpleQueue()
        Thread(target=self._work, name="observer", daemon=True).start()

    def call_observer(self, method: str, *arguments: Any) -> str | None:
        """Call a method, and wait for its return as long as the patience lasts.

        Args:
            method: of `RunObserver`.
            arguments: of which the observer gets copies.

        Returns:
            Why it failed; None: it did not.
        """
        try:
            # Printed results are the report's alone.
            with redirect_stdout(sys.stderr):
                call = getattr(self._observer, method)
                self._calls.put(partial(call, *copy.deepcopy(arguments)))
                return self._answers.get(timeout=self._patience)
        except Empty:
            return f"no return within {self._patience:g} s"

    def close(self) -> None:
        """Let the thread end after what it is doing."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:  # SystemExit too: trackers end the process they are in
                self._answers.put(_error_line(error))
            else:
                self._answers.put(None)


def _build_observer(name: str, folder: Path | None) -> RunObserver:
    try:
        observer: RunObserver = registry.build("observer", name, {})
        observer.check(folder)
    except InputError:
        raise
    except Exception as error:  # code from outside
        raise InputError(f"observer '{name}': {_error_line(error)}") from None
    return observer


def _error_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


class ObserverGroup:
    """The observers of a run, while the context is open.

    Args:
        names: of observers, built in or `package.module:Class`.
        folder: of the run's results, or None.
        patience: seconds that a call may take before the run goes on without the observer.

    Raises:
        InputError: an unknown observer, or one that cannot observe this run.
    """

    def __init__(self, names: Sequence[str], folder: Path | None, patience: float = 60.0) -> None:
        self._folder, self._patience = folder, patience
        self._observers = {name: _build_observer(name, folder) for name in names}
        self._threads: dict[str, ObserverThread] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._tell("end", error is not None)
        for thread in self._threads.values():
            thread.close()

    def begin(self, config: Mapping[str, Any]) -> None:
        """The run begins; where it never does, observers are not called."""
        self._threads = {
            name: ObserverThread(one, self._patience) for name, one in self._observers.items()
        }
        self._tell("begin", config, self._folder)

    def round(
        self, branch: str, round: int, loss: float | None, knn: float | None, seconds: float
    ) -> None:
        """A round of a branch is done."""
        scalars = {f"{branch}/loss": loss, f"{branch}/knn": knn, f"{branch}/seconds": seconds}
        self.scalars(drop_missing(scalars), round)

    def scalars(self, values: Mapping[str, float], round: int) -> None:
        """Numbers of a round, by name."""
        self._tell("scalars", values, round)

    def report(self, report: Report, part: str = "") -> None:
        """The run is over and its files are written.

        Args:
            report: of the run, or of `part`.
            part: a folder of the run with files of its own, whose name all names begin with; empty:
                the run itself.
        """
        if not self._threads:
            return
        prefix = f"{part}/" if part else ""

        def tell(values: Mapping[str, float], round: int) -> None:
            self._tell("scalars", {prefix + name: one for name, one in values.items()}, round)

        for round, values in round_values(report):
            tell(values, round)
        last = report.rounds[-1].round if report.rounds else 0
        tell(run_values(report), last)
        figures = sorted((self._folder / part / FIGURES).glob("*.png")) if self._folder else []
        self._tell("report", report, {png.stem: png.read_bytes() for png in figures}, prefix)

    def _tell(self, method: str, *arguments: Any) -> None:
        for name, thread in [*self._threads.items()]:
            if (why := thread.call_observer(method, *arguments)) is not None:
                gone = f"observer {name} failed in {method} ({why}); the run goes on without it"
                print(f"fedmia: {gone}", file=sys.stderr)
                self._threads.pop(name).close()
