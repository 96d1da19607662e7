"""The active attack, scored by what its client noted in the attacked rounds of each branch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch

from fedmia.attacks.base import ActiveAttack, Attack
from fedmia.data.images import digests, rank_digests
from fedmia.evaluation.steps.scorer import side_fields
from fedmia.evaluation.suite import Suite
from fedmia.recording.branches import BRANCHES, MAIN, ZERO
from fedmia.records import Curves, FloatArray, ScoredAttack
from fedmia.rounds.notes import Notes
from fedmia.settings.errors import opt
from fedmia.threat import ClientView

ANOTHER_RUN = "another run of the app without ascent"  # what the twin in somebody's app is


class ActiveScorer:
    """Scores the active attack in the rounds in which its client acted, and its controls.

    Args:
        suite: the attacks on the models of the rounds.
        notes: of the client; of targets that hold every scored and known image.
        by_sets: whether sets of images are judged, too.

    Attributes:
        name: of the attack.
        over: what its twin without the act is, in words.
    """

    def __init__(self, suite: Suite, notes: Notes, by_sets: bool = False) -> None:
        self.suite, self.notes, self._by_sets = suite, notes, by_sets
        self.name: str = notes.about["attack"]
        self.over = ANOTHER_RUN if notes.foreign else self.attack.over

    @cached_property
    def attack(self) -> ActiveAttack:
        """The attack with its options."""
        attack = self.suite.build(self.name)
        assert isinstance(attack, ActiveAttack)
        return attack

    def unscored(self) -> str | None:
        """Why the attack cannot be scored, or None."""
        if not self.notes.rounds(MAIN):
            return "its client finished no attacked round"
        if not self.notes.acted(MAIN):
            return f"the climb of a batch diverged; a lower {opt(f'attack.{self.name}.lr')} helps"
        return None

    def work(self) -> dict[str, Callable[[], ScoredAttack]]:
        """What to score, by name: the attack, and the controls whose rounds are complete."""
        acted, tasks = self.notes.acted(MAIN), dict[str, Callable[[], ScoredAttack]]()
        for name, branch in BRANCHES.items():
            rounds = self.notes.acted(name)
            whole = rounds == acted if branch.trains else bool(rounds)
            if whole or self.notes.failure(name) is not None:
                piece = "active" if name == MAIN else f"active-{name}"
                tasks[piece] = partial(self.score_branch, name)
        return tasks

    def score_branch(self, branch: str) -> ScoredAttack:
        """Score the attack on what its client noted in a branch.

        Args:
            branch: of the federation.

        Returns:
            The scored attack, with its rounds; of the attack itself also its sets.

        Raises:
            RuntimeError: what the attack raised in the branch.
        """
        if (why := self.notes.failure(branch)) is not None:
            raise RuntimeError(why)
        label = self.name if BRANCHES[branch].armed else self.attack.control
        result = self.suite.scorer.score_attack(
            self.name, self.view(branch), threshold=branch == MAIN, under_attack=True,
            rounds=tuple(self.notes.acted(branch)), label=label,
        )  # fmt: skip
        choices, what = self.notes.choices(branch), label.removeprefix(self.name)
        also = [
            replace(one, choices=choices, name=f"{self.name}-{one.reading}{what}")
            for one in result.also
        ]
        result = replace(result, choices=choices, also=also)
        return self._with_sets(result) if branch == MAIN else result

    def view(self, branch: str) -> ClientView:
        """The active client's view of a branch."""
        suite = self.suite
        known = suite.known.get(self.name, suite.scorer.known)
        budget = suite.attacker.budget if branch == MAIN else None
        view = suite.view(suite.main, self.name, known, budget)
        assert isinstance(view, ClientView)
        return view.of_notes(partial(self.notes.trajectory, branch))

    def _with_sets(self, scored: ScoredAttack) -> ScoredAttack:
        """Add the attack's answers on sets, each of which had a round of its own."""
        if not (self._by_sets and self.notes.rounds_alone(MAIN, "sets")):
            return scored
        others = {"": self.attack, **self.attack.other_readings()}
        own = {n: side_fields("sets", self._sets(attack)) for n, attack in others.items()}
        also = [replace(one, **own[one.reading]) for one in scored.also]
        return replace(scored, also=also, **own[""])

    def _sets(self, attack: Attack) -> tuple[FloatArray, FloatArray]:
        """(S, 2), (T, 2): mean score of each set, and the same where nothing was climbed."""
        assert isinstance(attack, ActiveAttack)
        scorer, columns = self.suite.scorer, []
        members, others = scorer.sets
        images = torch.cat([scorer.members[members.ravel()], scorer.nonmembers[others.ravel()]])
        order = rank_digests(digests(images.numpy()))  # members do not come first
        ours, size = members.shape
        for idle in (False, True):
            of_sets = partial(self.notes.of_alone, MAIN, "sets", idle=idle)
            scores = attack.judge(of_sets(self.view(MAIN), images[order]))
            columns.append(scores[np.argsort(order)].reshape(-1, size).mean(axis=1))
        table = np.stack(columns, axis=1)
        return table[:ours], table[ours:]

    def curves(self) -> Curves | None:
        """Readings of the scored images by round, acted on and not; None where the losses are those
        of somebody else's method."""
        if self.notes.foreign:
            return None
        images, apart = self.suite.scorer.candidates, self.suite.scorer.split_sides
        main, zero = (self.notes.of(b, self.view(b), images) for b in (MAIN, ZERO))
        acted = self.view(MAIN).trajectory(images)  # of which each image was acted on
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
