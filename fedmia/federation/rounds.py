"""The rounds of a run: clean ones, attacked ones, and the control branches beside them.

Branches: `main` is the federation of the experiment. With an active attack, `zero` repeats its
attacked rounds from the same state with the attacker disarmed, and the first of them is replayed
for each batch of images that is acted on alone (`fedmia.federation.forks`). With an active attack
or a server that attacks, or where it is asked for, `placebo` repeats the whole run with honest
clients that hold images outside every evaluated set. `untrained` is the first model of a run that a
server pre-trains.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.serverapp import Grid

from clients.client_context import ClientContext
from fedmia.config.roles import is_server
from fedmia.defenses.stack import require_account
from fedmia.federation.checkpoint import (
    BranchState,
    Checkpoint,
    CheckpointPart,
    restore_server,
    server_state,
)
from fedmia.federation.forks import Fork, bank_of
from fedmia.federation.inline import LocalGrid
from fedmia.federation.ledger import Ledger
from fedmia.federation.outlook import describe_disk
from fedmia.federation.plan import Plan, divergence_hint
from fedmia.federation.recorder import TrajectoryRecorder
from fedmia.federation.schedule import Schedule
from fedmia.options.errors import prefix_errors
from fedmia.options.option import check_type
from fedmia.options.seeding import rng, root
from fedmia.recording.format import RoundRecord
from fedmia.recording.writer import FORKS, RecordingWriter
from fedmia.records import Aggregation, Fault, RoundInfo
from fedmia.records.privacy import ClientDefence
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch, covered_seconds
from fedmia.ssl.base import State, under
from fedmia.storage.archive import pack, unpack
from fedmia.storage.snapshot import StateStore, Update
from strategies.base import FederatedStrategy, Round
from strategies.cohort import RoundRange
from strategies.failure_policy import Adversary, FailurePolicy, FederationError

# Records of a checkpoint's index.
CHECKPOINTED = {
    "rounds": Sequence[RoundInfo],
    "faults": Sequence[Fault],
    "aggregation": Aggregation | None,
}


class RunInterrupted(Exception):
    """The user ended the run; what is finished is kept."""


@dataclass
class FederatedRun:
    """All branches of one run, over one grid of clients.

    Attributes:
        plan: settings, images and their roles.
        client_context: what all clients of the run share.
        store: local states of the clients.
        recording: models and updates of the rounds, by branch.
        probe: kNN accuracy of a global state.
        recorder: notes what the active client sees; None where no attack is active.
        watch: notes the seconds of each part.
        display: progress on the terminal.
        checkpoint: written as the rounds pass, if any; clients' states are then in a Ledger.
        head: where the branch at work stands.
        forked: where those beside the attacked rounds begin.
        rounds: filled in: one row a finished round of `main`.
        aggregation: filled in: what its server did.
        failure: filled in where the rounds ended before their time, but for an interruption.
    """

    plan: Plan
    client_context: ClientContext
    store: StateStore
    recording: RecordingWriter
    probe: Callable[[State], float | None]
    recorder: TrajectoryRecorder | None
    watch: Stopwatch
    display: Display
    checkpoint: Checkpoint | None = None
    head: BranchState | None = None
    forked: BranchState | None = None
    rounds: list[RoundInfo] = field(default_factory=list)
    aggregation: Aggregation | None = None
    failure: FederationError | None = None
    _unsaved: tuple[int, State, State] | None = field(default=None, init=False, repr=False)
    _crafted: State | None = field(default=None, init=False, repr=False)
    _fork: Fork | None = field(default=None, init=False, repr=False)
    _line: RoundRecord = field(default_factory=lambda: RoundRecord("", 0), init=False, repr=False)

    def __post_init__(self) -> None:
        self.experiment = experiment = self.plan.experiment
        self.schedule, self.holder = Schedule(experiment), experiment.holder
        self._root = root(self.client_context.noise_source, experiment.seed)
        options = experiment.federation
        self.failure_policy = FailurePolicy(
            options.clients,
            options.on_failure,
            options.client_timeout,
            max(options.min_clients, experiment.strategy.plugin("strategy").least),
            self.plan.cast.indispensable,
            say=self.display.warn,
            hint=f"{divergence_hint(experiment)} if training diverged",
        )
        self.active = self.client_context.attack is not None
        self._trained = [0] * len(self.client_context.roles)

    def run(self, grid: Grid) -> None:
        """Run all branches.

        It returns early, with the finished rounds, when the user interrupts the run or the failure
        policy ends it.
        """
        if isinstance(grid, LocalGrid):
            grid.on_reply = self._note_reply
        try:
            for branch in self.branches():
                self._run_branch(grid, branch)
            return
        except RunInterrupted:
            pass
        except FederationError as error:
            self.failure = error
        finally:
            self._drop_fork()  # of a round that was not finished
            if self.checkpoint:
                self.checkpoint.wait_for_writes()
        if self._unsaved is not None:
            self._keep_last(*self._unsaved)

    def _keep_last(self, round: int, state: State, bank: State) -> None:
        """Keep the last finished round of `main`, unless training had diverged by then."""
        try:
            self.probe(state)
        except FederationError as error:
            self.failure = self.failure and FederationError(f"round {round}: {error}")
            whole = self.recording.rounds("main")[-1]
            self.rounds[:] = [info for info in self.rounds if info.round <= whole]
        else:
            self.recording.save("main", round, state, bank)

    def _note_reply(self, branch: str, client: int) -> None:
        """Show how far the round is: a client takes as long as it has images (unknown: one)."""
        sizes = [len(part) or 1 for part in self.client_context.branch_parts(branch)]
        share = self.experiment.federation.participation
        clients = max(1, int(len(sizes) * share + 0.5))
        self.display.reply(sizes[client] / (sum(sizes) * share), clients)

    def branches(self) -> list[str]:
        """The branches whose rounds need clients, in their order."""
        beside = ["zero"] if self.active else []
        return ["main", *beside, *["placebo"] * bool(self.plan.cast.placebo_parts)]

    @property
    def complete(self) -> bool:
        """Whether every branch ran to its end."""
        at, end = self.head, (self.branches()[-1], self.schedule.last)
        return at is not None and (at.branch, at.round) == end

    def resume(self) -> None:
        """Go on from the last checkpoint; without one, begin anew.

        Raises:
            InputError: it is another run's.
            LookupError, TypeError, ValueError, AttributeError, SafetensorError: it is damaged.
        """
        assert self.checkpoint is not None and isinstance(self.store, Ledger)
        index = self.checkpoint.read()
        if index is None:
            self.recording.rewind(0)
            return
        self.store.restore(index["clients"])
        with prefix_errors(f"the checkpoint in '{self.checkpoint.root}'"):
            parts = {name: unpack(index[name], {}) for name in CHECKPOINTED}
            for name, kind in CHECKPOINTED.items():
                check_type(name, parts[name], kind)
        self.rounds[:], self.aggregation = parts["rounds"], parts["aggregation"]
        if self.aggregation is not None:
            self._trained = list(self.aggregation.trained)
        self.failure_policy.gone.update(map(int, index["gone"]))
        self.failure_policy.faults[:] = parts["faults"]
        self.watch.add(index["seconds"])
        self.head = self._load_head("head")
        if self.checkpoint.has("forked"):
            self.forked = self._load_head("forked")
        if self.recorder is not None and self.checkpoint.has("notes"):
            self.recorder.restore(*self.checkpoint.get("notes"))
        self.recording.rewind(int(index["recorded"]))
        if self.head.branch == "main" and self.head.round not in self.schedule.evaluated():
            self._unsaved = self.head.round, self.head.state, self._bank("main")
        self.display.skip(self._finished_rounds())

    def _finished_rounds(self) -> int:
        """Rounds of all branches up to the head."""
        assert self.head is not None
        order, last, clean = self.branches(), self.schedule.last, self.schedule.clean
        begun = {b: clean if b == "zero" else 0 for b in order}
        here = order.index(self.head.branch)
        return sum(last - begun[b] for b in order[:here]) + self.head.round - begun[order[here]]

    def _load_head(self, part: str) -> BranchState:
        """A head as the checkpoint keeps it."""
        assert self.checkpoint is not None
        tensors, about = self.checkpoint.get(part)
        strategy: FederatedStrategy = self.experiment.strategy.build("strategy")
        restore_server(strategy, under("server.", tensors), about["server"])
        state = under("global.", tensors)
        shapes = [
            {name: (tensor.shape, tensor.dtype) for name, tensor in one.items()}
            for one in (state, self.client_context.method(-1, None).shared_state())
        ]
        if shapes[0] != shapes[1]:
            raise ValueError("its weights are of another model than its settings say")
        if not 0 <= about["round"] <= self.schedule.last:
            raise ValueError(f"it says round {about['round']} of {self.schedule.last}")
        return BranchState(about["branch"], about["round"], state, strategy)

    def _run_branch(self, grid: Grid, branch: str) -> None:
        """The rounds of a branch that are left."""
        order = self.branches()
        if self.head is None or order.index(self.head.branch) < order.index(branch):
            self.head = self._begin_branch(branch)
            self._checkpoint(at_once=True)
        if self.head.branch == branch:
            self._run_rounds(grid, self.head, self.schedule.clean, craft=False)
            self._run_rounds(grid, self.head, self.schedule.last, craft=True)

    def _begin_branch(self, branch: str) -> BranchState:
        """Where a branch begins."""
        if branch == "zero":
            assert self.forked is not None
            at = replace(self.forked, branch=branch, strategy=copy.deepcopy(self.forked.strategy))
            self.keep(branch, at.round, at.state)
            return at
        state = self.client_context.method(-1, None).shared_state()
        if branch == "main":
            for line in describe_disk(self.schedule, state, self.branches()):
                self.display.line(line)
        self.keep(branch, 0, state)
        if self.experiment.pretrain.mode != "none":
            self.keep("untrained", 0, state)
            state = self.pretrain_state(branch, state)
            self.keep(branch, 0, state)
        return BranchState(branch, 0, state, self.experiment.strategy.build("strategy"))

    def _begin_control(self, at: BranchState) -> None:
        """Where the branch beside the attacked rounds begins."""
        self.store.fork("main", "zero", len(self.client_context.roles))
        self.forked = replace(at, strategy=copy.deepcopy(at.strategy))

    def _checkpoint(self, at_once: bool = False) -> None:
        """Write one where a stretch ends, and every so many rounds where the disk keeps pace."""
        at, checkpoint = self.head, self.checkpoint
        if at is None or checkpoint is None or not checkpoint.every:
            return
        at_once |= at.round in (self.schedule.clean, self.schedule.last)
        if not at_once and (at.round % checkpoint.every or checkpoint.is_behind()):
            return
        assert isinstance(self.store, Ledger)
        parts: dict[str, CheckpointPart] = {"head": self._pack_head(at)}
        if self.forked is not None:
            parts["forked"] = "forked" if checkpoint.has("forked") else self._pack_head(self.forked)
        if self.recorder is not None:
            parts["notes"] = self.recorder.notes()
        self.watch.claim()
        about = {
            "rounds": pack(self.rounds, {}),
            "gone": sorted(self.failure_policy.gone),
            "faults": pack(self.failure_policy.faults, {}),
            "seconds": dict(self.watch.seconds),
            "aggregation": pack(self.aggregation, {}),
        }
        about["recorded"], force = self.recording.pending()
        checkpoint.write(about, parts, self.store, force)

    def _pack_head(self, at: BranchState) -> CheckpointPart:
        """A head as the checkpoint keeps it."""
        tensors, plain = server_state(at.strategy)
        both = {f"global.{n}": t for n, t in at.state.items()}
        both |= {f"server.{n}": t.clone() for n, t in tensors.items()}  # it is written later
        return both, {"branch": at.branch, "round": at.round, "server": plain}

    def pretrain_state(self, branch: str, state: State) -> State:
        """Train on the server before the first round, on all clients' images or on public ones.

        This training has its own learning-rate schedule, before that of the federation.

        Args:
            branch: `main` or `placebo`, whose clients hold other images.
            state: the first model's weights, by name.

        Returns:
            The weights after it.

        Raises:
            RunInterrupted: the user ended the run.
        """
        pretrain, client_context = self.experiment.pretrain, self.client_context
        pooled = np.concatenate(client_context.branch_parts(branch))
        indices = pooled if pretrain.mode == "pooled" else client_context.public
        method = client_context.method(-1, len(indices))
        method.load_shared(state)
        method.begin_first_round()
        train = replace(self.experiment.train, local_epochs=pretrain.epochs or 0)
        once = replace(self.experiment.federation, rounds=1)
        apart = replace(self.experiment, train=train, federation=once)
        images, stream = client_context.images[indices], rng(self.experiment.seed, "pretrain")
        job = replace(client_context, experiment=apart).job(method, images, 1, stream)
        with self.watch.part("train"):
            job.run()
        if client_context.is_stopped():
            raise RunInterrupted
        return method.shared_state()

    def _run_rounds(self, grid: Grid, at: BranchState, last: int, *, craft: bool) -> None:
        """Run the rounds after `at.round`, to `last`; `at` follows them.

        `FederatedStrategy.rounds` leads from the cohort to the aggregate. What stands here happens
        between two rounds: it keeps what is scored later.
        """
        if at.round >= last:
            return
        course = self.schedule.course(at.branch, at.round, last, craft=craft)
        course = replace(course, seed=self._root)

        def observe(update: Update) -> None:
            self._note_update(course, at.state, update)

        self._prepare_fork(course, at)
        for done in at.strategy.rounds(grid, course, at.state, self.failure_policy, observe):
            # 1. Keep what attacks and probes will read of the round.
            self._record(course, at.state, done)
            # 2. Note what the server did, and what privacy that promises.
            if at.branch == "main":
                self.aggregation = self._describe_aggregation(at.strategy)
            # 3. Go on from the aggregate.
            at.round, at.state = done.number, done.state
            # 4. Before the first attacked round, note where the control branch will begin.
            if self.active and (at.branch, at.round) == ("main", self.schedule.clean):
                self._begin_control(at)
            # 5. Write a checkpoint where one is due.
            self._checkpoint()
            # 6. Keep the state before the next round, if that round will be replayed.
            self._prepare_fork(course, at)

    def _drop_fork(self) -> None:
        """Forget the round to be replayed, with the updates that were kept for it."""
        if self._fork is not None:
            self.recording.drop_updates(FORKS, self._fork.round)
        self._fork = None

    def _prepare_fork(self, course: RoundRange, at: BranchState) -> None:
        """Note how things stand before the next round, if it is the one to be replayed."""
        recorder, round, holder = self.recorder, at.round + 1, self.holder
        if recorder is None or holder is None or not course.craft or not recorder.forks(at.branch):
            return
        attacked = range(self.schedule.clean + 1, self.schedule.last + 1)
        if round != next((r for r in attacked if self.schedule.takes_part(holder, r)), None):
            return
        strategy = copy.deepcopy(at.strategy)
        strategy.course = course
        strategy.nodes = {c: c for c in range(len(self.client_context.roles))}
        malicious = self.experiment.malicious_clients
        own = self.client_context.branch_parts(at.branch)
        self._drop_fork()
        self._fork = Fork(
            at.branch,
            round,
            at.state,
            strategy,
            copy.deepcopy(self.store.load(at.branch, holder)),
            {c: len(own[c]) for c in malicious if self.schedule.takes_part(c, round)},
            strategy.broadcast(),
        )

    def _replay(self, recorder: TrajectoryRecorder, round: int) -> None:
        """Hand the finished round to the recorder, if it is the one to be replayed."""
        fork = self._fork
        if fork is None or fork.round != round:
            return
        fork.honest = self.recording.update_files(FORKS, round, fork.digests)
        recorder.forked(fork)
        self._drop_fork()

    def _describe_aggregation(self, strategy: FederatedStrategy) -> Aggregation:
        """What the server has done so far, and what that promises its clients."""
        experiment = self.experiment
        server = is_server(experiment.attacker)
        against = Adversary(experiment.malicious_clients, self.active, server)
        view = "sums" if experiment.federation.secure_aggregation else "updates"
        privacy, metrics = strategy.privacy(against), strategy.aggregation_metrics(against)
        name, trained = experiment.strategy.name, tuple(self._trained)
        if privacy is not None:
            require_account(ClientDefence(name, privacy), max(trained))
            privacy = replace(privacy, noise_source=self.client_context.noise_source)
        return Aggregation(name, view, privacy, metrics, trained)

    def _note_update(self, course: RoundRange, received: State, update: Update) -> None:
        """Keep what is to be read of an update, as it is taken."""
        branch, round = course.branch, update.round
        self._trained[update.client] += branch == "main" and update.examples > 0
        line = self._line_of(branch, round)
        line.cohort.append(update.client)
        line.examples[update.client] = update.examples
        line.metrics[update.client] = update.metrics
        scored, before = branch in ("main", "placebo"), round - 1
        new = before not in self.recording.rounds(branch)
        if scored and new and round in self.schedule.changes_kept():
            self.recording.save(branch, before, received)
        if scored and round in self.schedule.updates_kept():
            digest = self.recording.save_update(branch, round, update.client, update.state)
            line.updates[update.client] = digest
        fork = self._fork
        honest = fork is not None and update.client not in fork.malicious
        if fork is not None and honest and fork.round == round and update.examples:
            fork.numbers[update.client] = update.examples, update.metrics
            digest = self.recording.save_update(FORKS, round, update.client, update.state)
            fork.digests[update.client] = digest
        if course.craft and update.client == self.holder:
            self._crafted = update.state

    def _line_of(self, branch: str, round: int) -> RoundRecord:
        """What is known so far of the round at work."""
        if (self._line.branch, self._line.round) != (branch, round):
            self._line = RoundRecord(branch, round)
        return self._line

    def _record(self, course: RoundRange, received: State, done: Round) -> None:
        """Keep what is to be read of a round whose clients had `received`."""
        branch, round, metrics = course.branch, done.number, done.metrics
        spans = [(m["began"], m["ended"]) for m in metrics.values() if "began" in m]
        self.watch.move("train", min(covered_seconds(spans), done.seconds))
        crafted, self._crafted = self._crafted, None
        if crafted is not None:
            self._read(branch, round, received)
        if self.client_context.is_stopped():
            self.recording.drop_updates(branch, round)
            raise RunInterrupted
        if crafted is not None and self.recorder is not None:
            with self.watch.part("attacks"):
                self.recorder.sent(branch, round, crafted, self._bank(branch))
                self._replay(self.recorder, round)
            # Perhaps before all was replayed: the round is made again.
            if self.client_context.is_stopped():
                self.recording.drop_updates(branch, round)
                raise RunInterrupted
        honest = {c: m for c, m in metrics.items() if c not in self.experiment.malicious_clients}
        losses = [m["loss"] for m in honest.values() if "loss" in m]
        loss = float(np.mean(losses)) if losses else None
        self.recording.add(replace(self._line_of(branch, round), seconds=done.seconds))
        knn = self._note(branch, round, course.craft, loss, done.state)
        self.display.round(branch, round, loss, knn, done.seconds)
        if course.craft and round == self.schedule.last:
            self._read(branch, round + 1, done.state)

    def _read(self, branch: str, round: int, state: State) -> None:
        """What the active client notes of a model that it received for `round`."""
        if self.recorder is not None:
            with self.watch.part("attacks"):
                self.recorder.received(branch, round, state, self._bank(branch))

    def _note(
        self, branch: str, round: int, attacked: bool, loss: float | None, state: State
    ) -> float | None:
        """Keep the round where it is to be scored, or hold the last of `main` for an interruption;
        its kNN accuracy, where it is probed."""
        main, knn = branch == "main", None
        evaluated = round in self.schedule.evaluated()
        if evaluated and main:  # before it is kept: a model that diverged is not scored
            with self.watch.part("probes"):
                try:
                    knn = self.probe(state)
                except FederationError as error:
                    raise FederationError(f"round {round}: {error}") from None
        if evaluated:
            self.keep(branch, round, state)
            self._unsaved = None
        elif main:
            self._unsaved = round, state, self._bank(branch)
        if main:
            self.rounds.append(RoundInfo(round, attacked, loss, knn))
        return knn

    def keep(self, branch: str, round: int, state: State) -> None:
        """Write a snapshot of the global weights after a round; 0: of the first model."""
        self.recording.save(branch, round, state, self._bank(branch))

    def _bank(self, branch: str) -> State:
        """The holder's bank."""
        local_state = self.store.load(branch, self.holder) if self.holder is not None else None
        return bank_of(local_state)
