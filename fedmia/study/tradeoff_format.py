"""The format of `tradeoff.json`; the conventions of `fedmia.study.formats` hold."""

from __future__ import annotations

from typing import TypedDict

from fedmia.records.attack_rows import Interval
from fedmia.statistics.spread import Spread
from fedmia.study.formats import AucSpread, StudyReport, VerdictCounts


class TradeRow(TypedDict):
    """One attack in one federation; numbers are null where they are not known, `note` says why.

    Attributes:
        defense: none, a defence of clients, or a strategy.
        strength: of the point's `option`.
        epsilon: the largest of a defended client, over the whole run.
        unit: that it is of: image or client.
        standing: what that epsilon is worth.
        attack: its name.
        auc: in [0, 1].
        auc_ci: its 95 % interval.
        tpr: at a false-positive rate of 1 %.
        knn: accuracy of the encoder that `auc` is of.
        knn_untrained: of the untrained one.
        linear: accuracy of the linear probe.
        seconds: of the whole run.
        seed: of the run.
        note: why a number is null.
    """

    defense: str
    strength: float | None
    epsilon: float | None
    unit: str | None
    standing: str | None
    attack: str
    auc: float | None
    auc_ci: Interval | None
    tpr: float | None
    knn: float | None
    knn_untrained: float | None
    linear: float | None
    seconds: float | None
    seed: int
    note: str | None


class TradeAttack(AucSpread):
    """An attack over the models of one point."""

    auc_ci_simultaneous: Interval | None  # of the family
    tpr: Spread  # at a false-positive rate of 1 %


class TradeGroups(TypedDict):
    """AUC of the point's best attack on members of each kind of clients, against like others.

    Attributes:
        defended: AUC of the defended clients.
        undefended: AUC of the others.
        difference: of the same model: defended less undefended.
    """

    defended: Spread
    undefended: Spread
    difference: Spread


class TradePoint(VerdictCounts):
    """One defence at one strength."""

    label: str
    defense: str
    option: str | None  # that says how strong it is
    strength: float | None
    epsilon: float | None  # the largest of a model
    unit: str | None
    standing: str | None
    attacks: list[TradeAttack]
    best: str | None  # the attack with the largest mean AUC
    knn: Spread
    linear: Spread
    # Less those of the undefended federation of the same seed; null for itself.
    auc_change: Spread | None  # of the best attack of each
    knn_change: Spread | None
    knn_over_untrained: Spread  # less that of the untrained encoder of the same seed
    groups: TradeGroups | None  # null unless some clients defend themselves and some do not
    front: bool  # of the means, no other point leaks less and keeps its kNN, or the reverse


class TradeChoice(TypedDict):
    """Which point leaks least of those that keep the undefended kNN.

    Attributes:
        within: share of the undefended kNN that may be lost.
        candidates: labels, the undefended federation among them.
        least: with the smallest mean AUC of its best attack; null without candidates.
        alike: candidates that cannot be told apart from it.
        level: of all these comparisons together.
        spare: its kNN less the least that is kept, at equal seeds; all over 0: settled.
    """

    within: float
    candidates: list[str]
    least: str | None
    alike: list[str]
    level: float
    spare: Spread | None


class TradeFamily(TypedDict):
    """The intervals of AUCs that hold together: of every attack at every point.

    Attributes:
        level: of confidence, in (0, 1).
        intervals: how many.
        method: of the correction.
    """

    level: float
    intervals: int
    method: str


class TradeoffReport(StudyReport):
    """The whole of `tradeoff.json`."""

    rows: list[TradeRow]  # by point, seed, attack
    points: list[TradePoint]  # the undefended one first
    choice: TradeChoice
    family: TradeFamily
