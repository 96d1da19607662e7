"""The ascent of an attacker in anybody's Flower app, scored by the notes that it left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fedmia.attacks.ascent import Ascent
from fedmia.evaluation.audits.climb import TWIN, ClimbNotes
from fedmia.evaluation.suite import Suite
from fedmia.recording.format import MAIN
from fedmia.records import ScoredAttack
from fedmia.rounds.base import UNTRAINED
from fedmia.threat import ClientView


class ClimbScores:
    """Scores the ascent in the rounds in which its client acted, and its twin without it.

    Args:
        suite: the attacks on the models of the federation.
        notes: of the client.
    """

    name, over = Ascent.name, "another run of the app without ascent"

    def __init__(self, suite: Suite, notes: ClimbNotes) -> None:
        self.suite, self.notes = suite, notes

    def unscored(self) -> str | None:
        """Nothing: notes without a finished round are refused when they are read."""
        return None

    def curves(self) -> None:
        """Not shown: its losses are those of somebody else's method."""

    def work(self) -> dict[str, Callable[[], ScoredAttack]]:
        """The ascent, and of its twin and the untrained control what its client noted."""
        pieces = {"active": (MAIN, self.name), "active-zero": (TWIN, Ascent.control)}
        pieces["active-untrained"] = (UNTRAINED, self.name)
        return {
            piece: partial(self.score_branch, *one)
            for piece, one in pieces.items()
            if self.notes.acted(one[0])
        }

    def score_branch(self, branch: str, label: str) -> ScoredAttack:
        """The ascent on what its client noted in a branch.

        Args:
            branch: MAIN, TWIN or UNTRAINED.
            label: of the row in the report.

        Returns:
            The scored attack, with its rounds.
        """
        suite, notes = self.suite, self.notes
        known = suite.known.get(self.name, suite.scorer.known)
        view = suite.view(suite.main, self.name, known, suite.attacker.budget)
        assert isinstance(view, ClientView)
        scored = suite.scorer.with_known(known).score_attack(
            self.name, view.of_notes(partial(notes.readings.of, branch)), under_attack=True,
            rounds=tuple(notes.acted(branch)), label=label,
        )  # fmt: skip
        choices = notes.choices | ({"steps": 0} if branch == TWIN else {})
        also = [replace(one, choices=choices) for one in scored.also]
        return replace(scored, choices=choices, also=also)
