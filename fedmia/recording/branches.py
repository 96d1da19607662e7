"""The federations of a run: the one that is asked for, and its controls, a row for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAIN, ZERO, PLACEBO, UNTRAINED = "main", "zero", "placebo", "untrained"
# Models of the rounds before or after the one under audit.
EARLIER, LAST = "earlier-model", "last-model"


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
        leaks: whether anything of the scored images can leak in it; if not, an attack that finds
            them there voids the run.
        head: what the head of its column says: `AUC of the same attack on ..`.
    """

    parent: str = ""
    images: str = "members"
    armed: bool = True
    trains: bool = True
    leaks: bool = False
    head: str = ""

    def runs(self, attacked: bool, placebo: bool) -> bool:
        """Whether clients train it in a run that is attacked from inside, or has images for a
        placebo."""
        own = self.images == "members"
        return self.trains and (attacked or not self.parent) and (placebo or own)


BRANCHES: Mapping[str, Branch] = {
    MAIN: Branch(leaks=True),
    ZERO: Branch(parent=MAIN, armed=False, leaks=True),
    PLACEBO: Branch(images="placebo", head="an encoder that was trained on other images"),
    UNTRAINED: Branch(trains=False, head="an encoder that was not trained"),
    EARLIER: Branch(trains=False, head="an earlier model, which was trained on neither side"),
    LAST: Branch(trains=False, leaks=True, head="the last model, which was trained on both sides"),
}
