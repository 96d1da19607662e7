"""Rounds replayed: a set of images, or a batch, that has the first attacked round to itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.supercore.task_identity import TaskIdentity

from clients.client_round import ClientRound
from fedmia.attacks import ascent
from fedmia.attacks.ascent import Ascent, AscentAlgorithm1
from fedmia.evaluation.active import ActiveScorer
from fedmia.federation.notetaker import NoteTaker
from fedmia.recording import Recording
from fedmia.recording.format import RecordedRound
from fedmia.recording.writer import RecordingWriter
from fedmia.rounds.notes import Notes, read_notes
from fedmia.ssl.base import State
from strategies.failure_policy import FederationError

from .conftest import ACTIVE, Finished, Run, evaluation, same, weights

FIRST = 3  # the first attacked round of the tiny experiment
SETS = Ascent(pairs=1, steps=1, lr=0.05)
BATCHES = AscentAlgorithm1(batch=16, steps=1, lr=0.05)


def note_taker(run: Run, attack: Ascent, sets: Any = None) -> NoteTaker:
    """Of the round that is replayed, acted on by an attack, with all sets or some."""
    sets = run.client_setup.sets if sets is None else sets
    notes = NoteTaker(replace(run.client_setup, attack=attack, sets=sets), attack)
    notes.receive("main", FIRST, *run.recorder.models["main"][FIRST])
    return notes


def alone(run: Run, notes: Notes, kind: str, rows: Any, idle: bool = False) -> Any:
    """(3, n): what was noted of targets before, under the upload and after their own round."""
    setup, view = run.client_setup, SimpleNamespace(charge=lambda queries: None)
    images = setup.take(setup.targets)[rows]
    trajectory = notes.of_alone("main", kind, view, images, idle=idle)  # type: ignore[arg-type]
    assert trajectory.rounds == [FIRST]
    return np.concatenate([trajectory.before, trajectory.sent, trajectory.after])


@pytest.mark.parametrize(
    "strategy",
    [
        "fedavg",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("trimmed-mean", "fedavgm", "dp-fedavg")
        ),
    ],
)
def test_play__is_what_the_server_made_of_the_upload(strategy: str, finished: Finished) -> None:
    """Of the attacker's own upload that round of `main`, and of none that of `zero`, to the bit."""
    run = finished(ACTIVE if strategy == "fedavg" else f"{ACTIVE} --strategy {strategy}")
    recorder = run.recorder
    assert recorder.played.keys() == {"main", "placebo"}
    for branch, replay in recorder.played.items():
        assert (replay.branch, replay.round, list(replay.malicious)) == (branch, FIRST, [3])
        assert same(replay.received, recorder.models[branch][FIRST][0])
        assert recorder.honest[branch].keys() == {0, 1, 2}
        for _ in range(2):  # nothing of the first stays with the server
            ended = replay.play(run.sent(branch)[FIRST])
            assert same(ended, recorder.models[branch][FIRST + 1][0])
    replay = recorder.played["main"]
    assert same(replay.play(replay.received), recorder.models["zero"][FIRST + 1][0])


@pytest.mark.slow
def test_sets__each_has_its_round_whatever_the_others(finished: Finished) -> None:
    """Its readings are of its own climb, to the bit, with one set fewer, the first or the last; and
    are not those of the round in which all climbed."""
    run = finished(ACTIVE)
    sets = run.client_setup.sets[:3]
    whole = note_taker(run, SETS, sets)
    whole.replay(run.recorder.played["main"])
    assert whole.rounds_alone("main", "sets") == [FIRST]
    assert whole.rounds_alone("main", "batches") == [] == whole.rounds_alone("zero", "sets")
    for left in (0, 2):
        fewer = note_taker(run, SETS, [s for i, s in enumerate(sets) if i != left])
        fewer.replay(run.recorder.played["main"])
        for rows in fewer.setup.sets:
            for idle in (False, True):
                np.testing.assert_array_equal(
                    alone(run, fewer, "sets", rows, idle), alone(run, whole, "sets", rows, idle)
                )
        assert np.isnan(alone(run, fewer, "sets", sets[left])[1:]).all()
    rows = sets[0]
    before, sent, after = alone(run, whole, "sets", rows)
    assert (sent - before).mean() > 0 and not np.array_equal(sent, after)
    own = note_taker(run, SETS)
    own.send("main", FIRST, *run.recorder.sent["main"][FIRST])
    own.end("main", FIRST, *run.recorder.models["main"][FIRST + 1])
    view: Any = own.view(*run.recorder.models["main"][FIRST])
    assert not np.array_equal(own.of("main", view, own.images[rows]).after[0], after)
    zero = note_taker(run, SETS)
    zero.receive("zero", FIRST + 1, *run.recorder.models["zero"][FIRST + 1])
    idle = alone(run, whole, "sets", rows, idle=True)
    np.testing.assert_array_equal(idle[0], idle[1])
    want = zero.tables["zero"][FIRST + 1]["received"]
    np.testing.assert_allclose(idle[2], want[rows], atol=1e-5)


@pytest.mark.slow
def test_sets__what_auto_chooses_does_not_depend_on_which_set_is_first(
    finished: Finished,
) -> None:
    run = finished(ACTIVE)
    attack, sets = Ascent(pairs=1, steps=1), run.client_setup.sets[:3]
    read = []
    for some in (sets, sets[1:], sets[:0:-1]):
        notes = note_taker(run, attack, some)
        notes.replay(run.recorder.played["main"])
        read.append((notes.choices("main"), alone(run, notes, "sets", sets[1])))
    for choice, values in read[1:]:
        assert choice == read[0][0] and choice["lr_alone"] > 0
        np.testing.assert_array_equal(values, read[0][1])


