"""What an active client noted, from readings by hand; what failed attacks cost the others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedmia.data.images import digests
from fedmia.recording import RecordingWriter
from fedmia.recording.format import RecordedRound
from fedmia.rounds.notes import SIDES, Notes
from fedmia.settings.errors import InputError
from fedmia.testing import material

TARGETS = material.textures(5, seed=4)
ABOUT = {"attack": "reads", "options": {}, "client": 3, "known": 0, "batches": False}


PIXELS = TARGETS[:, 0, 0, 0].double().numpy()  # what is read, plus the model's number


def notebook() -> Notes:
    return Notes(digests(TARGETS.numpy()), ABOUT)


def filled(uploads: bool) -> Notes:
    """Rounds 4, 6 and 7 begun, the last of them not followed by a model; of the uploads all are
    read, or the first."""
    notes = notebook()
    for turn, received, sent in ((4, 100.0, 1000.0), (6, 200.0, 2000.0), (7, 300.0, 3000.0)):
        reads = uploads or turn == 4
        readings = PIXELS + sent if reads else np.zeros(0)
        notes.note("main", turn, received=PIXELS + received, sent=readings)
        notes.charge("main", turn, 15 + 15 * reads)
    return notes


def note_alone(notes: Any, branch: str, round: int, kind: str, values: list[np.ndarray]) -> None:
    """Readings of sets or batches alone."""
    sides = zip(SIDES, values, strict=True)
    notes.note(branch, round, **{f"{kind}.{side}": one for side, one in sides})


@pytest.mark.parametrize("uploads", [True, False])
def test_of__reads_before_and_after_each_round(uploads: bool) -> None:
    notes, charged = filled(uploads), list[int]()
    assert notes.rounds("main") == [4, 6] and notes.rounds("zero") == []
    view: Any = SimpleNamespace(charge=charged.append)
    rows = [3, 0]
    first = TARGETS[rows, 0, 0, 0].double().numpy()
    trajectory = notes.of("main", view, TARGETS[rows])
    assert trajectory.rounds == [4, 6]
    np.testing.assert_array_equal(trajectory.before, np.stack([first + 100, first + 200]))
    np.testing.assert_array_equal(trajectory.after, np.stack([first + 200, first + 300]))
    sent = [first + 1000, first + 2000] if uploads else [first + 1000]
    np.testing.assert_array_equal(trajectory.sent, np.stack(sent))
    models = 6 if uploads else 4  # three received, and all uploads or the first
    assert notes.queries("main") == models * 3 * 5 and charged == [models * 3 * 2]
    with pytest.raises(KeyError):
        notes.of("main", view, material.textures(1, seed=9))


def test_of_alone__reads_before_and_after_the_round_of_its_own() -> None:
    """And where nothing was climbed, what the round began with for the upload."""
    notes, charged = filled(False), list[int]()
    sent, after, idle = (np.arange(5.0) + shift for shift in (20, 30, 40))
    note_alone(notes, "main", 6, "sets", [sent, after, idle])
    notes.charge("main", 6, 50, "sets")
    view: Any = SimpleNamespace(charge=charged.append)
    rows = [3, 0]
    before = TARGETS[rows, 0, 0, 0].double().numpy() + 200
    for nothing, want in ((False, (sent[rows], after[rows])), (True, (before, idle[rows]))):
        trajectory = notes.of_alone("main", "sets", view, TARGETS[rows], idle=nothing)
        assert trajectory.rounds == [6]
        for got, each in zip(
            (trajectory.before, trajectory.sent, trajectory.after), (before, *want), strict=True
        ):
            np.testing.assert_array_equal(got, each[None])
    assert charged == [20, 20]
    assert notes.rounds_alone("main", "sets") == [6] and notes.rounds_alone("main", "batches") == []


def test_end__is_the_model_after_the_last_round() -> None:
    """Of which no later round says what it read; a round that is received later says it first."""
    notes, first = filled(True), TARGETS[[2], 0, 0, 0].double().numpy()
    assert notes.rounds("main") == [4, 6]
    for after in (400.0, 500.0):  # the second is what round 8 received
        if after == 400.0:
            notes.note("main", 7, after=PIXELS + after)
        else:
            notes.note("main", 8, received=PIXELS + after)
        trajectory = notes.of("main", SimpleNamespace(charge=lambda queries: None), TARGETS[[2]])
        assert trajectory.rounds == [4, 6, 7]
        np.testing.assert_array_equal(trajectory.after[-1], first + after)


def test_notes__of_all_that_was_read_and_nothing_else(tmp_path: Path) -> None:
    """What a recording holds of it is what it was, and what it does not know is not there."""
    notes = filled(False)
    values = [np.arange(5.0) + shift for shift in (0.5, np.nan, 2)]
    note_alone(notes, "placebo", 4, "batches", values)
    notes.facts_of("placebo", 4)["choice"] = {"steps": 3, "lr": 0.01}
    notes.facts_of("placebo", 4)["alone"] = {"lr": 0.02}
    assert notes.packed("main", 5) is None and notes.packed("zero", 4) is None
    writer = RecordingWriter(tmp_path / "recording")
    for branch, rounds in (("main", (4, 6, 7)), ("placebo", (4,))):
        for round in rounds:
            tensors, about = notes.packed(branch, round)
            names = {"received", "sent"} if branch == "main" else {f"batches.{s}" for s in SIDES}
            assert set(tensors) == names
            assert about["queries"] == ({"": 30 if round == 4 else 15} if branch == "main" else {})
            digest = writer.save_file("notes", branch, round, tensors, about)
            writer.add(RecordedRound(branch, round, notes=digest))
    again = notebook()
    again.add(writer)
    assert again.rounds("main") == [4, 6] and again.rounds("zero") == []
    assert again.rounds_alone("placebo", "batches") == [4]
    assert again.rounds_alone("main", "sets") == [] and again.queries("main") == 60
    assert again.choices("placebo") == {"steps": 3, "lr": 0.01, "lr_alone": 0.02}
    assert again.choices("main") == {} and again.facts == notes.facts
    assert again.tables.keys() == notes.tables.keys()
    for branch, by_round in notes.tables.items():
        assert again.tables[branch].keys() == by_round.keys()
        for round, table in by_round.items():
            assert again.tables[branch][round].keys() == table.keys()
            for name, values in table.items():
                np.testing.assert_array_equal(again.tables[branch][round][name], values)


def test_notes__of_other_targets_are_refused(tmp_path: Path) -> None:
    writer, notes = RecordingWriter(tmp_path / "recording"), filled(False)
    notes.note("main", 4, received=np.zeros(6))
    writer.add(
        RecordedRound(
            "main", 4, notes=writer.save_file("notes", "main", 4, *notes.packed("main", 4))
        )
    )
    with pytest.raises(InputError, match="holds no notes of an attacker"):
        notebook().add(writer)
