"""The active attack, scored on what its client noted in the attacked rounds of each branch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fedmia.attacks.base import ActiveAttack, Attack
from fedmia.data.images import digests, rank_digests
from fedmia.evaluation.steps.scorer import side_fields
from fedmia.evaluation.suite import Suite
from fedmia.federation.readings import UNTRAINED, Readings
from fedmia.federation.result import TrainedRounds
from fedmia.options.errors import opt
from fedmia.records import Curves, FloatArray, ScoredAttack
from fedmia.rounds.base import RoundModel
from fedmia.threat import ClientView


class Trajectories:
    """Scores the active attack: its own trajectories, its controls' and its curves.

    Args:
        suite: the attacks on the models of the run.
        run: its rounds over.
        name: name of the attack, as in the registry.
        readings: what its client read while the rounds passed.
    """

    def __init__(self, suite: Suite, run: TrainedRounds, name: str, readings: Readings) -> None:
        self.suite, self.run, self.name, self.readings = suite, run, name, readings
        self.attack, self.over = readings.attack, readings.attack.over

    def unscored(self) -> str | None:
        """Why the attack cannot be scored, or None."""
        if not self.readings.rounds("main"):
            return "its client finished no attacked round"
        if not self.readings.acted("main"):
            return f"the climb of a batch diverged; a lower {opt(f'attack.{self.name}.lr')} helps"
        return None

    def work(self) -> dict[str, Callable[[], ScoredAttack]]:
        """What to score, by name: the attack, and the controls whose rounds are complete."""
        rounds = {b: self.readings.acted(b) for b in ("main", "zero", "placebo")}
        tasks: dict[str, Callable[[], ScoredAttack]] = {
            "active": lambda: self.with_sets(self.score_branch("main")),
            "active-untrained": self._score_untrained,
        }
        if rounds["zero"] == rounds["main"]:
            tasks["active-zero"] = lambda: self.score_branch("zero", self.attack.control)
        if rounds["placebo"] == rounds["main"]:
            tasks["active-placebo"] = lambda: self.score_branch("placebo")
        return tasks

    def _score_untrained(self) -> ScoredAttack:
        """The attack on the first model, whose rounds need no client: they are played here."""
        from fedmia.federation.untrained import climb_untrained  # loads strategies

        climb_untrained(self.readings, self.run.schedule, self.run.recording.untrained())
        return self.score_branch(UNTRAINED)

    def score_branch(self, branch: str, label: str | None = None) -> ScoredAttack:
        """Score the attack on what its client recorded in a branch.

        Args:
            branch: of the run: `main`, `zero`, `placebo` or `untrained`.
            label: label of the row in the report; None for the attack itself.

        Returns:
            The scored attack, with its rounds and curves.

        Raises:
            InputError, FederationError: what the attack raised in the branch.
        """
        if branch in self.readings.failures:
            raise self.readings.failures[branch]
        label, scored = label or self.name, self.suite.scorer.score_attack
        rounds, view = tuple(self.readings.acted(branch)), self.view(branch)
        how: dict[str, Any] = {"threshold": branch == "main", "rounds": rounds, "label": label}
        result = scored(self.name, view, under_attack=True, **how)
        choice, what = self._choice(branch), label.removeprefix(self.name)
        also = [
            replace(a, choices=choice, name=f"{self.name}-{a.reading}{what}") for a in result.also
        ]
        return replace(result, choices=choice, also=also)

    def _choice(self, branch: str) -> dict[str, Any]:
        """Steps and rate that `auto` took: for all images together, and for sets alone."""
        local_state = self.run.store.load(branch, self.run.plan.experiment.holder or 0)
        together = local_state.memory.get("attack", {}).get("choice", {}) if local_state else {}
        alone = self.readings.choices.get(branch, {})
        return {**together, **{f"{name}_alone": value for name, value in alone.items()}}

    def with_sets(self, scored: ScoredAttack) -> ScoredAttack:
        """Add the attack's answers on sets, each of which had a round of its own."""
        if not self.readings.rounds_alone("main", "sets"):
            return scored
        others = {"": self.attack, **self.attack.other_readings()}
        own = {n: side_fields("sets", self._sets(attack)) for n, attack in others.items()}
        also = [replace(one, **own[one.reading]) for one in scored.also]
        return replace(scored, also=also, **own[""])

    def _sets(self, attack: Attack) -> tuple[FloatArray, FloatArray]:
        """(S, 2), (T, 2): mean score of each set, and the same where nothing was climbed."""
        assert isinstance(attack, ActiveAttack)
        scorer, columns = self.suite.scorer, []
        images = torch.cat(
            [
                scorer.members[scorer.sets.members].flatten(0, 1),
                scorer.nonmembers[scorer.sets.nonmembers].flatten(0, 1),
            ]
        )
        order = rank_digests(digests(images.numpy()))  # members do not come first
        ours, size = len(scorer.sets.members), scorer.sets.size
        for idle in (False, True):
            of_sets = partial(self.readings.of_alone, "main", "sets", idle=idle)
            scores = attack.judge(of_sets(self.view("main"), images[order]))
            columns.append(scores[np.argsort(order)].reshape(-1, size).mean(axis=1))
        table = np.stack(columns, axis=1)
        return table[:ours], table[ours:]

    def view(self, branch: str) -> ClientView:
        """The active client's view of a branch."""
        first = RoundModel(branch, 0 if branch == UNTRAINED else self.run.schedule.clean)
        noted = partial(self.readings.of, branch)
        if self.attack.round_size is not None:
            idle, where = branch == "zero", "main" if branch == "zero" else branch
            noted = partial(self.readings.of_alone, where, "batches", idle=idle)
        budget = self.suite.attacker.budget if branch == "main" else None
        method = self.suite.method(first)
        view = self.suite.attacker.view(method, "client", noted=noted, budget=budget)
        assert isinstance(view, ClientView)
        return view

    def curves(self) -> Curves:
        """Readings of the scored images by round, acted on and not."""
        images, apart = self.suite.scorer.candidates, self.suite.scorer.split_sides
        main, zero = (self.readings.of(b, self.view(b), images) for b in ("main", "zero"))
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
