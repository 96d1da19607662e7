"""The rounds of a run: clean ones, attacked ones, and the control branches beside them.

Branches: `main` is the federation of the experiment. With an active attack, `zero` repeats its
attacked rounds from the same state with the attacker disarmed, and `sets` with an attacker that
acts on sets of images of one kind, each by itself. With an active attack or a server that attacks,
`placebo` repeats the whole run with honest clients that hold images outside every
evaluated set. `untrained` is the first model of a run that a server pre-trains.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from flwr.serverapp import Grid

from clients.site import Site
from fedmia.data.split import Split
from fedmia.federation.snapshot import Snapshot, SnapshotStore, StateStore, Update
from fedmia.results import RoundInfo
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch, covered
from fedmia.seeding import rng
from fedmia.settings.experiment import Experiment
from fedmia.settings.roles import sees
from fedmia.ssl.base import State, under
from strategies.base import Course, FederatedStrategy, Round, cohort
from strategies.crew import Crew, FederationError


@dataclass(frozen=True)
class Schedule:
    """The federated rounds of an experiment, 1 to `last`; 0 is what they begin with."""

    experiment: Experiment

    @property
    def clean(self) -> int:
        """Last round before the first that may be attacked; of all where none may."""
        return self.last - self.experiment.attack_rounds

    @property
    def last(self) -> int:
        return self.experiment.federation.rounds

    def evaluated(self) -> list[int]:
        """Rounds whose model is scored: evenly spread, with the first, the last clean, the last."""
        spread = np.linspace(0, self.last, self.experiment.federation.snapshots + 1)
        return sorted({*(int(r) for r in spread.round()), self.clean, self.last})

    def updates_kept(self) -> set[int]:
        """Rounds whose updates by client stay on disk: `federation.keep_updates`, evenly spread,
        or the evaluated ones where the server attacks."""
        asked = self.experiment.federation.keep_updates
        if asked is None:
            server = sees(self.experiment.attacker).vantage == "server"
            return {r for r in self.evaluated() if r} if server else set()
        spread = np.linspace(0, self.last, asked + 1)[1:]
        return {int(r) for r in spread.round()} - {0}

    def course(self, branch: str, first: int, last: int, *, craft: bool) -> Course:
        """The rounds after `first` to `last` of a branch."""
        share = self.experiment.federation.participation
        return Course(branch, first, last, craft, share, self.experiment.seed)

    def takes_part(self, client: int, round: int) -> bool:
        """Whether the client is drawn for the round, in every branch."""
        course = self.course("main", 0, self.last, craft=False)
        return client in cohort(course, round, self.experiment.federation.clients)


class Reader(Protocol):
    """What the active client notes of the models that it holds, as the rounds pass."""

    def received(self, branch: str, round: int, snapshot: Snapshot) -> None:
        """A model that it received for attacked `round`, or after the last one."""

    def sent(self, branch: str, round: int, snapshot: Snapshot) -> None:
        """What it uploaded in attacked `round`."""


class Interrupted(Exception):
    """The user ended the run; what is finished is kept."""


@dataclass
class Federation:
    """One run's branches over one grid.

    Attributes:
        probe: kNN accuracy of a global state.
        reader: of attacked rounds.
        crew: the clients, and what becomes of those that fail.
        failure: filled in where the rounds ended before their time, but for an interruption.
        rounds: filled in: one row a finished round of `main`.
        complete: every branch ran to its end.
    """

    experiment: Experiment
    site: Site
    split: Split
    store: StateStore
    snapshots: SnapshotStore
    probe: Callable[[State], float | None]
    reader: Reader | None
    watch: Stopwatch
    display: Display
    crew: Crew
    rounds: list[RoundInfo] = field(default_factory=list)
    complete: bool = False
    failure: FederationError | None = None
    _unsaved: Snapshot | None = field(default=None, init=False, repr=False)
    _crafted: State | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.experiment)
        self.holder = self.experiment.holder
        self.active = self.site.attack is not None

    def run(self, grid: Grid) -> None:
        """All branches; returns early, with what is finished, when interrupted or a client failed
        and the crew's policy can do no more."""
        try:
            self._main(grid)
            self.complete = True
            return
        except Interrupted:
            pass
        except FederationError as error:
            self.failure = error
        if self._unsaved is not None:
            self.snapshots.save("main", self._unsaved)

    def _main(self, grid: Grid) -> None:
        state, strategy = self.clean(grid, "main")
        if self.active:
            for branch in ("zero", "sets"):
                self.store.fork("main", branch, len(self.site.roles))
            beside = {branch: copy.deepcopy(strategy) for branch in ("zero", "sets")}
            self.attacked(grid, strategy, "main", state)
            for branch, fresh in beside.items():
                self.keep(branch, self.schedule.clean, state)
                self.attacked(grid, fresh, branch, state)
        if self.split.placebo_parts:
            state, strategy = self.clean(grid, "placebo")
            self.attacked(grid, strategy, "placebo", state)

    def clean(self, grid: Grid, branch: str) -> tuple[State, FederatedStrategy]:
        """Rounds before the first that may be attacked, and the strategy with its state."""
        state = self.site.method(-1, None).shared_state()
        self.keep(branch, 0, state)
        if self.experiment.pretrain.mode != "none":
            self.keep("untrained", 0, state)
            state = self.pretrained(branch, state)
            self.keep(branch, 0, state)
        strategy: FederatedStrategy = self.experiment.strategy.build("strategy")
        course = self.schedule.course(branch, 0, self.schedule.clean, craft=False)
        return self._stretch(grid, strategy, course, state), strategy

    def attacked(self, grid: Grid, strategy: FederatedStrategy, branch: str, state: State) -> None:
        """The rounds that may be attacked."""
        first, last = self.schedule.clean, self.schedule.last
        if first == last:
            return
        state = self._stretch(
            grid, strategy, self.schedule.course(branch, first, last, craft=True), state
        )
        self._read(branch, last + 1, state)

    def pretrained(self, branch: str, state: State) -> State:
        """The state after a server's own training; of all that clients hold, or of public images.

        It runs through a schedule of its own, before that of the federation.
        """
        pretrain, site = self.experiment.pretrain, self.site
        pooled = np.concatenate(site.dealt(branch))
        indices = pooled if pretrain.mode == "pooled" else self.split.public
        method = site.method(-1, len(indices))
        method.load_shared(state)
        method.begin_first_round()
        train = replace(site.train, local_epochs=pretrain.epochs)
        images, stream = site.images[indices], rng(self.experiment.seed, "pretrain")
        job = replace(site, train=train, total_rounds=1).job(method, images, 1, stream)
        with self.watch.part("train"):
            job.run()
        if site.stopped():
            raise Interrupted
        return method.shared_state()

    def _stretch(
        self, grid: Grid, strategy: FederatedStrategy, course: Course, state: State
    ) -> State:
        received = state

        def seen(update: Update) -> None:
            self._seen(course, received, update)

        for done in strategy.rounds(grid, course, state, self.crew, seen):
            self._record(course, received, done)
            received = done.state
        return received

    def _seen(self, course: Course, received: State, update: Update) -> None:
        """Keep what is to be read of an update, as it is taken."""
        branch, round = course.branch, update.round
        if branch in ("main", "placebo") and round in self.schedule.updates_kept():
            if not self.snapshots.updates(branch, round):
                self.snapshots.save_before(branch, round, received)
            self.snapshots.save_update(branch, round, update.client, update.state)
        if course.craft and update.client == self.holder:
            self._crafted = update.state

    def _record(self, course: Course, received: State, done: Round) -> None:
        """Keep what is to be read of a round whose clients had `received`."""
        branch, round, told = course.branch, done.number, done.metrics
        spans = [(m["began"], m["ended"]) for m in told.values() if "began" in m]
        self.watch.move("train", min(covered(spans), done.seconds))
        crafted, self._crafted = self._crafted, None
        if crafted is not None:
            self._read(branch, round, received)
        if self.site.stopped():
            self.snapshots.drop_updates(branch, round)
            raise Interrupted
        if crafted is not None and self.reader is not None:
            with self.watch.part("attacks"):
                self.reader.sent(branch, round, self._snapshot(branch, round, crafted))
        honest = {c: m for c, m in told.items() if c not in self.experiment.malicious_clients}
        losses = [m["loss"] for m in honest.values() if "loss" in m]
        loss = float(np.mean(losses)) if losses else None
        self._note(branch, round, course.craft, loss, done.state)

    def _read(self, branch: str, round: int, state: State) -> None:
        """What the active client notes of a model that it received for `round`."""
        if self.reader is not None:
            with self.watch.part("attacks"):
                self.reader.received(branch, round, self._snapshot(branch, round, state))

    def _note(
        self, branch: str, round: int, attacked: bool, loss: float | None, state: State
    ) -> None:
        """Keep the round where it is to be scored, or hold the last of `main` for an interruption;
        probe it, and tell."""
        main, knn = branch == "main", None
        evaluated = round in self.schedule.evaluated()
        if evaluated:
            self.keep(branch, round, state)
            self._unsaved = None
        elif main:
            self._unsaved = self._snapshot(branch, round, state)
        if evaluated and main:
            with self.watch.part("probes"):
                knn = self.probe(state)
        if main:
            self.rounds.append(RoundInfo(round, attacked, loss, knn))
        self.display.round(branch, loss, knn)

    def keep(self, branch: str, round: int, state: State) -> None:
        """Write a snapshot."""
        self.snapshots.save(branch, self._snapshot(branch, round, state))

    def _snapshot(self, branch: str, round: int, state: State) -> Snapshot:
        """The weights with the holder's bank; its key encoder stays with the client."""
        kept = self.store.load(branch, self.holder) if self.holder is not None else None
        bank = under("local.", kept.tensors if kept else {})
        return Snapshot(round, state, {n: t for n, t in bank.items() if not n.startswith("key.")})
