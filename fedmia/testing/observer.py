"""What every observer of runs promises: `check_observer` calls it as runs do."""

from __future__ import annotations

import copy
import io
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fedmia.observers.base import RunObserver
from fedmia.records import Evaluation, ScoredAttack
from fedmia.report.build import build_report
from fedmia.settings.errors import InputError
from fedmia.testing.material import Case, run

CONFIG = {"seed": 0, "partition": {"name": "iid"}, "attacks": ["similarity"], "defense": None}


def some_report() -> Any:
    """The report of a run of no rounds, with one attack."""
    ids, scores = np.arange(8), np.linspace(0, 1, 8)
    attack = ScoredAttack("similarity", "", "black_box", "outsider", scores, scores)
    return build_report(Evaluation(0, ids, ids + 8, ids % 2, ids % 2, ids % 2, attacks=[attack]))


def some_figure() -> bytes:
    """A PNG of 4x4 pixels."""
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    return file.getvalue()


class ObserverCase(Case):
    """An observer; of a class, which may refuse to be built, a new one for each run."""

    def __init__(self, observer: RunObserver | type[RunObserver]) -> None:
        self.names(observer, RunObserver)
        self.observer = observer

    def call_observer(self, methods: str, folder: Path | None) -> None:
        """Call `methods` of a new observer, in order.

        Args:
            methods: names of the methods to call, separated by spaces.
            folder: the run's folder, or None.

        Raises:
            AssertionError: the observer raises an error, or changes what it is given.
        """
        observer: Any = self.observer
        observer = observer() if isinstance(observer, type) else copy.deepcopy(observer)
        observer.check(folder)
        arguments: dict[str, tuple[Any, ...]] = {
            "begin": (CONFIG, folder),
            "scalars": ({"main/loss": 1.5, "main/seconds": 0.1}, 1),
            "report": (some_report(), {"roc": some_figure()}, ""),
            "end": ("report" not in methods,),
        }
        for method in methods.split():
            before = copy.deepcopy(arguments[method])
            try:
                getattr(observer, method)(*arguments[method])
            except Exception as error:
                text = f"{methods}: {method} raises {type(error).__name__}: {error}"
                way = "runs call its methods in this order, and `end` without `report` if they fail"
                raise AssertionError(f"{self.name}: {text}; {way}") from error
            text = f"{method} changes what it is given; work on a copy"
            self.must(arguments[method] == before, text)


def process_state() -> tuple[Any, ...]:
    """What an observer leaves as it was: threads of torch, its default type, the generators."""
    states = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()
    return torch.get_num_threads(), torch.get_default_dtype(), *states


def hears_of_runs(case: ObserverCase) -> None:
    """Whole ones and those that fail, whose `end` comes without a report; the process stays as it
    was: threads of torch, on which sums depend, and the global generators."""
    before = process_state()
    for methods in ("begin scalars scalars report end", "begin scalars end", "begin end"):
        with tempfile.TemporaryDirectory() as folder:
            case.call_observer(methods, Path(folder))
    same = [a == b for a, b in zip(before, process_state(), strict=True)]
    text = "changes torch's threads or its default dtype; put them back before a method returns"
    case.must(all(same[:2]), text)
    text = "draws from the global random generators; use a generator of its own"
    case.must(all(same[2:]), f"{text} (np.random.default_rng())")


def does_without_a_folder_or_says_so(case: ObserverCase) -> None:
    """`check` refuses where a run without one cannot be observed."""
    try:
        case.call_observer("begin scalars report end", None)
    except InputError as error:
        case.must("\n" not in str(error), "check refuses in more than one line; shorten its error")


def check_observer(observer: RunObserver | type[RunObserver]) -> None:
    """AssertionError unless an observer keeps what `fedmia.observers.base` says of it.

    Raises:
        InputError: `RunObserver.check` refuses to observe: a package is missing.
    """
    run((hears_of_runs, does_without_a_folder_or_says_so), ObserverCase, observer)
