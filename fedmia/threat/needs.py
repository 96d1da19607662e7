"""What an attack needs and an attacker holds: access, vantage, and a budget of queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedmia.settings.errors import InputError, opt
from fedmia.settings.vantages import VANTAGE, VANTAGES, Vantage

ACCESS = ("black_box", "white_box")
NEGATIVES = ("held", "queue")


@dataclass(frozen=True)
class Threat:
    """What an attacker holds, or an attack needs.

    Attributes:
        access: to the model, `black_box` < `white_box`.
        vantage: `outsider` < `client` < `server`.

    Raises:
        ValueError: other words.
    """

    access: str
    vantage: str

    def __post_init__(self) -> None:
        if self.access not in ACCESS or self.vantage not in VANTAGE:
            raise ValueError(f"no such threat: {self.access}, {self.vantage}")

    @property
    def row(self) -> Vantage:
        """What its vantage is, in words."""
        return VANTAGES[self.vantage]

    def covers(self, needs: Threat) -> bool:
        """Whether a holder of this threat may run an attack that needs `needs`."""
        return ACCESS.index(self.access) >= ACCESS.index(needs.access) and VANTAGE.index(
            self.vantage
        ) >= VANTAGE.index(needs.vantage)


class BudgetError(RuntimeError):
    """An attack asked for more queries than its threat allows; nothing was computed."""


class Meter:
    """Queries counted, up to a budget; views of one attacker on several models may share one.

    Args:
        budget: most queries, or None for no limit.

    Attributes:
        queries: queries counted so far.
        paused: whether counting is off.
    """

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self.queries = 0
        self.paused = False

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Count nothing meanwhile: what is asked for was paid before."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def charge(self, queries: int) -> None:
        """Count `queries` images.

        Raises:
            BudgetError: more than remain; raised before anything is computed.
        """
        if self.paused:
            return
        if self.budget is not None and self.queries + queries > self.budget:
            raise BudgetError(
                f"{queries} queries asked for, {self.budget - self.queries} of {self.budget} left"
            )
        self.queries += queries


def require_shadows(has_shadows: bool) -> None:
    """Refuse an attack that reads encoders of the attacker's own where there are none.

    Raises:
        InputError: naming what gives some.
    """
    if not has_shadows:
        own, flag = opt("shadow.count", "N"), opt("shadow.encoders", "FOLDER")
        raise InputError(f"needs shadow encoders ({own}, or {flag})")


def require(granted: Threat, needs: Threat) -> None:
    """Refuse an attack that needs more than is granted.

    Args:
        granted: what the threat model grants.
        needs: what the attack needs.

    Raises:
        InputError: naming both.
    """
    if not granted.covers(needs):
        raise InputError(
            f"needs {needs.access} access as {needs.vantage}, the attacker has "
            f"{granted.access} as {granted.vantage}"
        )
