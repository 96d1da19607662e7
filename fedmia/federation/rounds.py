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

import numpy as np
from flwr.serverapp import Grid

from clients.site import Site
from fedmia.data.split import Split
from fedmia.federation.snapshot import Snapshot, SnapshotStore, StateStore
from fedmia.results import RoundInfo
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch, covered
from fedmia.seeding import rng
from fedmia.settings.experiment import Experiment
from fedmia.settings.roles import sees
from fedmia.ssl.base import State, under
from strategies.base import Course, FederatedStrategy, Round


@dataclass(frozen=True)
class Schedule:
    """The rounds of an experiment, counted on over pre-training and federation."""

    experiment: Experiment

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

    def updates_kept(self) -> set[int]:
        """Rounds whose updates by client stay on disk: `federation.keep_updates`, evenly spread,
        or the evaluated ones where the server attacks; never those of a server's own training."""
        asked, pretrain = self.experiment.federation.keep_updates, self.experiment.pretrain
        first = self.clean if pretrain.mode in ("pooled", "public") else 0
        if asked is None:
            server = sees(self.experiment.attacker).vantage == "server"
            return {r for r in self.evaluated() if r > first} if server else set()
        spread = np.linspace(first, self.last, asked + 1)[1:]
        return {int(r) for r in spread.round()} - {first}


class Interrupted(Exception):
    """The user ended the run; what is finished is kept."""


@dataclass
class Federation:
    """One run's branches over one grid.

    Attributes:
        probe: kNN accuracy of a global state.
        rounds: filled in: one row a finished round of `main`.
        complete: every branch ran to its end.
    """

    experiment: Experiment
    site: Site
    split: Split
    store: StateStore
    snapshots: SnapshotStore
    probe: Callable[[State], float | None]
    watch: Stopwatch
    display: Display
    rounds: list[RoundInfo] = field(default_factory=list)
    complete: bool = False
    _unsaved: Snapshot | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.experiment)
        self.holder = self.experiment.holder
        self.active = self.site.attack is not None

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
        state, strategy = self.pretrain(grid, "main", first)
        if self.active:
            self.store.fork("main", "zero", len(self.site.roles))
        disarmed = copy.deepcopy(strategy)
        self.attacked(grid, strategy, "main", state)
        if self.active:
            self.keep("zero", self.schedule.clean, state)
            self.attacked(grid, disarmed, "zero", state)
        if self.split.placebo_parts:
            state, strategy = self.pretrain(grid, "placebo", first)
            self.attacked(grid, strategy, "placebo", state)

    def pretrain(self, grid: Grid, branch: str, state: State) -> tuple[State, FederatedStrategy]:
        """Rounds before the first that may be attacked, and the strategy with its state."""
        self.keep(branch, 0, state)
        strategy: FederatedStrategy = self.experiment.strategy.build("strategy")
        mode, clean = self.experiment.pretrain.mode, self.schedule.clean
        if mode in ("pooled", "public"):
            pooled = np.concatenate(self.site.dealt(branch))
            indices = pooled if mode == "pooled" else self.split.public
            return self._server_training(branch, state, indices), strategy
        return self._stretch(grid, strategy, branch, state, 0, clean, craft=False), strategy

    def attacked(self, grid: Grid, strategy: FederatedStrategy, branch: str, state: State) -> None:
        """The rounds after pre-training."""
        first, last = self.schedule.clean, self.schedule.last
        self._stretch(grid, strategy, branch, state, first, last, craft=self.active)

    def _stretch(
        self, grid: Grid, strategy: FederatedStrategy, branch: str, state: State,
        first: int, last: int, *, craft: bool,
    ) -> State:  # fmt: skip
        share, seed = self.experiment.federation.participation, self.experiment.seed
        course = Course(branch, first, last, craft, share, seed)
        for done in strategy.rounds(grid, course, state, len(self.site.roles)):
            self._record(course, state, done)
            state = done.state
        return state

    def _record(self, course: Course, received: State, done: Round) -> None:
        """Keep what is to be read of a round whose clients had `received`."""
        branch, round, updates = course.branch, done.number, done.updates
        spans = [(u.metrics["began"], u.metrics["ended"]) for u in updates if "began" in u.metrics]
        self.watch.move("train", min(covered(spans), done.seconds))
        if self.site.stopped():
            raise Interrupted
        honest = [u for u in updates if u.client not in self.experiment.malicious_clients]
        losses = [u.metrics["loss"] for u in honest if "loss" in u.metrics]
        kept = branch != "zero" and round in self.schedule.updates_kept()
        if kept:
            self.snapshots.save_before(branch, round, received)
        for update in updates:
            if course.craft and update.client == self.holder:
                self.snapshots.save_sent(branch, round, update.state)
            if kept:
                self.snapshots.save_update(branch, round, update.client, update.state)
        loss = float(np.mean(losses)) if losses else None
        self._note(branch, round, course.craft, loss, done.state)

    def _note(
        self, branch: str, round: int, attacked: bool, loss: float | None, state: State
    ) -> None:
        """Keep the round where it is to be scored, or hold the last of `main` for an interruption;
        probe it, and tell."""
        schedule, main, knn = self.schedule, branch == "main", None
        evaluated = main and round in schedule.evaluated()
        if attacked or evaluated or round in (schedule.clean, schedule.last):
            self.keep(branch, round, state)
            self._unsaved = None
        elif main:
            self._unsaved = self._snapshot(branch, round, state)
        if evaluated:
            with self.watch.part("probes"):
                knn = self.probe(state)
        if main:
            phase = "pretrain" if round <= schedule.clean else "federated"
            self.rounds.append(RoundInfo(round, phase, attacked, loss, knn))
        self.display.round(branch, loss, knn)

    def keep(self, branch: str, round: int, state: State) -> None:
        """Write a snapshot."""
        self.snapshots.save(branch, self._snapshot(branch, round, state))

    def _snapshot(self, branch: str, round: int, state: State) -> Snapshot:
        """The weights with the holder's bank; its key encoder stays with the client."""
        kept = self.store.load(branch, self.holder) if self.holder is not None else None
        bank = under("local.", kept.tensors if kept else {})
        return Snapshot(round, state, {n: t for n, t in bank.items() if not n.startswith("key.")})

    def _server_training(self, branch: str, state: State, indices: np.ndarray) -> State:
        """Pre-training by the server itself, in `rounds` rounds of local epochs on `indices`."""
        site, seed = self.site, self.experiment.seed
        method = site.method(-1, len(indices))
        method.load_shared(state)
        method.begin_first_round()
        job = site.job(method, site.images[indices], 1, rng(seed, "pretrain", 1))
        for round in range(1, self.schedule.clean + 1):
            job.rng = rng(seed, "pretrain", round)
            with self.watch.part("train"):
                metrics = job.run()
            if site.stopped():
                raise Interrupted
            state = method.shared_state()
            self._note(branch, round, False, metrics["loss"], state)
        return state