@pytest.mark.slow
def test_batches__each_has_its_round_and_half_of_the_held_as_queue(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known images apart from those under test; each image once, whatever fills a short batch."""
    run = finished(ACTIVE)
    keys, losses = set[int](), ascent.attack_losses

    def noted(method: Any, *rest: Any) -> Any:
        keys.add(len(method.queue))
        return losses(method, *rest)

    monkeypatch.setattr(ascent, "attack_losses", noted)
    notes = note_taker(run, BATCHES)
    client_setup, batches = notes.setup, notes.batches(16)
    half = len(client_setup.held) / 2
    assert {len(acted) for acted, _ in batches} == {16}
    assert all(set(read) <= set(acted) for acted, read in batches)
    known = np.isin(client_setup.targets, np.concatenate(client_setup.known))
    assert {len(set(known[acted])) for acted, _ in batches} == {1}
    assert sorted(int(i) for _, read in batches for i in read) == list(
        range(len(client_setup.targets))
    )
    some = [batches[0], batches[1], batches[-1]]
    monkeypatch.setattr(notes, "batches", lambda size: some)
    notes.replay(run.recorder.played["main"])
    assert keys <= {int(half), int(half + 0.5)} and min(keys) > 10
    fewer = note_taker(run, BATCHES)
    monkeypatch.setattr(fewer, "batches", lambda size: some[1:])
    fewer.replay(run.recorder.played["main"])
    for _, rows in some[1:]:  # the last is filled with images of the first, whose own it leaves
        got = alone(run, fewer, "batches", rows)
        np.testing.assert_array_equal(got, alone(run, notes, "batches", rows))
        assert not np.array_equal(got[1], got[2]) and np.isfinite(got).all()


def test_notes__give_the_replays_again(finished: Finished, tmp_path: Path) -> None:
    run = finished(ACTIVE)
    notes = note_taker(run, BATCHES, run.client_setup.sets[:2])
    notes.batches = lambda size: [(np.arange(16),) * 2]  # type: ignore[method-assign]
    notes.replay(run.recorder.played["main"])
    writer, packed = RecordingWriter(tmp_path / "recording"), notes.packed("main", FIRST)
    assert packed is not None
    writer.describe_attacker(notes.targets, notes.about)
    writer.add(
        RecordedRound("main", FIRST, notes=writer.save_file("notes", "main", FIRST, *packed))
    )
    writer.flush()
    again = read_notes(Recording(tmp_path / "recording"))
    assert again is not None and (again.targets, again.about) == (notes.targets, notes.about)
    assert again.facts == notes.facts and again.tables.keys() == notes.tables.keys() == {"main"}
    assert again.tables["main"].keys() == {FIRST}
    assert again.tables["main"][FIRST].keys() == notes.tables["main"][FIRST].keys()
    for kind in ("sets", "batches"):
        assert again.rounds_alone("main", kind) == [FIRST]
        assert again.queries("main", kind) == notes.queries("main", kind) > 0
        rows = np.concatenate(run.client_setup.sets[:2]) if kind == "sets" else np.arange(16)
        for idle in (False, True):
            np.testing.assert_array_equal(
                alone(run, again, kind, rows, idle), alone(run, notes, kind, rows, idle)
            )


def test_replays__of_main_for_sets_and_everywhere_for_what_goes_by_batches(
    finished: Finished,
) -> None:
    run = finished(ACTIVE)
    branches = ("main", "zero", "placebo")
    for attack, sets, want in (
        (SETS, None, [True, False, False]), (SETS, (), [False] * 3),
        (BATCHES, (), [True, False, True]),
    ):  # fmt: skip
        assert [note_taker(run, attack, sets).replays(b) for b in branches] == want


def test_replay__of_main_begins_with_the_last_clean_round(
    finished: Finished,
) -> None:
    """What the attacker's client kept before it: its bank, and no key encoder is read."""
    run = finished(ACTIVE)
    replay = run.recorder.played["main"]
    assert replay.holder is not None
    bank = run.recorder.models["main"][FIRST][1]
    own = replay.holder.tensors
    assert bank and all(torch.equal(own[f"local.{n}"], t) for n, t in bank.items())
    assert same(replay.received, weights(run)[FIRST - 1])


def test_batch__whose_climb_diverged_costs_the_readings_of_all(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses such an upload; no other round is lost by it, and it is said why."""
    run, craft, climbs = finished(ACTIVE), ClientRound.craft, list[int]()
    replay = run.recorder.played["main"]
    broken = {name: torch.full_like(t, torch.nan) for name, t in replay.received.items()}
    with pytest.raises(FederationError):
        replay.play(broken)

    def diverged(self: ClientRound, *arguments: Any) -> State:
        climbs.append(1)
        return broken if len(climbs) == 2 else craft(self, *arguments)

    monkeypatch.setattr(ClientRound, "craft", diverged)
    notes = note_taker(run, BATCHES, ())
    some = notes.batches(16)[:2]
    monkeypatch.setattr(notes, "batches", lambda size: some)
    notes.replay(replay)
    notes.send("main", FIRST, *run.recorder.sent["main"][FIRST])
    notes.end("main", FIRST, *run.recorder.models["main"][FIRST + 1])
    assert len(climbs) == 2 and notes.rounds("main") == [FIRST]
    assert notes.rounds_alone("main", "batches") == [] == notes.acted("main")
    assert "climb of a batch diverged" in str(ActiveScorer(evaluation(run), notes).unscored())


def test_replay__needs_no_other_grid_in_its_process(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed while it was scored goes on without one."""
    run = finished(ACTIVE)
    replay = run.recorder.played["main"]
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, None)
    ended = replay.play(run.sent("main")[FIRST])
    assert same(ended, run.recorder.models["main"][FIRST + 1][0])
