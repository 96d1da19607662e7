"""Which rounds are scored and kept, and what a run notes of each, on stand-ins of known numbers."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.data.cast import Cast
from fedmia.federation.checkpoint import BranchState
from fedmia.federation.ledger import Ledger
from fedmia.federation.rounds import FederatedRun, FederationInterrupted
from fedmia.federation.schedule import Schedule
from fedmia.recording.format import RecordedRound
from fedmia.recording.writer import RecordingWriter
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.seeding import rng
from fedmia.settings.commands.experiment import Experiment
from fedmia.storage.snapshot import ClientState, Update
from strategies.base import FinishedRound
from strategies.cohort import Phase
from strategies.fedavg import FedAvg

ACTIVE = "--clients 5 --rounds 10 --attacker active --attack-rounds 3 "


def settings(flags: str) -> Experiment:
    parsed_settings: Experiment = parse(SIMULATE, shlex.split(flags)).settings
    return parsed_settings


@pytest.mark.parametrize(
    ("flags", "clean", "evaluated", "kept"),
    [
        (ACTIVE + "--federation.snapshots 2", 7, [0, 5, 7, 10], set()),
        (ACTIVE + "--federation.snapshots 4", 7, [0, 2, 5, 7, 8, 10], set()),
        ("--rounds 9 --federation.snapshots 1", 9, [0, 9], set()),
        ("--rounds 10 --federation.keep_updates 3", 10, None, {3, 7, 10}),
        ("--rounds 2 --federation.keep_updates 1", 2, None, {2}),
        ("--rounds 8 --federation.snapshots 2 --attacker server", 8, [0, 4, 8], {4, 8}),
        (
            "--rounds 9 --attacker server --attacks similarity --federation.keep_updates 0",
            9,
            None,
            set(),
        ),
    ],
)
def test_schedule__rounds_that_are_scored_and_those_whose_updates_stay(
    flags: str, clean: int, evaluated: list[int] | None, kept: set[int]
) -> None:
    schedule = Schedule(settings(flags))
    assert schedule.clean == clean and schedule.updates_kept() == kept
    assert evaluated is None or schedule.evaluated() == evaluated


def test_schedule__a_course_is_of_the_whole_run_whatever_stretch_it_is() -> None:
    """And a client takes part where it is drawn by the run's seed, first and last round too."""
    schedule = Schedule(settings(ACTIVE + "--federation.participation 0.4 --seed 3"))
    phase = schedule.phase("zero", 7, 9, craft=True)
    assert (phase.branch, phase.first, phase.last, phase.craft) == ("zero", 7, 9, True)
    assert (phase.participation, phase.seed, phase.total) == (0.4, 3, 10)
    for round in range(1, 11):
        expected = rng(3, "cohort", round).choice(5, 2, replace=False)
        assert [c for c in range(5) if schedule.takes_part(c, round)] == sorted(expected)


class Told(FedAvg):
    """Rounds of a number each, and the phase that they were asked for."""

    asked: Phase

    def rounds(
        self, grid: Any, phase: Phase, state: Any, failure_policy: Any, seen: Any = None
    ) -> Any:
        self.asked = phase
        for round in range(phase.first + 1, phase.last + 1):
            seen(Update(0, round, {}, 1, {}))
            yield FinishedRound(round, {"w": torch.tensor(float(round))}, {}, 0.0)


@pytest.mark.parametrize(("branch", "active"), [("main", True), ("main", False), ("zero", True)])
def test_stretch__notes_each_round_with_what_its_clients_received(
    branch: str, active: bool
) -> None:
    """Controls begin at the last clean round of `main`, the seventh, and what the server did is
    said of `main` alone: a control's is no report's."""
    notes, strategy, main = list[Any](), Told(), branch == "main"
    beside = main and active
    head = BranchState(branch, 5, {"w": torch.tensor(5.0)}, strategy)
    branches = ["main", "zero"] if active else ["main"]
    run = SimpleNamespace(
        schedule=Schedule(settings(ACTIVE)), _root=77, failure_policy=None, aggregation="none",
        branches=lambda: branches, client_setup=SimpleNamespace(roles=("honest",) * 5),
        forked=None, store=SimpleNamespace(
            fork=lambda *of: notes.append(("beside", *of)),
            finish_round=lambda: notes.append(("finished", head.round)),
        ),
        _fork=lambda at: FederatedRun._fork(run, at),  # type: ignore[arg-type]
        _note_update=lambda phase, state, up: notes.append(("seen", up.round, float(state["w"]))),
        _record=lambda phase, state, done: notes.append(("done", done.number, float(state["w"]))),
        _describe_aggregation=lambda of: f"after {head.round + 1}",
        _checkpoint=lambda: notes.append(("kept", head.round)),
        _prepare_replay=lambda phase, at: notes.append(("replay", at.round, float(at.state["w"]))),
    )  # fmt: skip
    for _ in range(2):  # the second time nothing is left
        FederatedRun._run_rounds(run, None, head, 8, craft=True)  # type: ignore[arg-type]
    assert notes == [("replay", 5, 5.0)] + [
        note for r in (6, 7, 8)
        for note in (
            ("seen", r, r - 1.0), ("done", r, r - 1.0), ("finished", r),
            *[("beside", "main", "zero", 5)] * (r == 7 and beside),
            ("kept", r), ("replay", r, float(r)),
        )
    ]  # fmt: skip
    assert (run.forked is not None) is beside
    if beside:
        assert (run.forked.round, float(run.forked.state["w"])) == (7, 7.0)
    assert run.aggregation == ("after 8" if main else "none")
    asked = strategy.asked
    assert (asked.branch, asked.first, asked.last, asked.craft) == (branch, 5, 8, True)
    assert (asked.seed, asked.total) == (77, 10)


