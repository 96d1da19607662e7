"""Rounds replayed: a set of images, or a batch, that has the first attacked round to itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fedmia.federation.recorder import TrajectoryRecorder

from fedmia.attacks import ascent
from fedmia.attacks.ascent import Ascent, AscentAlgorithm1

from .conftest import ACTIVE, Finished, Run, same, weights

FIRST = 3  # the first attacked round of the tiny experiment
SETS = Ascent(pairs=1, steps=1, lr=0.05)
BATCHES = AscentAlgorithm1(batch=16, steps=1, lr=0.05)


def trajectory_recorder(run: Run, attack: Ascent, sets: Any = None) -> TrajectoryRecorder:
    """Of the run's forked round, acted on by an attack, with all sets or some."""
    sets = run.client_context.sets if sets is None else sets
    client_context = replace(run.client_context, attack=attack, sets=sets)
    book = TrajectoryRecorder(client_context, attack)
    book.received("main", FIRST, *run.recorder.models["main"][FIRST])
    return book


def alone(book: TrajectoryRecorder, kind: str, rows: Any, idle: bool = False) -> Any:
    """(3, n): what was noted of targets before, under the upload and after their own round."""
    view: Any = book.view(run_weights(book), {})
    trajectory = book.of_alone("main", kind, view, book.targets[rows], idle=idle)
    assert trajectory.rounds == [FIRST]
    return np.concatenate([trajectory.before, trajectory.sent, trajectory.after])


def run_weights(book: TrajectoryRecorder) -> Any:
    return book.context.method(-1, None).shared_state()


@pytest.mark.parametrize(
    "strategy",
    ["fedavg", *(pytest.param(n, marks=pytest.mark.slow) for n in ("trimmed-mean", "fedavgm"))],
)
def test_ended__is_what_the_server_made_of_the_upload(strategy: str, finished: Finished) -> None:
    """Of the attacker's own upload that round of `main`, and of none that of `zero`, to the bit."""
    run = finished(ACTIVE if strategy == "fedavg" else f"{ACTIVE} --strategy {strategy}")
    for branch in ("main", "placebo"):
        fork = run.recorder.replayed[branch]
        assert (fork.branch, fork.round, list(fork.malicious)) == (branch, FIRST, [3])
        assert same(fork.received, run.recorder.models[branch][FIRST][0])
        assert set(fork.honest) == set(fork.numbers) == {0, 1, 2}
        for _ in range(2):  # nothing of the first stays with the server
            ended = fork.end_round(run.sent(branch)[FIRST])
            assert same(ended, run.recorder.models[branch][FIRST + 1][0])
    fork = run.recorder.replayed["main"]
    assert same(fork.end_round(fork.received), run.recorder.models["zero"][FIRST + 1][0])
    assert not (run.recorder.replayed.keys() - {"main", "placebo"})


@pytest.mark.slow
def test_sets__each_has_its_round_whatever_the_others(finished: Finished) -> None:
    """Its readings are of its own climb, to the bit, with one set fewer, the first or the last; and
    are not those of the round in which all climbed."""
    run = finished(ACTIVE)
    sets = run.client_context.sets[:3]
    whole = trajectory_recorder(run, SETS, sets)
    whole.forked(run.recorder.replayed["main"])
    assert whole.rounds_alone("main", "sets") == [FIRST]
    assert whole.rounds_alone("main", "batches") == [] == whole.rounds_alone("zero", "sets")
    for left in (0, 2):
        fewer = trajectory_recorder(run, SETS, [s for i, s in enumerate(sets) if i != left])
        fewer.forked(run.recorder.replayed["main"])
        for rows in fewer.context.sets:
            for idle in (False, True):
                np.testing.assert_array_equal(
                    alone(fewer, "sets", rows, idle), alone(whole, "sets", rows, idle)
                )
        assert np.isnan(alone(fewer, "sets", sets[left])[1:]).all()
    rows = sets[0]
    before, sent, after = alone(whole, "sets", rows)
    assert (sent - before).mean() > 0 and not np.array_equal(sent, after)
    own = trajectory_recorder(run, SETS)
    own.received("main", FIRST + 1, *run.recorder.models["main"][FIRST + 1])
    own.sent("main", FIRST, *run.recorder.uploads["main"][FIRST])
    view: Any = own.view(*run.recorder.models["main"][FIRST])
    assert not np.array_equal(own.of("main", view, own.targets[rows]).after[0], after)
    zero = trajectory_recorder(run, SETS)
    zero.received("zero", FIRST + 1, *run.recorder.models["zero"][FIRST + 1])
    idle = alone(whole, "sets", rows, idle=True)
    np.testing.assert_array_equal(idle[0], idle[1])
    np.testing.assert_allclose(
        idle[2], zero.readings[f"received.zero.{FIRST + 1}"][rows], atol=1e-5
    )


