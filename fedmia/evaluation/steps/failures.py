"""Attacks that raise while they are scored: each costs none of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from fedmia.options.errors import InputError
from strategies.crew import FederationError

Found = TypeVar("Found")
UNDER_TEST = ("main", "active", "inferences")  # pieces of scoring that an attack is listed by


@dataclass
class Failures:
    """What became of attacks that raised; several threads may tell.

    Attributes:
        reasons: attack -> why it failed on the model under test.
        beside: (attack, piece of scoring) -> why it failed there, on a control or in a round.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    beside: dict[tuple[str, str], str] = field(default_factory=dict)

    def survive(self, piece: str, attack: str, call: Callable[[], Found]) -> Found | None:
        """What `call` returns; None where it raises, which is noted.

        Raises:
            InputError, FederationError: which are about the run, not about the attack's code.
        """
        try:
            return call()
        except (InputError, FederationError):
            raise
        except Exception as error:
            reason = f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
            if piece in UNDER_TEST:
                self.reasons[attack] = reason
            else:
                self.beside[attack, piece] = reason
            return None

    @property
    def attacks(self) -> tuple[str, ...]:
        """Those that failed anywhere, by name."""
        return tuple(sorted({*self.reasons, *(attack for attack, _ in self.beside)}))

    def notes(self) -> list[str]:
        """Of attacks that are listed and failed beside."""
        return [
            f"{attack} has no scores of {piece}, it {reason}"
            for (attack, piece), reason in sorted(self.beside.items())
            if attack not in self.reasons
        ]
