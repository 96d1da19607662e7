"""Small federations of digits, run without a report, and ways to compare what they leave."""

from __future__ import annotations

import copy
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.evaluation.run import suite_of_run
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.suite import Suite
from fedmia.federation.ledger import Ledger
from fedmia.federation.notetaker import NoteTaker
from fedmia.federation.plan import Plan, make_client_setup, make_plan
from fedmia.federation.result import TrainedRounds
from fedmia.federation.rounds import FederatedRun
from fedmia.federation.train import federate
from fedmia.federation.untrained import play_untrained
from fedmia.recording.writer import RecordingWriter
from fedmia.rounds.notes import Notes
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.choices import PluginChoice
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from strategies.cohort import draw_cohort
from tests.small_setup import changed

TINY = (
    "--clients 4 --rounds 4 --train.local_epochs 1 --model.width 4 "
    "--split.members 36 --split.nonmembers 60 --split.known 8 --split.test 20 --device cpu "
    "--train.batch_size 8 --train.lr 0.06 "  # more than one step a round, that tells
)
# Of one active client, in a federation that the tests of this folder share by `finished`.
ACTIVE = (
    "--attacker active --attacks similarity,ascent --attack.similarity.views 4 "
    "--attack.ascent.lr 5 --federation.snapshots 4 "
)


def planned(flags: str) -> Plan:
    """A tiny experiment with `flags` after the tiny ones, its data dealt."""
    words = shlex.split(TINY)
    for flag in shlex.split(flags)[::2]:  # a flag given again replaces the tiny one
        if flag in words:
            at = words.index(flag)
            del words[at : at + 2]
    experiment = parse(SIMULATE, [*words, *shlex.split(flags)]).settings
    assert experiment is not None
    return make_plan(experiment)


class Recorder(Notes):
    """Keeps what an active client could note: models by branch and round for which they were
    received, or after the last; uploads by branch and round; replays by branch, and what honest
    clients sent in them. It reads nothing, and nothing of it is recorded."""

    def __init__(self, client: int | None) -> None:
        super().__init__((), {"client": client, "batches": False})
        self.played: dict[str, Any] = {}
        self.honest: dict[str, dict[int, Update]] = {}
        self.models: dict[str, dict[int, tuple[State, State]]] = defaultdict(dict)
        self.sent: dict[str, dict[int, tuple[State, State]]] = defaultdict(dict)

    def receive(self, branch: str, round: int, state: State, held: State) -> None:
        self.models[branch][round] = copy.deepcopy((state, held))

    def send(self, branch: str, round: int, state: State, held: State) -> None:
        self.sent[branch][round] = copy.deepcopy((state, held))

    def end(self, branch: str, round: int, state: State, held: State) -> None:
        self.receive(branch, round + 1, state, held)

    def packed(self, branch: str, round: int) -> None:
        return None

    def replays(self, branch: str) -> bool:
        return branch in ("main", "placebo")

    def replay(self, replay: Any) -> None:
        """Keep it with all that it reads: the updates of its clients are deleted after it."""
        cohort = draw_cohort(replay.phase, replay.round, replay.clients)
        honest = {int(c): replay.honest(int(c)) for c in cohort if c not in replay.malicious}
        replay.honest = honest.__getitem__
        self.played[replay.branch], self.honest[replay.branch] = replay, honest


@dataclass(frozen=True, kw_only=True)
class Run(TrainedRounds):
    """A finished federation with its recorder, and what its attacker noted, if anything."""

    recorder: Recorder
    notes: Notes | None = None  # type: ignore[assignment]

    def sent(self, branch: str) -> dict[int, State]:
        """What the active client uploaded, by round."""
        return {r: state for r, (state, _) in self.recorder.sent[branch].items()}

    def check_mean(self, round: int, counted: int) -> None:
        """The weights of a round are the mean of what its first `counted` clients uploaded."""
        updates = self.recording.updates("main")[round]
        for name, got in self.recording.load("main", round)[0].items():
            mean = torch.stack([updates[c][name].double() for c in range(counted)]).mean(dim=0)
            torch.testing.assert_close(got.double(), mean, atol=1e-6, rtol=1e-5)

    def note_taker(self) -> NoteTaker:
        """What the attack's client would have noted."""
        attack = self.client_setup.attack
        assert attack is not None
        notes = NoteTaker(self.client_setup, attack)
        for branch, models in self.recorder.models.items():
            uploads = self.recorder.sent[branch]
            for round, model in models.items():
                if round in uploads:
                    notes.receive(branch, round, *model)
                else:  # after the last
                    notes.end(branch, round - 1, *model)
            for round, upload in uploads.items():
                notes.send(branch, round, *upload)
        for branch, replay in self.recorder.played.items():
            if notes.replays(branch):
                notes.replay(replay)
        return notes

    def with_notes(self, notes: NoteTaker | None = None) -> Run:
        """The same federation with what the attack's client read, its untrained control too."""
        notes = notes or self.note_taker()
        play_untrained(notes, self.schedule, self.recording.untrained())
        return replace(self, notes=notes)


def federated(setup: Plan, folder: Path, **client_setup: Any) -> Run:
    """The rounds of every branch on the inline backend; `site` replaces fields of the clients'."""
    folder.mkdir()
    recorder = Recorder(setup.experiment.holder)
    context = changed(make_client_setup(setup, folder, Event()), **client_setup)
    run = FederatedRun(
        setup, context, Ledger(folder / "clients"), RecordingWriter(folder / "recording"),
        lambda state: None, recorder,  # type: ignore[arg-type]
        Stopwatch(time.perf_counter()), Display(0, True),
    )  # fmt: skip
    return Run(**vars(federate(run)), recorder=recorder)


def evaluation(run: Run, attacks: Mapping[str, PluginChoice] | None = None) -> Suite:
    """The attacks of a run, or others, on its models."""
    chosen = run.plan.experiment.attack_choices if attacks is None else attacks
    return suite_of_run(run, run.plan, run.client_setup, run.cast, chosen, run.archive, Failures())


def unattacked(setup: Plan) -> Plan:
    """The same federation and images without the active attack: no round is attacked."""
    experiment = replace(setup.experiment, attacks=("similarity",), attack={})
    return replace(setup, experiment=experiment)


def weights(run: Run, branch: str = "main") -> dict[int, State]:
    """Global weights of `branch` by round, as they were kept."""
    return {r: run.recording.load(branch, r)[0] for r in run.recording.rounds(branch)}


def same(one: State, other: State) -> bool:
    """Whether two states hold the same names and bits."""
    return set(one) == set(other) and all(torch.equal(one[n], other[n]) for n in one)


Finished = Callable[[str], Run]


@pytest.fixture(scope="package")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """`finished(flags)`: a federation run once for all who only read it."""
    results: dict[str, Run] = {}

    def run(flags: str) -> Run:
        flags = " ".join(flags.split())
        if flags not in results:
            results[flags] = federated(planned(flags), tmp_path_factory.mktemp("finished") / "run")
        return results[flags]

    return run
