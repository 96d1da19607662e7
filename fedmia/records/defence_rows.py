"""What `report.json` holds of defences, and of the lower bound by attacks on what they promise.

The conventions of `fedmia.records.rows` hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmia.records.fields import COUNT, PURE, SHARE, fact, nested, number
from fedmia.records.privacy import AT_DELTA, EPSILON, BoundRow, Epsilon


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
class DefencePart:
    """One defence of a client, or a server's rule."""

    name: str = fact("of the defence")
    epsilon: Epsilon | None = nested(
        "its privacy statement; null: none can be stated", default=None
    )
    metrics: Mapping[str, float] = number(
        "of its last round, as the simulator sees them",
        PURE,
        "defenses.base.Defense.release",
        keyed="metric",
        default_factory=dict,
    )


@dataclass(frozen=True, kw_only=True)
class DefenceRow(DefencePart):
    """All defences of a client together: their names, what they promise, and each by itself."""

    parts: Sequence[DefencePart] = nested(
        "in the order in which they act", subject="part", indexed=True, default_factory=list
    )
    beside: Sequence[Epsilon] = nested(
        "further statements, of another unit or delta",
        subject="beside",
        indexed=True,
        default_factory=list,
    )


@dataclass(frozen=True, kw_only=True)
class AggregationRow(DefencePart):
    """What the server does with updates: a strategy's name, what it promises a client, what it
    tells of its last round or of all."""

    view: str = fact(
        "`updates`: it sees each by itself; `sums`: their sum alone", default="updates"
    )
