"""What `report.json` holds of defences: epsilons, their lower bounds, groups of clients.

The conventions of `fedmia.records.rows` hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.records.fields import COUNT, PURE, SHARE, fact, nested, number

EPSILON, AT_DELTA = "epsilon", "delta, in [0, 1]"


@dataclass(frozen=True, kw_only=True)
class BoundRow:
    """A lower bound of epsilon; 0 where nothing is refuted."""

    value: float = number(
        "at 95 % by itself",
        EPSILON,
        "report.lowerbounds.epsilon_lower_bound",
        metric="lower_bound",
    )
    value_simultaneous: float = number(
        "at 95 % together with all lower bounds of the report",
        EPSILON,
        "report.lowerbounds.epsilon_lower_bound",
        metric="lower_bound_simultaneous",
    )
    refuted: bool = fact("whether the claim lies under `value_simultaneous`")


@dataclass(frozen=True, kw_only=True)
class CanaryBoundRow(BoundRow):
    """By canaries in a run of the mechanism of their own; see `fedmia.lowerbounds`."""

    audit: str = fact("one-run (onerun.py), one-run-gdp or own-runs-gdp (fdp.py)")
    canaries: int = number("each in with probability 1/2", COUNT)
    guesses: list[int] = number("numbers of them guessed, fixed in advance", COUNT)
    correct: list[int] = number("how many of each were right", COUNT)
    most: float = number(
        "what `value_simultaneous` would be if every guess were right",
        EPSILON,
        "report.lowerbounds.epsilon_lower_bound",
    )


@dataclass(frozen=True, kw_only=True)
class AttackBoundRow(BoundRow):
    """The largest by the run's attacks; see `fedmia.lowerbounds.rates`. All images share one
    training run, so it is empirical: it holds only as far as their scores are independent."""

    attack: str = fact("name of the attack", column="attack")
    delta: float = number("the largest claimed", AT_DELTA)
    rate: float = number(
        "of false alarms that it was found at", SHARE, "lowerbounds.rates.rates_bound"
    )
    says: str = fact("what the attack calls an image there: member, non-member")
    tried: int = number("bounds that it is corrected for", COUNT)
    n_members: int = number("of clients that claim an epsilon", COUNT, column="n_members")
    n_nonmembers: int = number("scored non-members", COUNT, column="n_nonmembers")
    clients: int = number("clients that claim an epsilon", COUNT)
    claim: float = number(
        "the largest epsilon among them", EPSILON, "report.lowerbounds.attack_bound"
    )


@dataclass(frozen=True, kw_only=True)
class EpsilonRow:
    """A privacy statement; see `fedmia.records.privacy.Epsilon`."""

    value: float | None = number(
        "spent over all rounds; null: none can be stated",
        EPSILON,
        "defenses.base.Defense.privacy",
        metric="epsilon",
    )
    unit: str = fact(
        "of privacy: image or client; empty where a plugin does not say", column="unit"
    )
    delta: float = number("of (epsilon, delta)-DP; 0: pure DP", AT_DELTA)
    rounds: int = number("rounds that it covers", COUNT)
    standing: str = fact(
        "`guaranteed`, `heuristic` or `empirical`: what it rests on", column="note"
    )
    noise_source: str = fact("seeded or entropy; `assumptions` says what that means")
    assumptions: str = fact("what it rests on, in sentences")
    lower_bound: CanaryBoundRow | None = nested(
        "where canaries audited the mechanism; else null", subject="lower_bound"
    )


@dataclass(frozen=True, kw_only=True)
class DefencePart:
    """One defence of a client, or a server's rule."""

    name: str = fact("of the defence")
    epsilon: EpsilonRow | None = nested("its privacy statement; null: none can be stated")
    metrics: dict[str, float] = number(
        "of its last round, as the simulator sees them",
        PURE,
        "defenses.base.Defense.release",
        keyed="metric",
    )


@dataclass(frozen=True, kw_only=True)
class DefenceRow(DefencePart):
    """All defences of a client together: their names, what they promise, and each by itself."""

    parts: list[DefencePart] = nested(
        "in the order in which they act", subject="part", indexed=True
    )
    beside: list[EpsilonRow] = nested(
        "further statements, of another unit or delta", subject="beside", indexed=True
    )


@dataclass(frozen=True, kw_only=True)
class AggregationRow(DefencePart):
    """What the server does with updates: a strategy's name, what it promises a client, what it
    tells of its last round or of all."""

    view: str = fact("`updates`: it sees each by itself; `sums`: their sum alone")
