"""Attacks that raise while they are scored: each costs none of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from fedmia.records.note import Note
from fedmia.records.rows import BROKEN
from fedmia.settings.errors import InputError
from fedmia.storage.durable import DiskError
from fedmia.threat import BudgetError

Result = TypeVar("Result")
Errors = tuple[type[Exception], ...]
UNDER_TEST = ("main", "active", "inferences")  # pieces of scoring that an attack is listed by


class Failures:
    """Why attacks have no scores. Several threads may add to it.

    Args:
        raised: errors that are about the whole evaluation, and end it; so does a disk that fails.
        refusals: errors of an attack that cannot run: nothing is broken.

    Attributes:
        reasons: attack -> why it has no scores of the model under test.
        beside: (attack, piece of scoring) -> why it has none there, on a control or in a round.
        broken: attacks that failed anywhere.
    """

    def __init__(
        self, raised: Errors = (InputError,), refusals: Errors = (InputError, BudgetError)
    ) -> None:
        self.raised, self.refusals = raised, refusals
        self.reasons, self.beside = dict[str, str](), dict[tuple[str, str], str]()
        self.broken = set[str]()

    def attempt(self, piece: str, attack: str, call: Callable[[], Result]) -> Result | None:
        """Call `call`; where it raises, note why and give None.

        Args:
            piece: part of the scoring.
            attack: name of the attack.
            call: computes the result.

        Returns:
            The result; None where the attack failed.

        Raises:
            Exception: one of `raised`, or a DiskError.
        """
        try:
            return call()
        except Exception as error:
            if isinstance(error, (*self.raised, DiskError)):
                raise
            if piece in UNDER_TEST:
                self.reasons[attack] = self.explain(attack, error)
            else:
                self.beside[attack, piece] = self.explain(attack, error)
            return None

    def explain(self, attack: str, error: Exception) -> str:
        """Why an attack has no scores, on one line.

        An error that is no refusal counts as a broken attack.

        Args:
            attack: name of the attack.
            error: what the attack raised.

        Returns:
            The reason, on one line.
        """
        why = " ".join(str(error).split())
        if isinstance(error, self.refusals):
            return why
        self.broken.add(attack)
        return f"{BROKEN}{type(error).__name__}: {why}"

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks that failed anywhere, by name."""
        return tuple(sorted(self.broken))

    def notes(self) -> list[Note]:
        """Of attacks that are listed, and have no scores beside."""
        return [
            Note("no-scores-beside", {"attack": attack, "piece": piece, "why": why})
            for (attack, piece), why in sorted(self.beside.items())
            if attack not in self.reasons
        ]


def rarest_reason(reasons: Mapping[str, str]) -> tuple[str, str]:
    """Of the reasons why attacks did not run the one of fewest: what many share is of the images.

    Args:
        reasons: attack -> why.

    Returns:
        The attack and its reason, the first of as few; where there is none, that none is asked for.
    """
    counts = Counter(reasons.values())
    return min(reasons.items(), key=lambda one: counts[one[1]], default=("", "none is asked for"))
