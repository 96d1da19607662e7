"""The format of `sweep.json`: what each row holds, with its unit and range.

AUCs, rates, accuracies and shares lie in [0, 1], differences in [-1, 1]; an interval is of 95 % by
itself unless it is called simultaneous. An interval of one run (`auc_ci`) speaks of its images. One
of a `Spread` speaks of models, or of heads of one encoder and one data source: it would hold the
mean of ever more of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from fedmia.records.attack_rows import Interval, Json, SetRow
from fedmia.statistics.spread import Spread

FORMAT = 1
Point = Mapping[str, Any]  # path of an option -> its value, of what the grid varies


class ReportHead(TypedDict):
    """What every file that compares holds.

    Attributes:
        format: version of the file.
        sentence: what a reader should take home.
        notes: what a reader must know.
        config: as the command's YAML file says it.
        timing: seconds, the only wall clocks.
    """

    format: int
    sentence: str
    notes: list[str]
    config: Mapping[str, Any]
    timing: Mapping[str, Any]


class StudyReport(ReportHead):
    """What the file of every study holds."""

    seeds: Sequence[int]  # of each point
    finished: int  # runs, or audits
    failed: int
    not_run: int


class RunState(TypedDict):
    """One run, or one audit.

    Attributes:
        name: of the run.
        seed: of the run.
        state: finished, failed, not run.
        reason: why it failed.
        path: its folder under that of the study, once finished.
    """

    name: str
    seed: int
    state: str
    reason: str | None
    path: str | None


class VerdictCounts(TypedDict):
    """The models of one point, one a seed, or the audits of one encoder.

    Attributes:
        finished: how many runs.
        failed: how many runs.
        verdicts: code -> how many.
    """

    finished: int
    failed: int
    verdicts: dict[str, int]


# -- a sweep --------------------------------------------------------------------------------------


class CellAttack(TypedDict):
    """An attack in one run, as its report has it.

    Attributes:
        name: of the attack.
        auc: in [0, 1]; null where it is not known.
        auc_ci: its 95 % interval.
        auc_ci_simultaneous: its simultaneous 95 % interval.
        tpr_at_1_percent_fpr: null below 100 non-members.
        controls: AUC of the same attack where nothing can leak.
        choices: option -> value that the attack chose for it on known images.
    """

    name: str
    auc: float | None
    auc_ci: Interval | None
    auc_ci_simultaneous: Interval | None
    tpr_at_1_percent_fpr: float | None
    controls: dict[str, float | None]
    choices: Json


class CellPair(TypedDict):
    """An attack less a paired control in one run, as its report has it; an attack may have several
    controls.

    Attributes:
        attack: its name.
        control: name of the paired control.
        auc: of the attack.
        auc_control: of the control.
        difference: of the AUCs.
        ci: 95 % interval of the difference.
    """

    attack: str
    control: str
    auc: float | None
    auc_control: float | None
    difference: float | None
    ci: Interval | None


class CellResults(TypedDict):
    """What a finished run found.

    Attributes:
        verdict: the sentence.
        verdict_code: `leaks`, `not-established`, ..
        attacks: one entry for each attack.
        pairs: one entry for each paired control.
        sets: the report's `sets`.
        knn: accuracy of probes on the model that passive attacks are scored on.
        linear: accuracy of the linear probe.
        knn_after_attack: at the end of attacked rounds.
        commit: of fedmia's source.
    """

    verdict: str
    verdict_code: str
    attacks: list[CellAttack]
    pairs: list[CellPair]
    sets: list[SetRow]
    knn: float | None
    linear: float | None
    knn_after_attack: float | None
    commit: str | None


class CellRow(RunState):
    """One run."""

    grid: Point
    results: CellResults | None  # null unless finished


class AttackSpread(TypedDict):
    """An attack over the models of one point.

    Attributes:
        name: of the attack.
        auc: over models.
        tpr_at_1_percent_fpr: over models.
        controls: AUC of each control.
        choices: seed -> what the attack chose on that model; those without left out.
    """

    name: str
    auc: Spread
    tpr_at_1_percent_fpr: Spread
    controls: dict[str, Spread]
    choices: dict[str, Json]


class TestedDifference(TypedDict):
    """A difference over the models of one point.

    Attributes:
        difference: over models.
        p: two-sided t test over models of a mean of 0.
        p_holm: the same, Holm's for all pairs and sets at all points of the sweep.
    """

    difference: Spread
    p: float | None
    p_holm: float | None


class PairSpread(TestedDifference):
    """What an attack adds to its paired control, over the models of one point."""

    attack: str
    control: str


class SetSpread(TestedDifference):
    """Sets of images over the models of one point, a row of the reports' `sets`; the difference is
    from the control on the same sets."""

    attack: str
    judged: str  # mean, alone
    size: int
    auc: Spread
    control: str | None


class PointRow(VerdictCounts):
    """One point of the grid."""

    grid: Point
    attacks: list[AttackSpread]
    pairs: list[PairSpread]
    sets: list[SetSpread]
    knn: Spread
    linear: Spread
    knn_after_attack: Spread


class DifferenceRow(TypedDict):
    """Two points that differ in one option, at equal seeds: the second less the first.

    Attributes:
        option: its path.
        first: value of the first point.
        second: value of the second point.
        others: what both have.
        measure: auc, knn, linear, knn_after_attack.
        attack: whose AUC.
        difference: over seeds.
    """

    option: str
    first: Any
    second: Any
    others: Point
    measure: str
    attack: str | None
    difference: Spread


class SweepReport(StudyReport):
    """The whole of `sweep.json`."""

    grid: list[Mapping[str, Sequence[Any]]]
    cells: list[CellRow]  # by point, then seed
    points: list[PointRow]
    differences: list[DifferenceRow]
    views: NotRequired[Mapping[str, Mapping[str, Any]]]  # those asked for beside, by their names
