"""The active attack, scored on what its client noted in the attacked rounds of each branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fedmia.attacks.base import ActiveAttack, Attack
from fedmia.evaluation.federated.recorder import TrajectoryRecorder
from fedmia.evaluation.federated.snapshots import Evaluation
from fedmia.evaluation.steps.scorer import side_fields
from fedmia.federation.forks import Fork
from fedmia.options.errors import opt
from fedmia.options.seeding import rng
from fedmia.records import Curves, FloatArray, ScoredAttack
from fedmia.ssl.base import State, on_device
from fedmia.storage.snapshot import Snapshot, Update
from fedmia.threat import ClientView
from fedmia.threat.signals import Signals
from strategies.base import FederatedStrategy

UNTRAINED = "untrained"


class Trajectories:
    """Scores the active attack: its own trajectories, its controls' and its curves.

    Args:
        evaluation: the attacks on the models of the run.
        name: name of the attack, as in the registry.
        trajectory_recorder: readings of the active attack; None where none ran.
    """

    def __init__(
        self, evaluation: Evaluation, name: str, trajectory_recorder: TrajectoryRecorder
    ) -> None:
        self.evaluation, self.name, self.trajectory_recorder = evaluation, name, trajectory_recorder
        self.run, self.client_context = evaluation.run, evaluation.client_context
        self.attack = trajectory_recorder.attack

    def unscored(self) -> str | None:
        """Why the attack cannot be scored, or None."""
        if not self.trajectory_recorder.rounds("main"):
            return "its client finished no attacked round"
        if not self.rounds("main"):
            return f"the climb of a batch diverged; a lower {opt(f'attack.{self.name}.lr')} helps"
        return None

    def rounds(self, branch: str) -> list[int]:
        """Finished rounds of a branch in which the attack acted on the scored images."""
        if self.attack.round_size is None:
            return self.trajectory_recorder.rounds(branch)
        source = "main" if branch == "zero" else branch
        return self.trajectory_recorder.rounds_alone(source, "batches")

    def work(self) -> dict[str, Callable[[], ScoredAttack]]:
        """What to score, by name: the attack, and the controls whose rounds are complete."""
        rounds = {b: self.rounds(b) for b in ("main", "zero", "placebo")}
        tasks: dict[str, Callable[[], ScoredAttack]] = {
            "active": lambda: self.with_sets(self.score_branch("main")),
            "active-untrained": self.untrained,
        }
        if rounds["zero"] == rounds["main"]:
            tasks["active-zero"] = lambda: self.score_branch("zero", self.attack.control)
        if rounds["placebo"] == rounds["main"]:
            tasks["active-placebo"] = lambda: self.score_branch("placebo")
        return tasks

    def score_branch(self, branch: str, label: str | None = None) -> ScoredAttack:
        """Score the attack on what its client recorded in a branch.

        Args:
            branch: of the run: `main`, `zero`, `placebo` or `untrained`.
            label: label of the row in the report; None for the attack itself.

        Returns:
            The scored attack, with its rounds and curves.
        """
        label, scored = label or self.name, self.evaluation.scorer.score_attack
        rounds, view = tuple(self.rounds(branch)), self.view(branch)
        result = scored(self.name, view, under_attack=True, rounds=rounds, label=label)
        choice, what = self._choice(branch), label.removeprefix(self.name)
        also = [
            replace(a, choices=choice, name=f"{self.name}-{a.reading}{what}") for a in result.also
        ]
        return replace(result, choices=choice, also=also)

    def _choice(self, branch: str) -> dict[str, Any]:
        """Steps and rate that `auto` took: for all images together, and for sets alone."""
        local_state = self.run.store.load(branch, self.evaluation.observed.holder or 0)
        together = local_state.memory.get("attack", {}).get("choice", {}) if local_state else {}
        alone = self.trajectory_recorder.choices.get(branch, {})
        return {**together, **{f"{name}_alone": value for name, value in alone.items()}}

    def with_sets(self, scored: ScoredAttack) -> ScoredAttack:
        """Add the attack's answers on sets, each of which had a round of its own."""
        if not self.trajectory_recorder.rounds_alone("main", "sets"):
            return scored
        others = {"": self.attack, **self.attack.other_readings()}
        own = {n: side_fields("sets", self._sets(attack)) for n, attack in others.items()}
        also = [replace(one, **own[one.reading]) for one in scored.also]
        return replace(scored, also=also, **own[""])

    def _sets(self, attack: Attack) -> tuple[FloatArray, FloatArray]:
        """(S, 2), (T, 2): mean score of each set, and the same where nothing was climbed."""
        assert isinstance(attack, ActiveAttack)
        scorer, columns = self.evaluation.scorer, []
        images = torch.cat([scorer.members[scorer.sets.members].flatten(0, 1),
                            scorer.nonmembers[scorer.sets.nonmembers].flatten(0, 1)])  # fmt: skip
        ours, size = len(scorer.sets.members), scorer.sets.size
        for idle in (False, True):
            of_sets = partial(self.trajectory_recorder.of_alone, "main", "sets", idle=idle)
            scores = attack.judge(of_sets(self.view("main"), images))
            columns.append(scores.reshape(-1, size).mean(axis=1))
        table = np.stack(columns, axis=1)
        return table[:ours], table[ours:]

    def view(self, branch: str) -> ClientView:
        """The active client's view of a branch."""
        snapshots, clean = self.run.snapshots, self.run.schedule.clean
        first = self._first() if branch == UNTRAINED else snapshots.load(branch, clean)
        noted = partial(self.trajectory_recorder.of, branch)
        if self.attack.round_size is not None:
            idle, where = branch == "zero", "main" if branch == "zero" else branch
            noted = partial(self.trajectory_recorder.of_alone, where, "batches", idle=idle)
        budget = self.evaluation.budget if branch == "main" else None
        view = self.evaluation.observed.view(first, Signals(), noted=noted, budget=budget)
        assert isinstance(view, ClientView)
        return view

    def _first(self) -> Snapshot:
        return Snapshot(0, self.run.snapshots.untrained().state, {})

    def untrained(self) -> ScoredAttack:
        """Score the attack on the first model; honest clients return what they received."""
        run, client_context, schedule = self.run, self.client_context, self.run.schedule
        experiment, state = run.prepared.experiment, self._first().state
        sizes = [len(part) for part in client_context.parts["members"]]
        strategy, notes = experiment.strategy.build("strategy"), dict[str, Any]()
        strategy.course = schedule.course(UNTRAINED, schedule.clean, schedule.last, craft=True)
        strategy.nodes = {client: client for client in range(len(client_context.roles))}
        if self.attack.round_size is not None:
            self._untrained_alone(state, strategy, sizes)
            return self.score_branch(UNTRAINED)
        method = self.view(UNTRAINED).copy_method()
        for round in range(schedule.clean + 1, schedule.last + 1):
            clients = [c for c in range(len(client_context.roles)) if schedule.takes_part(c, round)]
            sent = dict.fromkeys(clients, state)
            if experiment.holder in clients:
                number = len(self.trajectory_recorder.rounds(UNTRAINED))
                stream = rng(client_context.seed, "craft-untrained", round)
                self.trajectory_recorder.received(UNTRAINED, round, Snapshot(round, state, {}))
                turn = client_context.craft_context(
                    method, state, state, number, notes, stream, round=round
                )
                crafted = on_device(self.attack.craft(turn), "cpu")  # where a server works
                self.trajectory_recorder.sent(UNTRAINED, round, Snapshot(round, crafted, {}))
                sent |= {c: crafted for c in experiment.malicious_clients if c in sent}
            updates = [Update(c, round, s, sizes[c], {}) for c, s in sent.items()]
            state = state | strategy.aggregate(state, updates)
        self.trajectory_recorder.received(
            UNTRAINED, schedule.last + 1, Snapshot(schedule.last, state, {})
        )
        return self.score_branch(UNTRAINED)

    def _untrained_alone(
        self, state: State, strategy: FederatedStrategy, sizes: Sequence[int]
    ) -> None:
        """The first attacked round for each batch alone, on the first model."""
        malicious = self.run.prepared.experiment.malicious_clients
        round, theirs = self.run.schedule.clean + 1, {c: sizes[c] for c in malicious}
        numbers = {c: (n, dict[str, float]()) for c, n in enumerate(sizes) if c not in malicious}
        honest = dict.fromkeys(numbers, state)
        self.trajectory_recorder.received(UNTRAINED, round, Snapshot(round, state, {}))
        self.trajectory_recorder.forked(
            Fork(UNTRAINED, round, state, strategy, None, theirs, honest=honest, numbers=numbers)
        )

    def curves(self) -> Curves:
        """Readings of the scored images by round, acted on and not."""
        images, apart = self.evaluation.scorer.candidates, self.evaluation.scorer.split_sides
        main, zero = (
            self.trajectory_recorder.of(b, self.view(b), images) for b in ("main", "zero")
        )
        acted = self.view("main").trajectory(images)  # of which each image was acted on
        after, control = apart(main.after.T), apart(zero.after.T)
        return Curves(
            self.attack.act,
            np.array(main.rounds),
            after[0].T,
            after[1].T,
            control[0].T,
            control[1].T,
            *apart(acted.before[0]),
            *apart(acted.sent[0]),
        )
