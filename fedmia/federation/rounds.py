"""The rounds of a run: clean ones, attacked ones, and the control branches beside them.

Branches (`fedmia.recording.branches`): `main` is the federation of the experiment. With an active
attack, `zero` repeats its attacked rounds from the same state with the attacker disarmed, and the
first of them is replayed for each batch of images that is acted on alone
(`fedmia.federation.replay`). With an active attack or a server that attacks, or where it is asked
for, `placebo` repeats the whole run with honest clients that hold images outside every evaluated
set. In `untrained` nobody trains: its attacked rounds are those of the first model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from clients.client_setup import ClientSetup
from fedmia.defenses.stack import require_account
from fedmia.federation.checkpoint import (
    BranchState,
    Checkpoint,
    CheckpointPart,
    Packed,
    pack_branch,
    unpack_branch,
)
from fedmia.federation.ledger import Ledger
from fedmia.federation.notetaker import NoteTaker, bank_of
from fedmia.federation.outlook import describe_disk
from fedmia.federation.plan import Plan, divergence_hint
from fedmia.federation.replay import Replay, one_round
from fedmia.federation.schedule import Schedule
from fedmia.federation.staging import StagedStates
from fedmia.federation.untrained import play_untrained
from fedmia.recording.branches import BRANCHES, MAIN, UNTRAINED
from fedmia.recording.format import RecordedRound
from fedmia.recording.writer import FORKS, RecordingWriter
from fedmia.records.defence_rows import AggregationRow, DefenceRow
from fedmia.records.rows import FaultRow, RoundRow
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch, covered_seconds
from fedmia.seeding import rng, root
from fedmia.settings.commands.roles import is_server
from fedmia.settings.errors import prefix_errors
from fedmia.settings.options import check_type
from fedmia.ssl.base import State
from fedmia.storage.archive import pack, unpack
from fedmia.storage.snapshot import StateStore, Update
from strategies.base import FederatedStrategy, FinishedRound
from strategies.cohort import Phase
from strategies.failure_policy import Adversary, FailurePolicy, FederationError
from strategies.grids import extras_of

# Records of a checkpoint's index.
CHECKPOINTED = {
    "rounds": Sequence[RoundRow],
    "faults": Sequence[FaultRow],
    "aggregation": AggregationRow | None,
    "trained": Sequence[int],
}


Sent = tuple[str, int, dict[str, float]]  # digest of the file of an update, its images and metrics
Standing = tuple[Packed, Mapping[str, Any], Mapping[str, Any]]  # branch, records, values beside


class FederationInterrupted(Exception):
    """The user ended the run; what is finished is kept."""


class FederatedRun:
    """All branches of one run, over one grid of clients.

    Args:
        plan: settings, images and their roles.
        client_setup: what all clients of the run share.
        store: local states of the clients after finished rounds.
        recording: models and updates of the rounds, by branch.
        probe: kNN accuracy of a global state.
        notes: of the active client; None where no attack is active.
        watch: notes the seconds of each part.
        display: progress on the terminal.
        checkpoint: written as the rounds pass, if any; clients' states are then in a Ledger.

    Attributes:
        store: local states of the clients, those of the round at work too.
        head: where the branch at work stands.
        forked: where a branch that shares the clean rounds of `main` begins.
        rounds: filled in: one row a finished round of `main`.
        aggregation: filled in: what its server did.
        trained: filled in: of each client, the finished rounds of `main` in which its update rested
            on its images.
        failure: filled in where the rounds ended before their time, but for an interruption.
    """

    def __init__(
        self, plan: Plan, client_setup: ClientSetup, store: StateStore,
        recording: RecordingWriter, probe: Callable[[State], float | None],
        notes: NoteTaker | None, watch: Stopwatch, display: Display,
        checkpoint: Checkpoint | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.client_setup = plan, client_setup
        self.store = StagedStates(store) if checkpoint else StagedStates(store, room=0)
        self.recording, self.checkpoint = recording, checkpoint
        self.probe, self.notes, self.watch, self.display = probe, notes, watch, display
        self.head: BranchState | None = None
        self.forked: BranchState | None = None
        self.rounds, self._sent = list[RoundRow](), dict[int, Sent]()
        self.aggregation: AggregationRow | None = None
        self.failure: FederationError | None = None
        self._unsaved: tuple[int, State, State] | None = None
        self._standing: Standing | None = None
        self._crafted: State | None = None
        self._replay: Replay | None = None
        sizes = {n: [len(p) or 1 for p in parts] for n, parts in client_setup.parts.items()}
        self._sizes = {name: (each, sum(each)) for name, each in sizes.items()}
        self._line = RecordedRound("", 0)
        self.experiment = experiment = plan.experiment
        self.schedule, self.holder = Schedule(experiment), experiment.holder
        self._root = root(client_setup.noise_source, experiment.seed)
        options = experiment.federation
        self.failure_policy = FailurePolicy(
            options.clients,
            options.on_failure,
            options.client_timeout,
            max(options.min_clients, experiment.strategy.plugin("strategy").least),
            plan.cast.indispensable,
            say=display.warn,
            hint=f"{divergence_hint(experiment)} if training diverged",
        )
        self.active = client_setup.attack is not None
        self.trained = [0] * len(client_setup.roles)

    def run(self, grid: Grid) -> None:
        """Run all branches.

        It returns early, with the finished rounds, when the user interrupts the run or the failure
        policy ends it.
        """
        extras_of(grid).observe_replies(self._note_reply)
        try:
            for branch in self.branches():
                self._run_branch(grid, branch)
            return
        except FederationInterrupted:
            pass
        except FederationError as error:
            self.failure = error
        except Exception:
            with suppress(OSError):  # of the disk that may have ended the run
                self._checkpoint_finished()
            raise
        finally:
            self._drop_replay()  # of a round that was not finished
            if self.checkpoint:
                self.checkpoint.wait_for_writes()
        self._checkpoint_finished()
        if self._unsaved is not None:
            self._keep_last(*self._unsaved)

    def finish_notes(self) -> None:
        """Play the control that needs no client, and keep all notes that no round has kept yet, as
        those of one that was interrupted."""
        if (notes := self.notes) is None:
            return
        if notes.acted(MAIN) and UNTRAINED not in notes.facts:
            with self.watch.part("attacks"):
                play_untrained(notes, self.schedule, self.recording.untrained())
        for branch in notes.facts:
            recorded = self.recording.notes(branch)
            for round in sorted(r for r in notes.facts[branch] if r not in recorded):
                self._record_notes(notes, branch, round)

    def _keep_last(self, round: int, state: State, bank: State) -> None:
        """Keep the last finished round of `main`, unless training had diverged by then."""
        try:
            self.probe(state)
        except FederationError as error:
            self.failure = self.failure and FederationError(f"round {round}: {error}")
            whole = self.recording.rounds(MAIN)[-1]
            self.rounds[:] = [info for info in self.rounds if info.round <= whole]
        else:
            self.recording.save(MAIN, round, state, bank)

    def _note_reply(self, branch: str, client: int) -> None:
        """Show how far the round is: a client takes as long as it has images (unknown: one)."""
        sizes, total = self._sizes[BRANCHES[branch].images]
        share = self.experiment.federation.participation
        clients = max(1, int(len(sizes) * share + 0.5))
        self.display.reply(sizes[client] / (total * share), clients)

    def branches(self) -> list[str]:
        """The branches whose rounds need clients, in their order."""
        return [*self.schedule.branches(bool(self.plan.cast.placebo_parts))]

    @property
    def complete(self) -> bool:
        """Whether every branch ran to its end."""
        at, end = self.head, (self.branches()[-1], self.schedule.last)
        return at is not None and (at.branch, at.round) == end

    def resume(self) -> None:
        """Go on from the last checkpoint; without one, begin anew.

        Raises:
            InputError: it is another run's.
            LookupError, TypeError, ValueError, AttributeError: it is damaged.
        """
        assert self.checkpoint is not None and isinstance(self.store.finished, Ledger)
        index = self.checkpoint.read()
        if index is None:
            self.recording.rewind(0)
            return
        self.store.finished.restore(index["clients"])
        with prefix_errors(f"the checkpoint in '{self.checkpoint.root}'"):
            parts = {name: unpack(index[name], {}) for name in CHECKPOINTED}
            for name, kind in CHECKPOINTED.items():
                check_type(name, parts[name], kind)
        self.rounds[:], self.aggregation = parts["rounds"], parts["aggregation"]
        self.trained = parts["trained"]
        self.failure_policy.gone.update(map(int, index["gone"]))
        self.failure_policy.faults[:] = parts["faults"]
        self.watch.add(index["seconds"])
        self.head = self._unpack("head")
        if self.checkpoint.has("forked"):
            self.forked = self._unpack("forked")
        self.recording.rewind(int(index["recorded"]))
        if 0 not in self.recording.models(MAIN):
            raise ValueError(f"recorded {index['recorded']} leaves no model of round 0")
        if self.notes is not None:
            self.notes.add(self.recording)
        if self.head.branch == MAIN and self.head.round not in self.schedule.evaluated():
            self._unsaved = self.head.round, self.head.state, self._bank(MAIN)
        self.display.skip(self._finished_rounds())

    def _finished_rounds(self) -> int:
        """Rounds of all branches up to the head."""
        assert self.head is not None
        at, finished = self.head, 0
        for name, first in self.schedule.branches(bool(self.plan.cast.placebo_parts)).items():
            finished += (at.round if name == at.branch else self.schedule.last) - first
            if name == at.branch:
                break
        return finished

    def _unpack(self, part: str) -> BranchState:
        """Where a branch stood, as the checkpoint has it."""
        assert self.checkpoint is not None
        at = unpack_branch(self.checkpoint.get(part), self.experiment.strategy.build("strategy"))
        shapes = [
            {name: (tensor.shape, tensor.dtype) for name, tensor in one.items()}
            for one in (at.state, self.client_setup.method(-1, None).shared_state())
        ]
        if shapes[0] != shapes[1]:
            raise ValueError("its weights are of another model than its settings say")
        at.state = {name: at.state[name] for name in shapes[1]}  # a file has another order
        if not 0 <= at.round <= self.schedule.last:
            raise ValueError(f"it says round {at.round} of {self.schedule.last}")
        return at

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
        if BRANCHES[branch].parent:
            assert self.forked is not None
            at = replace(self.forked, branch=branch, strategy=copy.deepcopy(self.forked.strategy))
            self.keep(branch, at.round, at.state)
            return at
        state = self.client_setup.method(-1, None).shared_state()
        if branch == MAIN:
            for line in describe_disk(self.schedule, state, self.branches()):
                self.display.line(line)
        self.keep(branch, 0, state)
        if self.experiment.pretrain.mode != "none":
            self.keep(UNTRAINED, 0, state)
            state = self.pretrain_state(branch, state)
            self.keep(branch, 0, state)
        return BranchState(branch, 0, state, self.experiment.strategy.build("strategy"))

    def _fork(self, at: BranchState) -> None:
        """Note where the branches begin that share the rounds of this one up to here."""
        for name in self.branches():
            if BRANCHES[name].parent == at.branch:
                self.store.fork(at.branch, name, len(self.client_setup.roles))
                self.forked = replace(at, strategy=copy.deepcopy(at.strategy))

    def _checkpoint(self, at_once: bool = False) -> None:
        """Write one where a stretch ends and where one is due; else note what it would hold, for a
        run that is ended within the next round."""
        at, checkpoint = self.head, self.checkpoint
        if at is None or checkpoint is None or checkpoint.every is None:
            return
        records = {
            "rounds": [*self.rounds],
            "faults": [*self.failure_policy.faults],
            "aggregation": self.aggregation,
            "trained": [*self.trained],
        }
        beside = {"gone": sorted(self.failure_policy.gone), "recorded": self.recording.lines}
        self._standing = pack_branch(at), records, beside
        at_once |= at.round in (self.schedule.clean, self.schedule.last)
        if at_once or checkpoint.is_due():
            self._write_checkpoint(checkpoint, *self._standing)

    def _write_checkpoint(
        self, checkpoint: Checkpoint, head: Packed, records: Mapping[str, Any],
        beside: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Write how things stood after the last finished round."""
        assert isinstance(self.store.finished, Ledger)
        parts: dict[str, CheckpointPart] = {"head": head}
        if self.forked is not None:
            parts["forked"] = "forked" if checkpoint.has("forked") else pack_branch(self.forked)
        self.watch.claim()
        about = {name: pack(value, {}) for name, value in records.items()}
        about |= {**beside, "seconds": dict(self.watch.seconds)}
        checkpoint.write(about, parts, self.store.finished, self.recording.pending())
        self._standing = None

    def _checkpoint_finished(self) -> None:
        """Have the last finished round on the disk, for a run that is ended within the next one."""
        if self.checkpoint and self._standing is not None and self.store.whole:
            self._write_checkpoint(self.checkpoint, *self._standing)
            self.checkpoint.wait_for_writes()

    def pretrain_state(self, branch: str, state: State) -> State:
        """Train on the server before the first round, on all clients' images or on public ones.

        This training has its own learning-rate schedule, before that of the federation.

        Args:
            branch: `main` or `placebo`, whose clients hold other images.
            state: the first model's weights, by name.

        Returns:
            The weights after it.

        Raises:
            FederationInterrupted: the user ended the run.
        """
        pretrain, client_setup = self.experiment.pretrain, self.client_setup
        pooled = np.concatenate(client_setup.branch_parts(branch))
        indices = pooled if pretrain.mode == "pooled" else client_setup.public
        method = client_setup.method(-1, len(indices))
        method.load_shared(state)
        method.begin_first_round()
        train = replace(self.experiment.train, local_epochs=pretrain.epochs or 0)
        once = replace(self.experiment.federation, rounds=1)
        apart = replace(self.experiment, train=train, federation=once)
        images, stream = client_setup.images[indices], rng(self.experiment.seed, "pretrain")
        job = replace(client_setup, experiment=apart).job(method, images, 1, stream)
        with self.watch.part("train"):
            job.run()
        if client_setup.is_stopped():
            raise FederationInterrupted
        return method.shared_state()

    def _run_rounds(self, grid: Grid, at: BranchState, last: int, *, craft: bool) -> None:
        """Run the rounds after `at.round`, to `last`; `at` follows them.

        `FederatedStrategy.rounds` leads from the cohort to the aggregate. What stands here happens
        between two rounds: it keeps what is scored later.
        """
        if at.round >= last:
            return
        phase = self.schedule.phase(at.branch, at.round, last, craft=craft)
        phase = replace(phase, seed=self._root)

        def observe(update: Update) -> None:
            self._note_update(phase, at.state, update)

        self._prepare_replay(phase, at)
        for done in at.strategy.rounds(grid, phase, at.state, self.failure_policy, observe):
            # 1. Keep what attacks and probes will read of the round.
            self._record(phase, at.state, done)
            # 2. Note what the server did, and what privacy that promises.
            if at.branch == MAIN:
                self.aggregation = self._describe_aggregation(at.strategy)
            # 3. Go on from the aggregate, and from what the clients keep.
            at.round, at.state = done.number, done.state
            self.store.finish_round()
            # 4. Before the first attacked round, note where the branches beside it begin.
            if at.round == self.schedule.clean:
                self._fork(at)
            # 5. Write a checkpoint where one is due.
            self._checkpoint()
            # 6. Keep the state before the next round, if that round will be replayed.
            self._prepare_replay(phase, at)

    def _drop_replay(self) -> None:
        """Forget the round to be replayed, with the updates that were kept for it."""
        if self._replay is not None:
            self.recording.drop_updates(FORKS, self._replay.round)
        self._replay = None

    def _prepare_replay(self, phase: Phase, at: BranchState) -> None:
        """Note how things stand before the next round, if it is the one to be replayed."""
        notes, round, holder = self.notes, at.round + 1, self.holder
        if notes is None or holder is None or not phase.craft or not notes.replays(at.branch):
            return
        attacked = range(self.schedule.clean + 1, self.schedule.last + 1)
        if round != next((r for r in attacked if self.schedule.takes_part(holder, r)), None):
            return
        own = self.client_setup.branch_parts(at.branch)
        malicious = self.experiment.malicious_clients
        self._drop_replay()
        self._sent = {}
        self._replay = Replay(
            one_round(phase, round),
            at.state,
            at.strategy,
            self.store.load(at.branch, holder),
            {c: len(own[c]) for c in malicious if self.schedule.takes_part(c, round)},
            len(self.client_setup.roles),
        )

    def _play_replays(self, notes: NoteTaker, round: int) -> None:
        """Replay the finished round, if it is the one to be replayed."""
        replay, sent = self._replay, self._sent
        if replay is None or replay.round != round:
            return
        files = {client: digest for client, (digest, *_) in sent.items()}
        states = self.recording.update_files(FORKS, round, files)
        replay.honest = lambda client: Update(client, round, states[client], *sent[client][1:])
        replay.gone = {*self.failure_policy.gone}
        notes.replay(replay)
        self._drop_replay()

    def _describe_aggregation(self, strategy: FederatedStrategy) -> AggregationRow:
        """What the server has done so far, and what that promises its clients."""
        experiment = self.experiment
        server = is_server(experiment.attacker)
        against = Adversary(experiment.malicious_clients, self.active, server)
        view = "sums" if experiment.federation.secure_aggregation else "updates"
        privacy, metrics = strategy.privacy(against), strategy.aggregation_metrics(against)
        name = experiment.strategy.name
        if privacy is not None:
            require_account(DefenceRow(name=name, epsilon=privacy), max(self.trained))
            privacy = replace(privacy, noise_source=self.client_setup.noise_source)
        return AggregationRow(name=name, epsilon=privacy, metrics=metrics, view=view)

    def _note_update(self, phase: Phase, received: State, update: Update) -> None:
        """Keep what is to be read of an update, as it is taken."""
        branch, round = phase.branch, update.round
        self.trained[update.client] += branch == MAIN and update.examples > 0
        line = self._line_of(branch, round)
        line.cohort.append(update.client)
        line.examples[update.client] = update.examples
        line.metrics[update.client] = update.metrics
        scored, before = BRANCHES[branch].armed, round - 1
        new = before not in self.recording.rounds(branch)
        if scored and new and round in self.schedule.changes_kept():
            self.recording.save(branch, before, received)
        if scored and round in self.schedule.updates_kept():
            digest = self.recording.save_update(branch, round, update.client, update.state)
            line.updates[update.client] = digest
        replay = self._replay
        if replay is not None and round == replay.round and update.client not in replay.malicious:
            digest = self.recording.save_update(FORKS, round, update.client, update.state)
            self._sent[update.client] = digest, update.examples, update.metrics
        if phase.craft and update.client == self.holder:
            self._crafted = update.state

    def _line_of(self, branch: str, round: int) -> RecordedRound:
        """What is known so far of the round at work."""
        if (self._line.branch, self._line.round) != (branch, round):
            self._line = RecordedRound(branch, round)
        return self._line

    def _record(self, phase: Phase, received: State, done: FinishedRound) -> None:
        """Keep what is to be read of a round whose clients had `received`."""
        branch, round, metrics = phase.branch, done.number, done.metrics
        spans = [(m["began"], m["ended"]) for m in metrics.values() if "began" in m]
        self.watch.move("train", min(covered_seconds(spans), done.seconds))
        crafted, self._crafted = self._crafted, None
        if crafted is not None and self.notes is not None:
            self._take_notes(self.notes, branch, round, received, crafted)
        self._refuse_stopped(branch, round)
        honest = {c: m for c, m in metrics.items() if c not in self.experiment.malicious_clients}
        losses = [m["loss"] for m in honest.values() if "loss" in m]
        loss = float(np.mean(losses)) if losses else None
        self.recording.add(replace(self._line_of(branch, round), seconds=done.seconds))
        knn = self._note(branch, round, phase.craft, loss, done.state)
        self.display.round(branch, round, loss, knn, done.seconds)
        if self.notes is not None:
            if phase.craft and round == self.schedule.last:
                with self.watch.part("attacks"):
                    self.notes.end(branch, round, done.state, self._bank(branch))
            self._record_notes(self.notes, branch, round)

    def _refuse_stopped(self, branch: str, round: int) -> None:
        """End an interrupted round, which is made again; nothing of it is kept."""
        if self.client_setup.is_stopped():
            self.recording.drop_updates(branch, round)
            raise FederationInterrupted

    def _take_notes(
        self, notes: NoteTaker, branch: str, round: int, received: State, crafted: State
    ) -> None:
        """Read the targets under the models of an attacked round, and replay it where that is due;
        perhaps not all of it, where the user ends the run."""
        bank = self._bank(branch)
        with self.watch.part("attacks"):
            notes.receive(branch, round, received, bank)
            self._refuse_stopped(branch, round)
            notes.send(branch, round, crafted, bank)
            self._play_replays(notes, round)
        local_state = self.store.load(branch, notes.about["client"])
        choice = local_state.memory.get("attack", {}).get("choice", {}) if local_state else {}
        notes.facts_of(branch, round)["choice"] = choice

    def _record_notes(self, notes: NoteTaker, branch: str, round: int) -> None:
        """Keep what was noted of a round, if anything was."""
        if (packed := notes.packed(branch, round)) is not None:
            self.recording.record_file("notes", branch, round, *packed)

    def _note(
        self, branch: str, round: int, attacked: bool, loss: float | None, state: State
    ) -> float | None:
        """Keep the round where it is to be scored, or hold the last of `main` for an interruption;
        its kNN accuracy, where it is probed."""
        main, knn = branch == MAIN, None
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
            row = RoundRow(round=round, under_attack=attacked, loss=loss, knn=knn)
            self.rounds.append(row)
        return knn

    def keep(self, branch: str, round: int, state: State) -> None:
        """Write a snapshot of the global weights after a round; 0: of the first model."""
        self.recording.save(branch, round, state, self._bank(branch))

    def _bank(self, branch: str) -> State:
        """The bank of the attacker's client; empty where it has none."""
        return bank_of(self.store.load(branch, self.holder) if self.holder is not None else None)
