"""The rounds of a run: pre-training, the attacked rounds, and the control branches beside them.

Branches: `main` is the federation of the experiment. With an active attack, `zero` repeats its
attacked rounds from the same state with the attacker disarmed. With an active attack or a server
that attacks, `placebo` repeats the whole run with honest clients that hold images outside every
evaluated set.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

import numpy as np
import torch
from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from clients.base import Site
from fedmia import registry
from fedmia.data.split import Split
from fedmia.federation.snapshot import Snapshot, SnapshotStore, StateStore, Update
from fedmia.results import RoundInfo
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch, covered
from fedmia.seeding import rng
from fedmia.settings.experiment import Experiment
from fedmia.ssl.base import State
from fedmia.ssl.train import Job, make_optimizer
from strategies.base import Course, FederatedStrategy


class Interrupted(Exception):
    """The user ended the run; what is finished is kept."""


@dataclass
class Federation:
    """One run's branches over one grid.

    Attributes:
        holder: partition id of the client that the attacker reads through, or None.
        active: the run has an active attack, so `zero` runs too.
        placebo: `placebo` runs too.
        probe: kNN accuracy of a global state.
        stop: set when the user interrupts.
        rounds: filled in: one row a finished round of `main`.
        complete: every branch ran to its end.
    """

    experiment: Experiment
    site: Site
    split: Split
    store: StateStore
    snapshots: SnapshotStore
    holder: int | None
    active: bool
    placebo: bool
    probe: Callable[[State], float | None]
    watch: Stopwatch
    stop: Event
    display: Display = field(default_factory=lambda: Display(0, True))
    rounds: list[RoundInfo] = field(default_factory=list)
    complete: bool = False
    _unsaved: Snapshot | None = field(default=None, init=False, repr=False)
    _received: State = field(default_factory=dict, init=False, repr=False)

    @property
    def clean(self) -> int:
        """Last round before the first that may be attacked."""
        return self.experiment.pretrain.rounds

    @property
    def last(self) -> int:
        return self.clean + self.experiment.federation.rounds

    def evaluated(self) -> list[int]:
        """Rounds whose model is scored: evenly spread, with the first, the last clean, the last."""
        spread = np.linspace(0, self.last, self.experiment.federation.snapshots + 1)
        return sorted({*(int(r) for r in spread.round()), self.clean, self.last})

    def total_rounds(self) -> int:
        """Rounds over all branches, for the display."""
        attacked = self.last - self.clean
        return self.last * (2 if self.placebo else 1) + (attacked if self.active else 0)

    def updates_kept(self) -> set[int]:
        """Rounds whose updates by client stay on disk: `federation.keep_updates`, evenly spread,
        or the evaluated ones where the server attacks; never those of a server's own training."""
        asked, pretrain = self.experiment.federation.keep_updates, self.experiment.pretrain
        first = self.clean if pretrain.mode in ("pooled", "public") else 0
        if asked is None:
            server = self.experiment.attacker == "server"
            return {r for r in self.evaluated() if r > first} if server else set()
        spread = np.linspace(first, self.last, asked + 1)[1:]
        return {int(r) for r in spread.round()} - {first}

    def run(self, grid: Grid) -> None:
        """All branches; returns early, with what is finished, when interrupted."""
        try:
            self._main(grid)
            self.complete = True
        except Interrupted:
            if self._unsaved is not None:
                self.snapshots.save("main", self._unsaved)

    def _main(self, grid: Grid) -> None:
        first = self.site.method(-1, None).shared_state()
        state, strategy = self.pretrain(grid, "main", "members", first)
        if self.active:
            self.store.fork("main", "zero", len(self.site.roles))
        disarmed = copy.deepcopy(strategy)
        self.stretch(grid, strategy, "main", "members", state, craft=self.active)
        if self.active:
            self.keep("zero", self.clean, state, self.holder)
            self.stretch(grid, disarmed, "zero", "members", state, craft=True)
        if self.placebo:
            state, strategy = self.pretrain(grid, "placebo", "placebo", first)
            self.stretch(grid, strategy, "placebo", "placebo", state, craft=self.active)

    def _strategy(self) -> FederatedStrategy:
        chosen = self.experiment.strategy
        built: FederatedStrategy = registry.build("strategy", chosen.name, chosen.options)
        return built

    def pretrain(
        self, grid: Grid, branch: str, data: str, state: State
    ) -> tuple[State, FederatedStrategy]:
        """Rounds before the first that may be attacked, and the strategy with its state."""
        self.keep(branch, 0, state, None)
        strategy, mode = self._strategy(), self.experiment.pretrain.mode
        if mode in ("pooled", "public"):
            parts = self.site.parts[data]
            indices = np.concatenate(parts) if mode == "pooled" else self.split.public
            return self._server_training(branch, state, indices), strategy
        if self.clean:
            course = self._course(branch, data, 0, self.clean, craft=False)
            state = self._run(grid, strategy, course, state)
        return state, strategy

    def stretch(
        self,
        grid: Grid,
        strategy: FederatedStrategy,
        branch: str,
        data: str,
        state: State,
        *,
        craft: bool,
    ) -> None:
        """The rounds after pre-training."""
        course = self._course(branch, data, self.clean, self.last, craft=craft)
        self._run(grid, strategy, course, state)

    def _course(self, branch: str, data: str, first: int, last: int, *, craft: bool) -> Course:
        share = self.experiment.federation.participation
        return Course(branch, data, first, last, craft, share, self.experiment.seed)

    def _run(self, grid: Grid, strategy: FederatedStrategy, course: Course, state: State) -> State:
        strategy.follow(course, len(self.site.roles), self._on_round, grid)
        start, self._received = ArrayRecord(torch_state_dict=state), state
        result = strategy.start(grid, start, num_rounds=course.last - course.first)
        strategy.on_round = None  # it holds this object; a fork of the strategy must not
        return dict(result.arrays.to_torch_state_dict())

    def _on_round(
        self, course: Course, round: int, state: State, updates: list[Update], seconds: float
    ) -> None:
        spans = [(u.metrics["began"], u.metrics["ended"]) for u in updates if "began" in u.metrics]
        self.watch.move("train", min(covered(spans), seconds))
        if self.stop.is_set():
            raise Interrupted
        honest = [u for u in updates if self.site.roles[u.client] == "honest"]
        losses = [u.metrics["loss"] for u in honest if "loss" in u.metrics]
        loss = float(np.mean(losses)) if losses else None
        if course.craft and self.holder is not None:
            sent = [u.state for u in updates if u.client == self.holder]
            if sent:
                self.snapshots.save_sent(course.branch, round, sent[0])
        if course.branch != "zero" and round in self.updates_kept():
            self.snapshots.save_before(course.branch, round, self._received)
            for update in updates:
                self.snapshots.save_update(course.branch, round, update.client, update.state)
        self._received = state
        self._finish(course.branch, round, state, self.holder, attacked=course.craft)
        self._note(course.branch, round, course.craft, loss, state)

    def _note(
        self, branch: str, round: int, attacked: bool, loss: float | None, state: State
    ) -> None:
        knn = None
        if branch == "main":
            if round in self.evaluated():
                with self.watch.part("probes"):
                    knn = self.probe(state)
            phase = "pretrain" if round <= self.clean else "federated"
            self.rounds.append(RoundInfo(round, phase, attacked, loss, knn))
        self.display.round(branch, loss, knn)

    def _finish(
        self, branch: str, round: int, state: State, holder: int | None, *, attacked: bool
    ) -> None:
        """Keep the round where it is to be scored; hold the last of `main` for an interruption."""
        wanted = attacked or (branch == "main" and round in self.evaluated())
        if wanted or round in (self.clean, self.last):
            self.keep(branch, round, state, holder)
            self._unsaved = None
        elif branch == "main":
            self._unsaved = self._snapshot(branch, round, state, holder)

    def keep(self, branch: str, round: int, state: State, holder: int | None) -> None:
        """Write a snapshot."""
        self.snapshots.save(branch, self._snapshot(branch, round, state, holder))

    def _snapshot(self, branch: str, round: int, state: State, holder: int | None) -> Snapshot:
        """The weights with the holder's bank; its key encoder stays with the client."""
        kept = self.store.load(branch, holder) if holder is not None else None
        tensors = kept.tensors if kept else {}
        bank = {
            n[6:]: t
            for n, t in tensors.items()
            if n.startswith("local.") and not n.startswith("local.key.")
        }
        return Snapshot(round, state, bank)

    def _server_training(self, branch: str, state: State, indices: np.ndarray) -> State:
        """Pre-training by the server itself, in `rounds` rounds of local epochs on `indices`."""
        train, seed = self.experiment.train, self.experiment.seed
        method = self.site.method(-1, len(indices))
        method.load_shared(state)
        method.begin_first_round()
        optimizer = make_optimizer(method, train)
        steps = train.local_epochs * -(-len(indices) // train.batch_size)
        spec = registry.build("ssl", *self.site.ssl)
        for round in range(1, self.clean + 1):
            job = Job(
                method=method,
                optimizer=optimizer,
                images=self.site.images[indices],
                augment=spec.augment,
                train=train,
                rng=rng(seed, "pretrain", round),
                step=(round - 1) * steps,
                total_steps=self.last * steps,
                device=torch.device(self.site.device),
                stop=self.site.stopped,
            )
            with self.watch.part("train"):
                metrics = job.run()
            if self.stop.is_set():
                raise Interrupted
            state = method.shared_state()
            self._finish(branch, round, state, None, attacked=False)
            self._note(branch, round, False, metrics["loss"], state)
        return state
