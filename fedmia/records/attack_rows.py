"""What `report.json` holds of an attack: its threat, AUC, thresholds, pairs and sets.

The conventions of `fedmia.records.rows` hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from fedmia.records.fields import Field

Interval = Sequence[float]
Json = Mapping[str, Any]  # passed through as it came
Attack = Annotated[str, Field(column="attack")]
Client = Annotated[int, Field(column="client")]
Round = Annotated[int, Field(column="round")]
Members = Annotated[int, Field(column="n_members")]
Nonmembers = Annotated[int, Field(column="n_nonmembers")]
Low = Annotated[float | None, Field(part="auc", fills=("low",))]
High = Annotated[float | None, Field(part="auc", fills=("high",))]
Least = Annotated[float | None, Field(part="difference", fills=("low",))]
Most = Annotated[float | None, Field(part="difference", fills=("high",))]
ByFpr = Annotated[dict[str, float | None], Field(keyed="target_fpr")]


class AucRow(TypedDict):
    """How well scores tell members; the numbers are null where a side is empty.

    Attributes:
        auc_ci: 95 % confidence interval [low, high] of `auc`; null where there is none.
        low: lower end of the two-sided interval of `auc` that holds at 95 % for all of its kind
            together: attacks, controls and pairs, clients.
        high: its upper end.
        lower_limit: of `auc`, one-sided, at 95 % for all attacks together; a leak asks that it is
            over 0.5. Absent of all but attacks under test.
        n_members: scored.
        n_nonmembers: number of scored non-members.
        n_member_subjects: to which the members belong, such as patients; absent where to none.
        n_nonmember_subjects: likewise of the non-members.
        design_effect: variance of `auc` by subject over that by image, at least 1: so many images
            say as much as one that is drawn by itself.
    """

    auc: Annotated[
        float | None,
        Field(log="auc{_control}/{attack}", log_ends="auc_{end}/{attack}"),
    ]
    low: Low
    high: High
    lower_limit: NotRequired[Annotated[float, Field("auc_lower_limit")]]
    auc_ci: Interval | None
    n_members: Members
    n_nonmembers: Nonmembers
    n_member_subjects: NotRequired[int]
    n_nonmember_subjects: NotRequired[int]
    design_effect: NotRequired[float]


def ends(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """The simultaneous interval, None where there is none."""
    return None if row["low"] is None or row["high"] is None else (row["low"], row["high"])


def with_auc(rows: Iterable[Any]) -> list[Any]:
    """The rows whose AUC is known, and with it its intervals."""
    return [row for row in rows if row["auc"] is not None]


class ThresholdRow(TypedDict):
    """Decisions at one threshold, as if members and non-members were equally many; null without a
    threshold, precision also where no image was called a member.

    Attributes:
        accuracy_ci: 95 % confidence interval [low, high] of `accuracy`; null where there is none.
        precision_ci: 95 % confidence interval [low, high] of `precision`; null where there is
            none.
        recall_ci: 95 % confidence interval [low, high] of `recall`; null where there is none.
    """

    accuracy: Annotated[float | None, Field(label="accuracy", head="accuracy", place=2)]
    accuracy_ci: Interval | None
    precision: Annotated[float | None, Field(label="precision")]
    precision_ci: Interval | None
    recall: Annotated[float | None, Field(label="recall")]
    recall_ci: Interval | None


class ThreatRow(TypedDict):
    """What the attacker needs.

    Attributes:
        access: `black_box` or `white_box`.
        vantage: `outsider`, `client` or `server`.
    """

    access: str
    vantage: str


class AttackHead(TypedDict):
    """An attack, and the model that it was scored on.

    Attributes:
        name: name of the attack.
        paper: where it was published, or empty.
        threat: what the attacker needs.
        under_attack: the model had received a crafted update.
        round: of the model that was scored, or the last of `rounds`; null: of no run.
    """

    name: Attack
    paper: str
    threat: ThreatRow
    under_attack: bool
    round: Round | None
    # Of an active attack all in which it acted; else `round` alone.
    rounds: Annotated[Sequence[int], Field(aside=True)]


class OverControlRow(TypedDict):
    """What an attack adds to its own control on the same images; a leak asks that
    `lower_limit` is over 0.

    Attributes:
        control: `placebo`, else `untrained`; where chance alone does not part the two sides, the
            one over which `lower_limit` is least of these and `reversed placebo`, 1 minus its AUC.
        difference: of the AUCs, in [-1, 1].
        low: lower end of its two-sided interval, at 95 % for all attacks together.
        high: its upper end.
        lower_limit: one-sided, at 95 % for `tests` of them together.
        tests: 1 on the untrained encoder where members were drawn at random; else of all attacks.
        n_controls: over how many controls the attack must lie.
    """

    control: Annotated[str, Field(column="baseline")]
    difference: Annotated[float, Field("auc_difference")]
    low: Least
    high: Most
    lower_limit: Annotated[float, Field("auc_difference_lower_limit")]
    tests: Annotated[int, Field(aside=True)]
    n_controls: Annotated[int, Field(aside=True)]


class AttackRow(AttackHead, AucRow, ThresholdRow, TypedDict):
    """One attack on the images under test, or one control of it: what it tells at low
    false-positive rates, and how it came to it. `_refitted` is at a threshold refitted on the
    attacker's known images of the target; null without known images, and of controls, whose AUC
    alone is shown.

    Attributes:
        threshold_refitted: a score above it says member.
        accuracy_refitted_ci: 95 % confidence interval [low, high] of `accuracy_refitted`; null
            where there is none.
        precision_refitted: share of members among the images that are called members.
        precision_refitted_ci: 95 % confidence interval [low, high] of `precision_refitted`; null
            where there is none.
        recall_refitted: share of the members that are called members.
        recall_refitted_ci: 95 % confidence interval [low, high] of `recall_refitted`; null where
            there is none.
        tpr_at_fpr_ci: 95 % confidence interval by target; it counts the threshold's error.
        fpr_achieved: false-positive rate on the scored images, by target.
        queries: images that the attacker had embedded.
        reading: of an ascent: rise or level of the loss, or line23; null of all others.
        choices: option -> value that the attack chose for it on known images.
        threshold: the attack's own, of its score; null where it has none.
        threshold_source: what chose it: shadow or known images; null without a threshold.
        fitted_on: known images that it learnt from, of both sides; its intervals are of this one
            fit, not of another draw of these images. Absent of an attack that learns from none.
        over_control: absent of an attack that has no control on the same images.
    """

    threshold_refitted: float | None
    accuracy_refitted: Annotated[
        float | None, Field(label="refitted", only=("threshold_source", "shadow"))
    ]
    accuracy_refitted_ci: Interval | None
    precision_refitted: float | None
    precision_refitted_ci: Interval | None
    recall_refitted: float | None
    recall_refitted_ci: Interval | None
    # By target FPR, "0.001", "0.01", "0.1"; null where too few non-members resolve it.
    tpr_at_fpr: Annotated[
        dict[str, float | None],
        Field(
            keyed="target_fpr",
            head="TPR at\n1 % FPR",
            place=1,
            key="0.01",
            log="tpr_at_1_percent_fpr/{attack}",
        ),
    ]
    tpr_at_fpr_ci: dict[str, Interval | None]
    fpr_achieved: ByFpr
    queries: int
    reading: str | None
    choices: Json
    threshold: float | None
    threshold_source: str | None
    # At the threshold that is best on the scored images themselves.
    oracle_accuracy: Annotated[float | None, Field(label="best (oracle)")]
    fitted_on: NotRequired[Annotated[int, Field(aside=True)]]
    over_control: NotRequired[OverControlRow]


class PairedRow(TypedDict):
    """An attack and its control on the same images, and what it adds. Without images to compare,
    numbers are null and AUCs absent.

    Attributes:
        attack: name of the attack.
        n_members: number of scored members.
        n_nonmembers: number of scored non-members.
        auc: AUC of the attack, in [0, 1].
        auc_control: AUC of the control.
        auc_control_ci: 95 % confidence interval [low, high] of `auc_control`.
        auc_control_low: lower end of the simultaneous interval of `auc_control`.
        auc_control_high: its upper end.
        low: lower end of the simultaneous interval of `difference`.
        high: its upper end.
    """

    attack: Attack
    control: Annotated[str, Field(column="baseline")]
    n_members: Members
    n_nonmembers: Nonmembers
    # Of the AUCs, in [-1, 1].
    difference: Annotated[float | None, Field("auc_difference", log="added/{attack}/{baseline}")]
    low: Least
    high: Most
    ci: Annotated[Interval | None, Field(part="difference")]
    auc: NotRequired[float]
    auc_control: NotRequired[float]
    auc_control_ci: NotRequired[Interval]
    auc_control_low: NotRequired[float]
    auc_control_high: NotRequired[float]
    statement: Annotated[str, Field(column="note")]  # what `low` and `high` say, in words


class SetControl(TypedDict):
    """A control on the same sets, and what the attack has over it.

    Attributes:
        auc: AUC of the control, in [0, 1].
        auc_ci: 95 % confidence interval [low, high] of `auc`.
        difference_ci: 95 % confidence interval [low, high] of `difference`.
    """

    name: Annotated[str, Field(column="baseline")]
    auc: float
    auc_ci: Interval
    difference: Annotated[float, Field("auc_difference")]  # of the AUCs, in [-1, 1]
    difference_ci: Interval


class SetRow(TypedDict):
    """Sets of `size` images, each of members alone or of non-members alone, told apart.

    Attributes:
        attack: name of the attack.
        n_member_sets: number of sets of members.
        n_nonmember_sets: number of sets of non-members.
        auc: area under the ROC curve, in [0, 1]; 0.5: no better than guessing.
        auc_ci: 95 % confidence interval [low, high] of `auc`.
        low: lower end of its interval over all rows of `sets`.
        high: upper end.
        controls: on the same sets, the paired ones of the attack, else a placebo or the untrained
            model.
    """

    attack: Attack
    # `mean`: by the mean score of its images; `alone`: acted on by itself, as a whole.
    judged: Annotated[str, Field(column="subject")]
    size: Annotated[int, Field(column="set_size")]
    n_member_sets: int
    n_nonmember_sets: int
    auc: float
    low: Low
    high: High
    auc_ci: Interval
    controls: list[SetControl]
