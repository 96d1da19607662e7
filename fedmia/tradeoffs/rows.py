"""The format of `tradeoff.json`: what each row holds, with its unit and range.

AUCs, rates and accuracies lie in [0, 1]. An interval of a row (`auc_ci`) speaks of the images of
its one run; an interval of a `Spread` speaks of models, and is of 95 % by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from fedmia.report.rows import Interval
from fedmia.sweeping.rows import Spread

FORMAT = 1


class TradeRow(TypedDict):
    """One attack in one federation; numbers are null where they are not known, `note` says why."""

    defense: str  # none, a defence of clients, or a strategy
    strength: float | None  # of the point's `option`
    epsilon: float | None  # the largest of a defended client, over the whole run
    unit: str | None  # that it is of: image or client
    standing: str | None  # what that epsilon is worth
    attack: str
    auc: float | None
    auc_ci: Interval | None
    tpr: float | None  # at a false-positive rate of 1 %
    knn: float | None  # accuracy of the encoder that `auc` is of
    knn_untrained: float | None  # of the untrained one
    linear: float | None
    seconds: float | None  # of the whole run
    seed: int
    note: str | None


class TradeAttack(TypedDict):
    """An attack over the models of one point."""

    name: str
    auc: Spread
    auc_ci_simultaneous: Interval | None  # of the family
    tpr: Spread  # at a false-positive rate of 1 %


class TradeGroups(TypedDict):
    """AUC of the point's best attack on members of each kind of clients, against like others."""

    defended: Spread
    undefended: Spread
    difference: Spread  # of the same model: defended less undefended


class TradePoint(TypedDict):
    """One defence at one strength."""

    label: str
    defense: str
    option: str | None  # that says how strong it is
    strength: float | None
    finished: int  # models
    failed: int
    verdicts: dict[str, int]  # code -> models
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
    front: (
        bool  # no other point leaks less and keeps at least its kNN, or the reverse; of the means
    )


class TradeChoice(TypedDict):
    """Which point leaks least of those that keep the undefended kNN."""

    within: float  # share of the undefended kNN that may be lost
    candidates: list[str]  # labels, the undefended federation among them
    least: str | None  # with the smallest mean AUC of its best attack; null without candidates
    alike: list[str]  # candidates that cannot be told apart from it
    level: float  # of all these comparisons together
    spare: Spread | None  # its kNN less the least that is kept, at equal seeds; all over 0: settled


class TradeFamily(TypedDict):
    """The intervals of AUCs that hold together: of every attack at every point."""

    level: float
    intervals: int
    method: str


class TradeoffReport(TypedDict):
    """The whole of `tradeoff.json`, in this order."""

    format: int
    sentence: str
    rows: list[TradeRow]  # by point, seed, attack
    points: list[TradePoint]  # the undefended one first
    choice: TradeChoice
    family: TradeFamily
    seeds: Sequence[int]
    finished: int  # runs
    failed: int
    not_run: int
    notes: list[str]
    config: Mapping[str, Any]  # the trade-off as its YAML file says it
    timing: Mapping[str, Any]  # seconds
