"""What `report.json` holds of defences: epsilons, their lower bounds, groups of clients.

The conventions of `fedmia.records.rows` hold.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from fedmia.records.attack_rows import Attack, High, Interval, Low, Members, Nonmembers
from fedmia.records.fields import Field


class BoundRow(TypedDict):
    """A lower bound of epsilon; 0 where nothing is refuted.

    Attributes:
        refuted: the claim lies under `value_simultaneous`.
    """

    value: Annotated[float, Field("lower_bound")]  # at 95 % by itself
    # Together with all lower bounds of the report.
    value_simultaneous: Annotated[float, Field("lower_bound_simultaneous")]
    refuted: bool


class CanaryBoundRow(BoundRow, TypedDict):
    """By canaries in a run of the mechanism of their own; see `fedmia.lowerbounds`.

    Attributes:
        audit: one-run (onerun.py), one-run-gdp or own-runs-gdp (fdp.py).
        canaries: each in with probability 1/2.
        guesses: numbers of them guessed, fixed in advance.
        correct: how many of each were right.
        most: what `value_simultaneous` would be if every guess were right.
    """

    audit: str
    canaries: int
    guesses: list[int]
    correct: list[int]
    most: float


class AttackBoundRow(BoundRow, TypedDict):
    """The largest by the run's attacks; see `fedmia.lowerbounds.rates`.

    Attributes:
        attack: name of the attack.
        delta: the largest claimed.
        rate: of false alarms that it was found at.
        says: what the attack calls an image there: member, non-member.
        tried: bounds that it is corrected for.
        n_members: of clients that claim an epsilon.
        n_nonmembers: number of scored non-members.
        clients: number of clients that claim an epsilon.
        claim: the largest epsilon among them.
        standing: what the bound rests on, one sentence.
    """

    attack: Attack
    delta: float
    rate: float
    says: str
    tried: int
    n_members: Members
    n_nonmembers: Nonmembers
    clients: int
    claim: float
    standing: str


class EpsilonRow(TypedDict):
    """A privacy statement; see `fedmia.records.Epsilon`.

    Attributes:
        delta: of (epsilon, delta)-DP; 0: pure DP.
        rounds: number of rounds that it covers.
        noise_source: seeded or entropy; `assumptions` says what that means.
        assumptions: what the statement rests on, one sentence.
        lower_bound: where canaries audited the mechanism; else absent.
    """

    value: Annotated[float | None, Field("epsilon")]
    unit: Annotated[str, Field(column="unit")]  # image or client; empty where a plugin does not say
    delta: float
    rounds: int
    standing: Annotated[str, Field(column="note")]
    noise_source: str
    assumptions: str
    # Where canaries audited the mechanism.
    lower_bound: NotRequired[Annotated[CanaryBoundRow, Field(subject="lower_bound")]]


class DefencePart(TypedDict):
    """One defence of a client; `epsilon` is null where none can be stated.

    Attributes:
        name: name of the defence.
        epsilon: its privacy statement; null: none can be stated.
    """

    name: str
    epsilon: EpsilonRow | None
    # Of its last round, as the simulator sees them.
    metrics: Annotated[dict[str, float], Field(keyed="metric")]


class DefenceRow(DefencePart, TypedDict):
    """All defences of a client together: their names, what they promise, and each by itself.

    Attributes:
        beside: further statements, of another unit or delta.
    """

    # In the order in which they act.
    parts: Annotated[list[DefencePart], Field(subject="part", indexed=True)]
    # More statements, of another unit or delta.
    beside: NotRequired[Annotated[list[EpsilonRow], Field(subject="beside", indexed=True)]]


class GroupLeak(TypedDict):
    """Leakage of a group's scored members against non-members like them.

    Attributes:
        attack: name of the attack.
        under_attack: whether the model had received a crafted update.
        auc: area under the ROC curve, in [0, 1]; 0.5: no better than guessing.
        auc_ci: 95 % confidence interval [low, high] of `auc`.
        low: lower end of its interval over the attacks of all groups.
        high: upper end.
        n_nonmembers_effective: Kish's number of the weighted non-members.
        null_auc: of non-members who pose as these members: mean and 95 % band.
    """

    attack: Attack
    under_attack: bool
    auc: float
    low: Low
    high: High
    auc_ci: Interval
    n_nonmembers_effective: float
    null_auc: float | None
    null_ci: Annotated[Interval | None, Field(part="null_auc")]


class GroupRow(TypedDict):
    """Clients that defend themselves, or those that do not.

    Attributes:
        n_clients: number of clients, where `clients` lists only some.
        images: number of their images.
        n_members: scored, of classes that a scored non-member has.
        leakage: one row an attack.
        knn: of the global encoder, test images weighted to the group's class mix.
        knn_ci: 95 % confidence interval [low, high] of `knn`; null where there is none.
    """

    group: Annotated[str, Field(column="subject")]  # defended or undefended
    clients: Annotated[list[int], Field(aside=True)]
    n_clients: NotRequired[int]
    images: int
    n_members: Members
    leakage: list[GroupLeak]
    knn: float | None
    knn_ci: Interval | None


class DefenceGroupsRow(TypedDict):
    """Leakage and utility by defended and undefended clients.

    Attributes:
        groups: the defended clients, and the others.
        statement: whether the defended leak all the same, one sentence.
    """

    groups: list[GroupRow]
    statement: str


class AggregationRow(DefencePart, TypedDict):
    """What the server does with updates: a strategy's name, what it promises a client, what it
    tells of its last round or of all.

    Attributes:
        view: updates: it sees each by itself; sums: their sum alone.
    """

    view: str