@pytest.mark.slow
def test_sets__what_auto_chooses_does_not_depend_on_which_set_is_first(
    finished: Finished,
) -> None:
    run = finished(ACTIVE)
    attack, sets = Ascent(pairs=1, steps=1), run.client_context.sets[:3]
    read = []
    for some in (sets, sets[1:], sets[:0:-1]):
        book = trajectory_recorder(run, attack, some)
        book.forked(run.recorder.replayed["main"])
        read.append((book.choices["main"], alone(book, "sets", sets[1])))
    for choice, values in read[1:]:
        assert choice == read[0][0] and choice["lr"] > 0
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
    book = trajectory_recorder(run, BATCHES)
    client_context, batches = book.context, book.batches(16)
    half = len(client_context.held) / 2
    assert {len(acted) for acted, _ in batches} == {16}
    assert all(set(read) <= set(acted) for acted, read in batches)
    known = np.isin(client_context.targets, np.concatenate(client_context.known))
    assert {len(set(known[acted])) for acted, _ in batches} == {1}
    assert sorted(int(i) for _, read in batches for i in read) == list(
        range(len(client_context.targets))
    )
    some = [batches[0], batches[1], batches[-1]]
    monkeypatch.setattr(book, "batches", lambda size: some)
    book.forked(run.recorder.replayed["main"])
    assert keys <= {int(half), int(half + 0.5)} and min(keys) > 10
    fewer = trajectory_recorder(run, BATCHES)
    monkeypatch.setattr(fewer, "batches", lambda size: some[1:])
    fewer.forked(run.recorder.replayed["main"])
    for _, rows in some[1:]:  # the last is filled with images of the first, whose own it leaves
        got = alone(fewer, "batches", rows)
        np.testing.assert_array_equal(got, alone(book, "batches", rows))
        assert not np.array_equal(got[1], got[2]) and np.isfinite(got).all()


def test_notes__give_the_forks_again(finished: Finished) -> None:
    run = finished(ACTIVE)
    book = trajectory_recorder(run, BATCHES, run.client_context.sets[:2])
    book.batches = lambda size: [(np.arange(16),) * 2]  # type: ignore[method-assign]
    book.forked(run.recorder.replayed["main"])
    tensors, about = book.notes()
    again = trajectory_recorder(run, BATCHES, run.client_context.sets[:2])
    again.choices["placebo"] = {"lr": 7.0}
    again.restore({n: t.clone() for n, t in tensors.items()}, about)
    assert again.notes()[1] == about and again.notes()[0].keys() == tensors.keys()
    assert "placebo" not in again.choices and again.queries == book.queries
    for kind in ("sets", "batches"):
        assert again.rounds_alone("main", kind) == [FIRST]
        rows = np.concatenate(run.client_context.sets[:2]) if kind == "sets" else np.arange(16)
        for idle in (False, True):
            np.testing.assert_array_equal(
                alone(again, kind, rows, idle), alone(book, kind, rows, idle)
            )


def test_forked__main_is_replayed_for_sets_and_what_goes_by_batches_everywhere(
    finished: Finished,
) -> None:
    run = finished(ACTIVE)
    branches = ("main", "zero", "placebo")
    for attack, sets, want in (
        (SETS, None, [True, False, False]), (SETS, (), [False] * 3),
        (BATCHES, (), [True, False, True]),
    ):  # fmt: skip
        assert [trajectory_recorder(run, attack, sets).forks(b) for b in branches] == want


def test_first_attacked_round__of_main_is_a_snapshot_of_the_fork(
    finished: Finished,
) -> None:
    """What the attacker's client kept before it: its bank, and no key encoder is read."""
    run = finished(ACTIVE)
    fork = run.recorder.replayed["main"]
    assert fork.holder is not None
    bank = run.recorder.models["main"][FIRST][1]
    assert bank and all(torch.equal(fork.holder.tensors[f"local.{n}"], t) for n, t in bank.items())
    assert same(fork.received, weights(run)[FIRST - 1])
