"""What an active client noted, from readings by hand; what failed attacks cost the others."""

from __future__ import annotations

from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.data.images import digests
from fedmia.evaluation.steps.failures import Failures
from fedmia.federation.readings import SIDES, Readings
from fedmia.federation.recorder import TrajectoryRecorder
from fedmia.options.errors import InputError
from fedmia.testing import material

TARGETS = material.textures(5, seed=4)


class Reads:
    """Reads the first pixel plus the model's number."""

    round_size = None

    def __init__(self, uploads: bool) -> None:
        self.uploads = uploads

    def reads_uploads(self) -> bool:
        return self.uploads

    def read(self, view: Any, images: Tensor) -> np.ndarray:
        view.queries += 3 * len(images)
        return images[:, 0, 0, 0].double().numpy() + view.model


def trajectory_recorder(uploads: bool = False) -> Any:
    book: Any = TrajectoryRecorder.__new__(TrajectoryRecorder)
    Readings.__init__(book, Reads(uploads), digests(TARGETS.numpy()))  # type: ignore[arg-type]
    book.targets, book._lock = TARGETS, Lock()
    book.context = SimpleNamespace(threads=1, sets=[np.array([1, 3]), np.array([3, 4])])
    book.view = lambda model, bank: SimpleNamespace(model=model, queries=0)
    return book


def filled(uploads: bool) -> Any:
    """Rounds 4, 6 and 7 begun, the last of them not followed by a model."""
    book = trajectory_recorder(uploads)
    for turn, received, sent in ((4, 100.0, 1000.0), (6, 200.0, 2000.0), (7, 300.0, 3000.0)):
        book.received("main", turn, received, {})
        book.sent("main", turn, sent, {})
    return book


def note(book: Any, where: str, values: list[np.ndarray]) -> None:
    """Readings of batches alone."""
    book.readings |= {f"{where}.{side}": one for side, one in zip(SIDES, values, strict=True)}


@pytest.mark.parametrize("uploads", [True, False])
def test_of__reads_before_and_after_each_round(uploads: bool) -> None:
    book, charged = filled(uploads), list[int]()
    assert book.rounds("main") == [4, 6] and book.rounds("zero") == []
    view: Any = SimpleNamespace(charge=charged.append)
    rows = [3, 0]
    first = TARGETS[rows, 0, 0, 0].double().numpy()
    trajectory = book.of("main", view, TARGETS[rows])
    assert trajectory.rounds == [4, 6]
    np.testing.assert_array_equal(trajectory.before, np.stack([first + 100, first + 200]))
    np.testing.assert_array_equal(trajectory.after, np.stack([first + 200, first + 300]))
    sent = [first + 1000, first + 2000] if uploads else [first + 1000]
    np.testing.assert_array_equal(trajectory.sent, np.stack(sent))
    models = 6 if uploads else 4  # three received, and all uploads or the first
    assert book.queries["main"] == models * 3 * 5 and charged == [models * 3 * 2]
    with pytest.raises(KeyError):
        book.of("main", view, material.textures(1, seed=9))


def test_of_alone__reads_before_and_after_the_round_of_its_own() -> None:
    """And where nothing was climbed, what the round began with for the upload."""
    book, charged = filled(False), list[int]()
    sent, after, idle = (np.arange(5.0) + shift for shift in (20, 30, 40))
    note(book, "sets.main.6", [sent, after, idle])
    book.queries["main-sets"] = 50
    view: Any = SimpleNamespace(charge=charged.append)
    rows = [3, 0]
    before = TARGETS[rows, 0, 0, 0].double().numpy() + 200
    for nothing, want in ((False, (sent[rows], after[rows])), (True, (before, idle[rows]))):
        trajectory = book.of_alone("main", "sets", view, TARGETS[rows], idle=nothing)
        assert trajectory.rounds == [6]
        for got, each in zip(
            (trajectory.before, trajectory.sent, trajectory.after), (before, *want), strict=True
        ):
            np.testing.assert_array_equal(got, each[None])
    assert charged == [20, 20]
    assert book.rounds_alone("main", "sets") == [6] and book.rounds_alone("main", "batches") == []


def test_notes__of_all_that_was_read_and_nothing_else() -> None:
    book = filled(False)
    values = [np.arange(5.0) + shift for shift in (0.5, np.nan, 2)]
    note(book, "batches.placebo.4", values)
    book.choices["placebo"] = {"steps": 3, "lr": 0.01}
    tensors, about = book.notes()
    names = {f"received.main.{r}" for r in (4, 6, 7)} | {f"sent.main.{r}" for r in (4, 6, 7)}
    assert set(tensors) == names | {
        f"batches.placebo.4.{side}" for side in ("sent", "after", "idle")
    }
    assert about == {"queries": {"main": 60}, "choices": book.choices}
    again = trajectory_recorder()
    again.received("zero", 9, 1.0, {})
    note(again, "sets.main.4", values)
    again.choices["main"] = {"steps": 9}
    again.restore(tensors, about)
    assert again.rounds("main") == [4, 6] and again.rounds("zero") == []
    assert again.rounds_alone("placebo", "batches") == [4]
    assert again.rounds_alone("main", "sets") == [] and again.notes()[1] == about
    for name, tensor in again.notes()[0].items():
        np.testing.assert_array_equal(tensor, tensors[name])


def test_failures__of_what_is_listed_and_beside() -> None:
    failures = Failures()

    def fail(error: Exception) -> Any:
        def call() -> None:
            raise error

        return call

    assert failures.attempt("main", "a", lambda: 7) == 7
    assert failures.attempt("main", "a", fail(ValueError("two\n lines"))) is None
    failures.attempt("round 3", "a", fail(KeyError("k")))
    failures.attempt("active", "b", fail(torch.OutOfMemoryError("no room")))
    failures.attempt("untrained", "c", fail(RuntimeError("odd")))
    assert failures.reasons == {
        "a": "failed: ValueError: two lines", "b": "failed: OutOfMemoryError: no room",
    }  # fmt: skip
    assert failures.attacks == ("a", "b", "c")
    note = "c has no untrained control, it failed there: RuntimeError: odd"
    assert failures.notes() == [note]
    with pytest.raises(InputError):
        failures.attempt("main", "d", fail(InputError("of the run")))
