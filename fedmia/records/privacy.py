"""Privacy statements: epsilon, what it rests on, whose it is, and its lower bound by canaries.

The conventions of `fedmia.records.rows` hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedmia.records.fields import COUNT, fact, nested, number

MEANINGFUL = 20.0  # a larger epsilon is printed as no meaningful guarantee
NOISE = {
    "seeded": "Noise, coins and cohorts come from a seeded generator: a simulation, whose noise "
    "can be drawn again by whoever has the settings.",
    "entropy": "Noise, coins and cohorts come from the operating system's entropy. Not covered: "
    "the generators that it starts are not cryptographic, and floating point leaves gaps in their "
    "noise (Mironov, CCS 2012).",
}
UNITS = ("image", "client")
EPSILON, AT_DELTA = "epsilon", "delta, in [0, 1]"


@dataclass(frozen=True, kw_only=True)
class BoundRow:
    """A lower bound of epsilon; 0 where nothing is refuted, and before a report computes it."""

    value: float = number(
        "at 95 % by itself",
        EPSILON,
        "report.lowerbounds.epsilon_lower_bound",
        metric="lower_bound",
        default=0.0,
    )
    value_simultaneous: float = number(
        "at 95 % together with all lower bounds of the report",
        EPSILON,
        "report.lowerbounds.epsilon_lower_bound",
        metric="lower_bound_simultaneous",
        default=0.0,
    )
    refuted: bool = fact("whether the claim lies under `value_simultaneous`", default=False)


@dataclass(frozen=True, kw_only=True)
class CanaryBoundRow(BoundRow):
    """By canaries in a run of the mechanism of their own; see `fedmia.lowerbounds`."""

    audit: str = fact("one-run (onerun.py), one-run-gdp or own-runs-gdp (fdp.py)")
    canaries: int = number("each in with probability 1/2", COUNT)
    guesses: Sequence[int] = number("numbers of them guessed, fixed in advance", COUNT)
    correct: Sequence[int] = number("how many of each were right", COUNT)
    most: float = number(
        "what `value_simultaneous` would be if every guess were right",
        EPSILON,
        "report.lowerbounds.epsilon_lower_bound",
        default=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """A privacy statement, as a defence or a strategy makes it and the report holds it.

    Attributes:
        unit: one of UNITS; empty where a plugin does not say.
        noise_source: a key of NOISE, which says what it means.
        lower_bound: of an audit of the mechanism by canaries: its guesses; a report computes its
            numbers.
    """

    value: float | None = number(
        "spent over all rounds; null: none can be stated",
        EPSILON,
        "defenses.base.Defense.privacy",
        metric="epsilon",
    )
    unit: str = fact(
        "of privacy: image or client; empty where a plugin does not say", column="unit", default=""
    )
    delta: float = number("of (epsilon, delta)-DP; 0: pure DP", AT_DELTA)
    rounds: int = number("rounds that it covers", COUNT)
    standing: str = fact(
        "`guaranteed`, `heuristic` or `empirical`: what it rests on", column="note"
    )
    noise_source: str = fact(
        "seeded or entropy; `assumptions` says what that means", default="seeded"
    )
    assumptions: str = fact("what it rests on, in sentences")
    lower_bound: CanaryBoundRow | None = nested(
        "where canaries audited the mechanism; else null", subject="lower_bound", default=None
    )