def test_record__the_loss_is_of_honest_clients() -> None:
    """Of the last round, of clients whose losses are 1 and 3, and the attacker's of 100."""
    notes, new = dict[str, Any](), {"new": torch.ones(1)}
    run = SimpleNamespace(
        watch=Stopwatch(0.0), _crafted=None, notes=None, _refuse_stopped=lambda *of: None,
        experiment=settings(ACTIVE), schedule=SimpleNamespace(last=10),
        _note=lambda *of: notes.update(note=of),
        display=SimpleNamespace(round=lambda *of: notes.update(shown=of)),
        recording=SimpleNamespace(add=lambda line: notes.update(line=line)),
        _line_of=lambda branch, round: RecordedRound(branch, round, cohort=[1]),
    )  # fmt: skip
    (attacker,) = run.experiment.malicious_clients
    metrics = {0: {"loss": 1.0}, 1: {"loss": 3.0}, 2: {}, attacker: {"loss": 100.0}}
    phase = Phase("main", 7, 10, False, 1.0, 0)
    done = FinishedRound(10, new, metrics, 2.5)
    FederatedRun._record(run, phase, {"old": torch.ones(1)}, done)  # type: ignore[arg-type]
    assert notes.pop("line") == RecordedRound("main", 10, cohort=[1], seconds=2.5)
    assert notes == {"note": ("main", 10, False, 2.0, new), "shown": ("main", 10, 2.0, None, 2.5)}


def test_line__of_a_round_without_updates_is_none_of_the_round_before() -> None:
    run = SimpleNamespace(_line=RecordedRound("main", 1, cohort=[0]))
    assert FederatedRun._line_of(run, "main", 1).cohort == [0]  # type: ignore[arg-type]
    assert FederatedRun._line_of(run, "main", 2) == RecordedRound("main", 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [FederationInterrupted, KeyError])
def test_run__leaves_no_update_of_a_round_to_be_replayed(
    error: type[Exception], tmp_path: Path
) -> None:
    store = RecordingWriter(tmp_path)

    def ends(grid: Any, branch: str) -> None:
        store.save_update("forks", 3, 0, {"w": torch.ones(1)})
        store.save_update("main", 3, 0, {"w": torch.ones(1)})
        raise error

    run = SimpleNamespace(
        branches=lambda: ["main"], _run_branch=ends, checkpoint=None, recording=store,
        _unsaved=None, _replay=SimpleNamespace(round=3), _note_reply=None,
        _drop_replay=lambda: FederatedRun._drop_replay(run),  # type: ignore[arg-type]
        _checkpoint_finished=lambda: None,
    )  # fmt: skip
    with contextlib.suppress(KeyError):
        FederatedRun.run(run, None)  # type: ignore[arg-type]
    assert [p.name for p in (tmp_path / "updates").iterdir()] == ["forks", "main"]
    assert not [*(tmp_path / "updates/forks").iterdir()] and run._replay is None


def test_held__is_the_holders_bank_and_not_its_key_encoder() -> None:
    store, one = Ledger(), torch.ones(1)
    tensors = {"local.queue": one, "local.key.w": one, "optimizer.0": one, "strategy.w": one}
    store.save("main", 2, ClientState(tensors, {}))
    for holder, want in ((2, {"queue"}), (1, set()), (None, set())):
        run = SimpleNamespace(store=store, holder=holder)
        held = FederatedRun._bank(run, "main")  # type: ignore[arg-type]
        assert set(held) == want


def test_indispensable__two_known_and_two_scored_members() -> None:
    def why(known: int, scored: int, gone: tuple[int, ...] = (1,), members: int = 9) -> Any:
        sizes = {"known_members": known, "scored_members": scored}
        left = SimpleNamespace(ids=lambda role: np.arange(sizes[role]))
        split = SimpleNamespace(
            without_clients=lambda gone: left, members=np.arange(members), honest=4
        )
        return Cast.indispensable(split, frozenset(gone))  # type: ignore[arg-type]

    assert why(2, 2) is None and why(0, 0, members=0) is None
    assert "1 known and 5 other" in why(1, 5) and "5 known and 1 other" in why(5, 1)
    assert why(9, 9, (1, 4)) == "the attacker's client cannot be dropped"
