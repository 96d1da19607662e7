"""The federations of a run: the one that is asked for, and its controls, a row for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAIN, ZERO, PLACEBO, UNTRAINED = "main", "zero", "placebo", "untrained"


@dataclass(frozen=True)
class Branch:
    """A federation of a run, in the order of training.

    Attributes:
        parent: the branch whose rounds it shares up to the last clean one; empty: it begins with
            the first model.
        images: those that honest clients train on, `members` or `placebo`.
        armed: whether its active attacker acts.
        trains: whether clients train; else they send back what they receive, and no client is
            needed.
    """

    parent: str = ""
    images: str = "members"
    armed: bool = True
    trains: bool = True


BRANCHES: Mapping[str, Branch] = {
    MAIN: Branch(),
    ZERO: Branch(parent=MAIN, armed=False),
    PLACEBO: Branch(images="placebo"),
    UNTRAINED: Branch(trains=False),
}
