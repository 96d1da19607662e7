"""What an active client noted, from readings by hand; what failed attacks cost the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.errors import InputError
from fedmia.scoring.failures import Failures
from fedmia.scoring.readings import Notebook
from fedmia.testing import material

TARGETS = material.textures(5, seed=4)


class Reads:
    """Reads the first pixel plus the model's number; acts on every second target in turn."""

    def __init__(self, uploads: bool) -> None:
        self.uploads = uploads

    def reads_uploads(self) -> bool:
        return self.uploads

    def read(self, view: Any, images: Tensor) -> np.ndarray:
        view.queries += 3 * len(images)
        return images[:, 0, 0, 0].double().numpy() + view.model

    def chosen(self, count: int, number: int, turns: int) -> np.ndarray:
        return np.arange(count) % turns == number


def notebook(uploads: bool = False, turns: int = 2) -> Any:
    site = SimpleNamespace(targets=None, take=lambda which: TARGETS, threads=1,
                           sets=[np.array([1, 3]), np.array([3, 4])])  # fmt: skip
    observer: Any = SimpleNamespace(
        site=site, view=lambda model, signals: SimpleNamespace(model=model, queries=0)
    )
    return Notebook(observer, Reads(uploads), turns)  # type: ignore[arg-type]


def filled(uploads: bool) -> Any:
    """Rounds 4, 6 and 7 begun, the last of them not followed by a model."""
    book = notebook(uploads)
    for turn, received, sent in ((4, 100.0, 1000.0), (6, 200.0, 2000.0), (7, 300.0, 3000.0)):
        book.received("main", turn, received)
        book.sent("main", turn, sent)
    return book


@pytest.mark.parametrize("uploads", [True, False])
def test_of__reads_before_and_after_each_round(uploads: bool) -> None:
    book, charged = filled(uploads), list[int]()
    assert book.rounds("main") == [4, 6] and book.rounds("zero") == []
    view: Any = SimpleNamespace(charge=charged.append)
    rows = [3, 0]
    first = TARGETS[rows, 0, 0, 0].double().numpy()
    found = book.of("main", view, TARGETS[rows])
    assert found.rounds == [4, 6]
    np.testing.assert_array_equal(found.before, np.stack([first + 100, first + 200]))
    np.testing.assert_array_equal(found.after, np.stack([first + 200, first + 300]))
    sent = [first + 1000, first + 2000] if uploads else [first + 1000]
    np.testing.assert_array_equal(found.sent, np.stack(sent))
    np.testing.assert_array_equal(found.acted, [[False, True], [True, False]])
    models = 6 if uploads else 4  # three received, and all uploads or the first
    assert book.queries["main"] == models * 3 * 5 and charged == [models * 3 * 2]
    with pytest.raises(KeyError):
        book.of("main", view, material.textures(1, seed=9))


def test_untouched__counts_the_targets_of_no_finished_round() -> None:
    book = notebook(turns=3)
    assert book.untouched("main") == 5
    for turn, wanted in ((1, 3), (2, 1), (3, 0)):  # 0 and 3; 1 and 4; 2
        book.sent("main", turn, 0.0)
        book.received("main", turn + 1, 0.0)
        assert book.untouched("main") == wanted


def test_sets__alone_are_read_in_their_branch() -> None:
    book = notebook()
    book.received("sets", 1, 7.0)
    book.sent("sets", 1, 8.0)
    book.received("sets", 2, 9.0)
    (tensors, queries) = book.notes()
    assert set(tensors) == {"received.sets.1", "sent.sets.1", "received.sets.2"}
    read = tensors["received.sets.2"].isfinite().tolist()
    assert read == [False, True, False, True, True] and queries == {"sets": 3 * 3 * 3}
    assert book.untouched("sets") == 0  # each set is acted on in every round
    again = notebook()
    again.received("zero", 9, 1.0)
    again.restore(tensors, queries)
    assert again.rounds("sets") == [1] and again.notes()[1] == queries
    assert set(again.notes()[0]) == set(tensors)
    np.testing.assert_array_equal(again.notes()[0]["sent.sets.1"], tensors["sent.sets.1"])


def test_failures__of_what_is_listed_and_beside() -> None:
    failures = Failures()

    def fail(error: Exception) -> Any:
        def call() -> None:
            raise error

        return call

    assert failures.survive("main", "a", lambda: 7) == 7
    assert failures.survive("main", "a", fail(ValueError("two\n lines"))) is None
    failures.survive("round 3", "a", fail(KeyError("k")))
    failures.survive("active", "b", fail(torch.OutOfMemoryError("no room")))
    failures.survive("untrained", "c", fail(RuntimeError("odd")))
    assert failures.reasons == {
        "a": "failed: ValueError: two lines", "b": "failed: OutOfMemoryError: no room",
    }  # fmt: skip
    assert failures.attacks == ("a", "b", "c")
    assert failures.notes() == ["c has no scores of untrained, it failed: RuntimeError: odd"]
    with pytest.raises(InputError):
        failures.survive("main", "d", fail(InputError("of the run")))
