"""What every observer of runs promises, as functions: `check_observer` runs them all."""

from __future__ import annotations

import copy
import io
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fedmia.observers.base import RunObserver
from fedmia.options.errors import InputError
from fedmia.records import RunScores, ScoredAttack
from fedmia.report.build import build_report
from fedmia.testing.material import Case, run

CONFIG = {"seed": 0, "partition": {"name": "iid"}, "attacks": ["similarity"], "defense": None}


def some_report() -> Any:
    """The report of a run of no rounds, with one attack."""
    ids, scores = np.arange(8), np.linspace(0, 1, 8)
    attack = ScoredAttack("similarity", "", "black_box", "outsider", scores, scores)
    return build_report(RunScores(0, ids, ids + 8, ids % 2, ids % 2, ids % 2, attacks=[attack]))


def some_figure() -> bytes:
    """A PNG of 4x4 pixels."""
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    return file.getvalue()


class ObserverCase(Case):
    """An observer, and example arguments for each of its methods."""

    def __init__(self, observer: RunObserver | type[RunObserver]) -> None:
        cls = observer if isinstance(observer, type) else type(observer)
        self.cls, self.name, self.first = cls, cls.__name__, observer
        self.must(issubclass(cls, RunObserver), f" must be a subclass of {RunObserver.__name__}")
        self.told: dict[str, tuple[Any, ...]] = {
            "begin": (CONFIG, None),
            "scalars": ({"main/loss": 1.5, "main/seconds": 0.1}, 1),
            "report": (some_report(), {"roc": some_figure()}),
            "end": (),
        }

    def call_observer(self, methods: str, folder: Path | None) -> None:
        """Call `methods` of a new observer, in order.

        Args:
            methods: names of the methods to call, separated by spaces.
            folder: the run's folder, or None.

        Raises:
            AssertionError: the observer raises an error.
        """
        observer = self.cls() if isinstance(self.first, type) else copy.deepcopy(self.first)
        observer.check(folder)
        for method in methods.split():
            arguments = (CONFIG, folder) if method == "begin" else self.told[method]
            before = copy.deepcopy(arguments)
            try:
                getattr(observer, method)(*arguments)
            except Exception as error:
                text = f"{methods}: {method} raises {type(error).__name__}: {error}"
                raise AssertionError(f"{self.name}: {text}") from error
            self.must(arguments == before, f"{method} changes what it is given")


def hears_of_a_whole_run(case: ObserverCase) -> None:
    """Rounds, figures and the report, with a folder; what it is given stays as it was."""
    with tempfile.TemporaryDirectory() as folder:
        case.call_observer("begin scalars scalars report end", Path(folder))


def hears_of_a_run_that_failed(case: ObserverCase) -> None:
    """`end` comes without a report, after rounds or before the first."""
    for methods in ("begin scalars end", "begin end"):
        with tempfile.TemporaryDirectory() as folder:
            case.call_observer(methods, Path(folder))


def does_without_a_folder_or_says_so(case: ObserverCase) -> None:
    """`check` refuses where a run without one cannot be observed."""
    try:
        case.call_observer("begin scalars report end", None)
    except InputError as error:
        case.must("\n" not in str(error), "check refuses in more than one line")


def leaves_the_process_as_it_was(case: ObserverCase) -> None:
    """Threads of torch, on which sums depend, and the global generators."""

    def state() -> tuple[Any, ...]:
        states = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()
        return torch.get_num_threads(), torch.get_default_dtype(), *states

    before = state()
    hears_of_a_whole_run(case)
    changed = [a != b for a, b in zip(before, state(), strict=True)]
    case.must(not any(changed[:2]), "changes torch's threads or its default dtype")
    case.must(not any(changed[2:]), "draws from the global random generators")


OBSERVER_CHECKS: tuple[Callable[[ObserverCase], None], ...] = (
    hears_of_a_whole_run, hears_of_a_run_that_failed, does_without_a_folder_or_says_so,
    leaves_the_process_as_it_was,
)  # fmt: skip


def check_observer(observer: RunObserver | type[RunObserver]) -> None:
    """AssertionError unless an observer keeps what `fedmia.observers.base` says of it.

    Raises:
        InputError: `RunObserver.check` refuses to observe: a package is missing.
    """
    run(OBSERVER_CHECKS, ObserverCase, observer)
