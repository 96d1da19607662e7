"""The format of `sweep.json`: what each row holds, with its unit and range.

AUCs, rates and accuracies lie in [0, 1]. An interval of one run (`auc_ci`) speaks of its images; an
interval of a `Spread` speaks of models: it would hold the mean of ever more seeds. Each is of 95 %
by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from fedmia.report.rows import Interval, Json, SetRow
from fedmia.statistics.spread import Spread as Spread

FORMAT = 1
Point = Mapping[str, Any]  # path of an option -> its value, of what the grid varies


class CellAttack(TypedDict):
    """An attack in one run, as its report has it."""

    name: str
    auc: float | None
    auc_ci: Interval | None
    auc_ci_simultaneous: Interval | None
    tpr_at_1_percent_fpr: float | None
    controls: dict[str, float | None]  # AUC of the same attack where nothing can leak
    choices: Json  # option -> value that the attack chose for it on known images


class CellPair(TypedDict):
    """An attack less a paired control in one run, as its report has it; an attack may have several
    controls."""

    attack: str
    control: str
    auc: float | None
    auc_control: float | None
    difference: float | None  # of the AUCs
    ci: Interval | None


class CellResults(TypedDict):
    """What a finished run found."""

    verdict: str
    verdict_code: str
    attacks: list[CellAttack]
    pairs: list[CellPair]
    sets: list[SetRow]
    knn: float | None  # accuracy of probes on the model that passive attacks are scored on
    linear: float | None
    knn_after_attack: float | None  # at the end of attacked rounds
    commit: str | None  # of fedmia's source


class CellRow(TypedDict):
    """One run."""

    name: str
    grid: Point
    seed: int
    state: str  # finished, failed, not run
    reason: str | None  # why it failed
    path: str | None  # its folder under that of the sweep, once finished
    results: CellResults | None  # null unless finished


class AttackSpread(TypedDict):
    """An attack over the models of one point."""

    name: str
    auc: Spread
    tpr_at_1_percent_fpr: Spread
    controls: dict[str, Spread]  # AUC
    choices: dict[str, Json]  # seed -> what the attack chose on that model; those without left out


class PairSpread(TypedDict):
    """What an attack adds to its paired control, over the models of one point."""

    attack: str
    control: str
    difference: Spread
    p: float | None  # two-sided t test over models of a mean of 0
    p_holm: float | None  # the same, Holm's for all pairs and sets at all points of the sweep


class SetSpread(TypedDict):
    """Sets of images over the models of one point: a row of the reports' `sets`."""

    attack: str
    judged: str  # mean, alone
    size: int
    auc: Spread
    control: str | None
    difference: Spread  # from the control on the same sets
    p: float | None  # as of a pair
    p_holm: float | None


class PointRow(TypedDict):
    """One point of the grid."""

    grid: Point
    finished: int  # models
    failed: int
    verdicts: dict[str, int]  # code -> models
    attacks: list[AttackSpread]
    pairs: list[PairSpread]
    sets: list[SetSpread]
    knn: Spread
    linear: Spread
    knn_after_attack: Spread


class DifferenceRow(TypedDict):
    """Two points that differ in one option, at equal seeds: the second less the first."""

    option: str
    first: Any
    second: Any
    others: Point  # what both have
    measure: str  # auc, knn, linear, knn_after_attack
    attack: str | None  # whose AUC
    difference: Spread


class SweepReport(TypedDict):
    """The whole of `sweep.json`, in this order."""

    format: int
    sentence: str
    grid: list[Mapping[str, Sequence[Any]]]
    seeds: list[int]  # of each point
    finished: int  # runs
    failed: int
    not_run: int
    cells: list[CellRow]  # by point, then seed
    points: list[PointRow]
    differences: list[DifferenceRow]
    notes: list[str]
    config: Mapping[str, Any]  # the sweep as its YAML file says it
    timing: Mapping[str, Any]  # seconds, the only wall clocks
