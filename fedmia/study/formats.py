"""The formats of a study's files: what each row holds, with its unit and range.

AUCs, rates, accuracies and shares lie in [0, 1], differences in [-1, 1]; an interval is of 95 % by
itself unless it is called simultaneous. An interval of one run (`auc_ci`) speaks of its images. One
of a `Spread` speaks of models, or of heads of one encoder and one data source: it would hold the
mean of ever more of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from fedmia.records.attack_rows import Interval, Json, SetRow
from fedmia.records.defence_rows import CanaryBoundRow
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


class AucSpread(TypedDict):
    """An attack over models.

    Attributes:
        name: of the attack.
        auc: over models.
    """

    name: str
    auc: Spread


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


class AttackSpread(AucSpread):
    """An attack over the models of one point."""

    tpr_at_1_percent_fpr: Spread
    controls: dict[str, Spread]  # AUC
    choices: dict[str, Json]  # seed -> what the attack chose on that model; those without left out


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


# -- audits of several encoders -------------------------------------------------------------------


class SeriesDifference(TypedDict):
    """An attack's AUC less that on the last encoder of the same run, or of those without rounds,
    on the same images.

    Attributes:
        last: the encoder that is compared with.
        difference: in [-1, 1].
        ci: by itself.
        ci_simultaneous: together with all differences of the series.
    """

    last: str
    difference: float
    ci: Interval
    ci_simultaneous: Interval


class SeriesAttack(TypedDict):
    """An attack on one encoder; null where no seed has the number.

    Attributes:
        name: of the attack.
        auc: mean over seeds.
        auc_ci: its 95 % interval.
        by_seed: AUC of each seed.
        tpr_at_1_percent_fpr: mean over seeds.
        untrained: AUC on the untrained control.
        difference: null on the last encoder itself, or of other images.
    """

    name: str
    auc: float | None
    auc_ci: Interval | None
    by_seed: list[float | None]
    tpr_at_1_percent_fpr: float | None
    untrained: float | None
    difference: SeriesDifference | None


class SeriesPoint(VerdictCounts):
    """One encoder.

    Its intervals speak of images: it is one model, however many seeds. A seed draws the attacker's
    views and deals the images anew, but for a run's own; over seeds a number is the mean, and so is
    each end of its interval. One seed's error is the most that a mean of several can have, so such
    an interval is rather too wide than too narrow.
    """

    encoder: str  # as it was given
    name: str
    run: str  # its run, or itself
    round: int | None  # null where it has none
    n_members: int | None  # scored, of the first seed
    n_nonmembers: int | None
    attacks: list[SeriesAttack]
    knn: float | None
    knn_ci: Interval | None
    knn_untrained: float | None
    linear: float | None
    linear_ci: Interval | None
    n_probe: int | None  # test images of the probes


class SeriesModels(TypedDict):
    """The same round of several runs; the spreads speak of models, one a run.

    Attributes:
        round: of the runs.
        attacks: AUC, by attack.
        knn: accuracy.
        linear: accuracy of the linear probe.
    """

    round: int
    attacks: dict[str, Spread]
    knn: Spread
    linear: Spread


class SeriesCell(RunState):
    """One audit."""

    encoder: str
    verdict: str | None


class SeriesReport(StudyReport):
    """The whole of `series.json`."""

    points: list[SeriesPoint]  # in the order of the encoders
    models: list[SeriesModels]  # by round; empty without several runs
    cells: list[SeriesCell]  # all encoders at the first seed first


# -- a trade-off ----------------------------------------------------------------------------------


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


# -- released heads -------------------------------------------------------------------------------


class HeadAttack(AucSpread):
    """One attack (shadow, shadow-knowing, confidence) on heads at one setting, over the heads."""

    auc_ci_simultaneous: Interval | None
    accuracy: Spread  # balanced, at the classifier's own threshold; of none without one
    tpr_at_1_percent_fpr: Spread


class HeadRow(TypedDict):
    """Heads at one setting; `mechanism` and `epsilon` are null where nothing is noised.

    Attributes:
        mechanism: name of the noise.
        epsilon: privacy budget of a release.
        delta: 0 of a pure mechanism.
        standing: empirical: the sensitivity is sampled; null where nothing is promised.
        meaningful: whether the epsilon is small enough to mean something.
        unit: image: one labelled image of the head, replaced.
        lower_bound: by made-up heads under the same noise; of their epsilon.
        scale: of the noise on a weight.
        utility: share of held-out images classified right.
        utility_loss: Definition 6.1.
        attacks: one entry for each attack.
    """

    mechanism: str | None
    epsilon: float | None
    delta: float
    standing: str | None
    meaningful: bool
    unit: str
    lower_bound: CanaryBoundRow | None
    scale: Spread
    utility: Spread
    utility_loss: Spread
    attacks: list[HeadAttack]


class HeadControls(TypedDict):
    """Where nothing of the encoder, or of these images, can leak.

    Attributes:
        untrained: heads without noise on the encoder without what training put into it.
        placebo: the same images, asked about a head that saw none of them.
    """

    untrained: HeadRow
    placebo: list[HeadAttack]


class HeadReport(ReportHead):
    """The whole of `head.json`."""

    encoder: str
    data: str
    heads: int
    releases: int  # of each head at each setting
    n_members: int  # of each head
    n_nonmembers: int
    shadows: int  # of each head
    weights: int  # of a head
    fitted: Spread  # share of its own images that a head classifies right
    sensitivity: dict[str, Spread]  # l1, l2; of the heads
    assumptions: str
    rows: list[HeadRow]  # without noise first
    controls: HeadControls
    versions: Mapping[str, Any]
