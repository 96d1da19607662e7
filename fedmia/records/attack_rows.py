"""What `report.json` holds of an attack: its threat, AUC, thresholds, pairs and sets.

The conventions of `fedmia.records.rows` hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedmia.records.fields import (
    AUC,
    COUNT,
    PURE,
    SHARE,
    SIGNED,
    fact,
    interval,
    nested,
    number,
)

Interval = Sequence[float]
Json = Mapping[str, Any]  # passed through as it came
ByFpr = dict[str, float | None]  # by target FPR: "0.001", "0.01", "0.1"
AUC_BY, DECISION_BY = "statistics.auc.auc_estimate", "statistics.thresholds.decide_at_threshold"
DIFFERENCE_BY = "statistics.auc.difference_interval"
RANKS = "how often it ranks a random member over a random non-member; 0.5: guessing"


class HasAuc(Protocol):
    """A row with an AUC and the ends of its simultaneous interval."""

    @property
    def auc(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


class HasEnds(Protocol):
    """A row with the ends of a simultaneous interval."""

    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class AucRow:
    """How well scores tell members; the numbers are null where a side is empty. The simultaneous
    interval holds at 95 % for all of its kind together: attacks, controls and pairs, clients."""

    auc: float | None = number(
        RANKS,
        AUC,
        AUC_BY,
        log="auc{_control}/{attack}",
        log_ends="auc_{end}/{attack}",
    )
    low: float | None = interval("auc", ("low",))
    high: float | None = interval("auc", ("high",))
    lower_limit: float | None = number(
        "lower limit of `auc`, one-sided, at 95 % for all attacks together; a leak asks that it is "
        "over 0.5; null of all but attacks under test",
        AUC,
        "statistics.auc.auc_interval",
        metric="auc_lower_limit",
        digits=3,
    )
    auc_ci: Interval | None = interval("auc")
    n_members: int = number("scored members", COUNT, column="n_members")
    n_nonmembers: int = number("scored non-members", COUNT, column="n_nonmembers")
    n_member_subjects: int | None = number(
        "subjects to which the members belong, such as patients; null where to none", COUNT
    )
    n_nonmember_subjects: int | None = number("likewise of the non-members", COUNT)
    design_effect: float | None = number(
        "variance of `auc` by subject over that by image, at least 1: so many images say as much "
        "as one that is drawn by itself; null without subjects",
        PURE,
        AUC_BY,
    )


def ends(row: HasEnds) -> tuple[float, float] | None:
    """The simultaneous interval, None where there is none."""
    return None if row.low is None or row.high is None else (row.low, row.high)


def with_auc(rows: Iterable[HasAuc]) -> list[Any]:
    """The rows whose AUC is known, and with it its intervals."""
    return [row for row in rows if row.auc is not None]


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """Decisions at one threshold, as if members and non-members were equally many; null without a
    threshold, precision also where no image was called a member."""

    accuracy: float | None = number(
        "share of right decisions, members and non-members weighted equally",
        SHARE,
        DECISION_BY,
        label="accuracy",
        head="accuracy",
        place=2,
    )
    accuracy_ci: Interval | None = interval("accuracy")
    precision: float | None = number(
        "share of members among the images that are called members",
        SHARE,
        DECISION_BY,
        label="precision",
    )
    precision_ci: Interval | None = interval("precision")
    recall: float | None = number(
        "share of the members that are called members", SHARE, DECISION_BY, label="recall"
    )
    recall_ci: Interval | None = interval("recall")


@dataclass(frozen=True, kw_only=True)
class OverControlRow:
    """What an attack adds to its own control on the same images; a leak asks that
    `lower_limit` is over 0. `low` and `high` hold at 95 % for all attacks together."""

    control: str = fact(
        "`placebo`, else `untrained`; where chance alone does not part the two sides, the one over "
        "which `lower_limit` is least of these and `reversed placebo`, 1 minus its AUC",
        column="baseline",
    )
    difference: float = number(
        "of the AUCs", SIGNED, DIFFERENCE_BY, metric="auc_difference", signed=True
    )
    low: float | None = interval("difference", ("low",))
    high: float | None = interval("difference", ("high",))
    lower_limit: float = number(
        "of the difference, one-sided, at 95 % for `tests` of them together",
        SIGNED,
        DIFFERENCE_BY,
        metric="auc_difference_lower_limit",
        signed=True,
        digits=3,
    )
    tests: int = fact(
        "1 on the untrained encoder where members were drawn at random; else of all attacks"
    )
    n_controls: int = fact("over how many controls the attack must lie")


@dataclass(frozen=True, kw_only=True)
class AttackRow(AucRow, Decisions):
    """One attack on the images under test, or one control of it: what it needs, what it tells at
    low false-positive rates, and how it came to it. `_refitted` is at a threshold refitted on the
    attacker's known images of the target; null without known images, and of controls, whose AUC
    alone is shown."""

    name: str = fact("of the attack", column="attack")
    paper: str = fact("where it was published, or empty")
    access: str = fact("what the attacker needs of the model: `black_box` or `white_box`")
    vantage: str = fact("where the attacker stands: `outsider`, `client` or `server`")
    under_attack: bool = fact("whether the model had received a crafted update")
    round: int | None = fact(
        "of the model that was scored, or the last of `rounds`; null: of no run", column="round"
    )
    rounds: Sequence[int] = fact("of an active attack all in which it acted; else `round` alone")
    threshold_refitted: float | None = number(
        "a score above it says member", PURE, "statistics.thresholds.best_threshold"
    )
    accuracy_refitted: float | None = number(
        "`accuracy` at that threshold",
        SHARE,
        DECISION_BY,
        label="refitted",
        only=("threshold_source", "shadow"),
    )
    accuracy_refitted_ci: Interval | None = interval("accuracy_refitted")
    precision_refitted: float | None = number("`precision` at it", SHARE, DECISION_BY)
    precision_refitted_ci: Interval | None = interval("precision_refitted")
    recall_refitted: float | None = number("`recall` at it", SHARE, DECISION_BY)
    recall_refitted_ci: Interval | None = interval("recall_refitted")
    tpr_at_fpr: ByFpr = number(
        "share of members found where so large a share of non-members is taken for members; null "
        "where too few non-members resolve it",
        SHARE,
        "statistics.thresholds.tpr_at_fpr",
        keyed="target_fpr",
        head="TPR at\n1 % FPR",
        place=1,
        key="0.01",
        log="tpr_at_1_percent_fpr/{attack}",
    )
    tpr_at_fpr_ci: dict[str, Interval | None] = interval(
        "tpr_at_fpr", help="95 % interval by target; it holds the error of the threshold"
    )
    fpr_achieved: ByFpr = number(
        "false-positive rate on the scored images, by target",
        SHARE,
        "statistics.thresholds.tpr_at_fpr",
        keyed="target_fpr",
    )
    precision_at_prior: ByFpr | None = number(
        "share of members among the records named at that true false-positive rate, where "
        "`config.prior` of all records asked about are members; absent of controls and without one",
        SHARE,
        "statistics.thresholds.precision_at_prior",
        keyed="target_fpr",
        omitted=True,
        default=None,
    )
    precision_at_prior_ci: dict[str, Interval | None] | None = interval(
        "precision_at_prior",
        help="95 % interval by target: that of the TPR at each of its ends",
        omitted=True,
        default=None,
    )
    queries: int = number("images that the attacker had embedded", COUNT)
    reading: str | None = fact(
        "of an ascent: rise or level of the loss, or line23; null of all others"
    )
    choices: Json = fact("option -> value that the attack chose for it on known images")
    threshold: float | None = number(
        "the attack's own, of its score; null where it has none",
        PURE,
        "statistics.thresholds.best_threshold",
    )
    threshold_source: str | None = fact(
        "what chose it: `shadow` or `known` images; null without a threshold"
    )
    oracle_accuracy: float | None = number(
        "`accuracy` at the threshold that is best on the scored images themselves: an upper bound",
        SHARE,
        "statistics.thresholds.oracle_accuracy",
        label="best (oracle)",
    )
    fitted_on: int | None = fact(
        "known images that it learnt from, of both sides; its intervals are of this one fit, not "
        "of another draw of these images; null of an attack that learns from none"
    )
    one_score: int | None = number(
        "scored images to which it gave one and the same score, up to rounding: it has no answer "
        "for these, and without others its AUC means nothing; absent where these are under 95 % of "
        "the members or of the non-members",
        COUNT,
        "statistics.auc.one_score_count",
        omitted=True,
        default=None,
    )
    over_control: OverControlRow | None = nested(
        "what it adds to its own control; null without one on the same images"
    )


@dataclass(frozen=True, kw_only=True)
class PairedRow:
    """An attack and its control on the same images, and what it adds; null without images to
    compare."""

    attack: str = fact(
        "a method that guesses whether an image was used for training",
        column="attack",
        head="attack",
        place=0,
    )
    control: str = fact(
        "what the attack is compared with", column="baseline", head="control", place=1
    )
    n_members: int = number("scored members", COUNT, column="n_members")
    n_nonmembers: int = number("scored non-members", COUNT, column="n_nonmembers")
    difference: float | None = number(
        "AUC of the attack less that of the control",
        SIGNED,
        DIFFERENCE_BY,
        metric="auc_difference",
        log="added/{attack}/{baseline}",
        head="difference",
        signed=True,
    )
    low: float | None = interval("difference", ("low",))
    high: float | None = interval("difference", ("high",))
    ci: Interval | None = interval("difference")
    auc: float | None = number("of the attack", AUC, AUC_BY)
    auc_control: float | None = number("of the control", AUC, AUC_BY)
    auc_control_ci: Interval | None = interval("auc_control")
    auc_control_low: float | None = interval("auc_control", ("low",))
    auc_control_high: float | None = interval("auc_control", ("high",))
    over: str = fact("the control, in words")


@dataclass(frozen=True, kw_only=True)
class SetControl:
    """A control on the same sets, and what the attack has over it."""

    name: str = fact("of the control", column="baseline")
    auc: float = number("of the control", AUC, AUC_BY)
    auc_ci: Interval = interval("auc")
    difference: float = number(
        "AUC of the attack less that of the control",
        SIGNED,
        DIFFERENCE_BY,
        metric="auc_difference",
        signed=True,
    )
    difference_ci: Interval = interval("difference")


@dataclass(frozen=True, kw_only=True)
class SetRow:
    """Sets of `size` images, each of members alone or of non-members alone, told apart. The
    simultaneous interval is over all rows of `sets`."""

    attack: str = fact("name of the attack", column="attack")
    judged: str = fact(
        "how a set gets one score, `mean`: of the scores of its images; `alone`: acted on by "
        "itself, as a whole",
        column="subject",
        head="score of a set",
    )
    size: int = fact("images a set", column="set_size")
    n_member_sets: int = number("sets of members", COUNT)
    n_nonmember_sets: int = number("sets of non-members", COUNT)
    auc: float = number(
        "how often it ranks a random set of members over one of non-members; 0.5: guessing",
        AUC,
        AUC_BY,
    )
    low: float | None = interval("auc", ("low",))
    high: float | None = interval("auc", ("high",))
    auc_ci: Interval = interval("auc")
    controls: list[SetControl] = nested(
        "of the same sets: the paired ones of the attack, else a placebo or the untrained model",
        head="control on the same sets",
    )
