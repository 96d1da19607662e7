"""The format of `report.json`: what each row holds, with its unit and range.

AUCs, rates, accuracies and shares lie in [0, 1]. An interval is its [low, high] of 95 % by itself,
or of all intervals of its kind together where its name says `simultaneous`. A number is null where
it could not be known; so is its interval.

What a field is to the table of all numbers (`fedmia.table`), its annotation declares: a number
needs no mark; `column` identifies the numbers beside it. See `fedmia.records.fields`.

A row names all its bases, `TypedDict` included, or tools could not find where a field comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict, TypeVar

from fedmia.records.fields import Field

Interval = Sequence[float]
Json = Mapping[str, Any]  # passed through as it came
Attack = Annotated[str, Field(column="attack")]
Client = Annotated[int, Field(column="client")]
Round = Annotated[int, Field(column="round")]
Members = Annotated[int, Field(column="n_members")]
Nonmembers = Annotated[int, Field(column="n_nonmembers")]
ByFpr = Annotated[dict[str, float | None], Field(keyed="target_fpr")]


class AucRow(TypedDict):
    """How well scores tell members; the numbers are null where a side is empty.

    Attributes:
        auc_ci: 95 % confidence interval [low, high] of `auc`; null where there is none.
        auc_ci_simultaneous: simultaneous interval [low, high] of `auc`.
        n_members: scored.
        n_nonmembers: number of scored non-members.
    """

    auc: Annotated[float | None, Field(log="auc{_control}/{attack}", log_ends="auc_{end}/{attack}")]
    auc_ci: Interval | None
    auc_ci_simultaneous: Interval | None
    n_members: Members
    n_nonmembers: Nonmembers


class ThresholdRow(TypedDict):
    """Decisions at one threshold, as if members and non-members were equally many; null without a
    threshold, precision also where no image was called a member.

    Attributes:
        accuracy_ci: 95 % confidence interval [low, high] of `accuracy`; null where there is none.
        precision_ci: 95 % confidence interval [low, high] of `precision`; null where there is
            none.
        recall_ci: 95 % confidence interval [low, high] of `recall`; null where there is none.
    """

    accuracy: Annotated[float | None, Field(label="accuracy", head="accu-\nracy", place=2)]
    accuracy_ci: Interval | None
    precision: Annotated[float | None, Field(label="precision")]
    precision_ci: Interval | None
    recall: Annotated[float | None, Field(label="recall")]
    recall_ci: Interval | None


class RefittedThresholdRow(TypedDict):
    """The same decisions at a threshold refitted on the attacker's known images of the target; null
    without known images.

    Attributes:
        threshold_refitted: the threshold, of the score.
        accuracy_refitted_ci: 95 % confidence interval [low, high] of `accuracy_refitted`; null
            where there is none.
        precision_refitted: share of members among the images that are called members.
        precision_refitted_ci: 95 % confidence interval [low, high] of `precision_refitted`; null
            where there is none.
        recall_refitted: share of the members that are called members.
        recall_refitted_ci: 95 % confidence interval [low, high] of `recall_refitted`; null where
            there is none.
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


class AttackFacts(TypedDict):
    """What an attack tells at low false-positive rates, and how it came to it.

    Attributes:
        tpr_at_fpr_ci: 95 % confidence interval by target; it counts the threshold's error.
        fpr_achieved: false-positive rate on the scored images, by target.
        queries: images that the attacker had embedded.
        reading: of an ascent: rise or level of the loss, or line23; null of all others.
        choices: option -> value that the attack chose for it on known images.
        threshold: the attack's own, of its score; null where it has none.
        threshold_source: what chose it: shadow or known images; null without a threshold.
    """

    # By target FPR, "0.001", "0.01", "0.1"; null where too few non-members resolve it.
    tpr_at_fpr: Annotated[
        dict[str, float | None],
        Field(keyed="target_fpr", head="TPR at\n1 % FPR", place=1, key="0.01",
              log="tpr_at_1_percent_fpr/{attack}"),
    ]  # fmt: skip
    tpr_at_fpr_ci: dict[str, Interval | None]
    fpr_achieved: ByFpr
    queries: int
    reading: str | None
    choices: Json
    threshold: float | None
    threshold_source: str | None
    # At the threshold that is best on the scored images themselves.
    oracle_accuracy: Annotated[float | None, Field(label="best (oracle)")]


class AttackRow(AttackHead, AucRow, ThresholdRow, RefittedThresholdRow, AttackFacts, TypedDict):
    """One attack on the images under test, or one control of it."""


class PairedRow(TypedDict):
    """An attack and its control on the same images, and what it adds. Without images to compare,
    numbers are null and AUCs absent.

    Attributes:
        attack: name of the attack.
        n_members: number of scored members.
        n_nonmembers: number of scored non-members.
        auc: AUC of the attack, in [0, 1].
        auc_control: AUC of the control.
        auc_control_ci: 95 % confidence interval [low, high] of `auc_control`; null where there is
            none.
        auc_control_ci_simultaneous: simultaneous interval [low, high] of `auc_control`.
    """

    attack: Attack
    control: Annotated[str, Field(column="baseline")]
    n_members: Members
    n_nonmembers: Nonmembers
    # Of the AUCs, in [-1, 1].
    difference: Annotated[float | None, Field("auc_difference", log="added/{attack}/{baseline}")]
    ci: Annotated[Interval | None, Field(part="difference")]
    ci_simultaneous: Annotated[Interval | None, Field(part="difference")]
    auc: NotRequired[float]
    auc_control: NotRequired[float]
    auc_control_ci: NotRequired[Interval]
    auc_control_ci_simultaneous: NotRequired[Interval]
    statement: Annotated[str, Field(column="note")]  # what `ci_simultaneous` says, in words


class SetControl(TypedDict):
    """A control on the same sets, and what the attack has over it.

    Attributes:
        auc: AUC of the control, in [0, 1].
        auc_ci: 95 % confidence interval [low, high] of `auc`; null where there is none.
        difference_ci: 95 % confidence interval [low, high] of `difference`; null where there is
            none.
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
        auc_ci: 95 % confidence interval [low, high] of `auc`; null where there is none.
        auc_ci_simultaneous: over the rows of `sets`.
        control: a control on the same sets; null: there is none.
    """

    attack: Attack
    # `mean`: by the mean score of its images; `alone`: acted on by itself, as a whole.
    judged: Annotated[str, Field(column="subject")]
    size: Annotated[int, Field(column="set_size")]
    n_member_sets: int
    n_nonmember_sets: int
    auc: float
    auc_ci: Interval
    auc_ci_simultaneous: Interval
    control: SetControl | None


class Controls(TypedDict):
    """The attacks where nothing can leak. Absent: the run has no such control.

    Attributes:
        placebo: on a federation that never saw the images; absent: the run has none.
        posers: non-members posing as members; absent: the run has none.
    """

    untrained: Annotated[list[AttackRow], Field(control="untrained")]  # on the untrained encoder
    placebo: NotRequired[Annotated[list[AttackRow], Field(control="placebo")]]
    posers: NotRequired[Annotated[list[AttackRow], Field(control="posers")]]
    pixels: Annotated[AucRow | None, Field(control="pixels")]  # a classifier that sees no model


def control_sets(controls: Controls) -> dict[str, list[AttackRow]]:
    """The controls that repeat the attacks, by name; `pixels` is none of them."""
    return {name: rows for name, rows in controls.items() if isinstance(rows, list)}


class UtilityRow(TypedDict):
    """Accuracies of probes on `n` test images; null where a probe did not run.

    Attributes:
        round: of the model, as of an attack; null of the untrained one.
        knn_ci: 95 % confidence interval [low, high] of `knn`; null where there is none.
        linear_ci: 95 % confidence interval [low, high] of `linear`; null where there is none.
        n: number of test images.
    """

    round: Round | None
    knn: Annotated[float | None, Field(log="{of}/knn")]
    knn_ci: Interval | None
    linear: Annotated[float | None, Field(log="{of}/linear")]
    linear_ci: Interval | None
    n: int


class Utility(UtilityRow, TypedDict):
    """Of the model that the passive attacks were scored on, and of others beside it."""

    untrained: Annotated[UtilityRow, Field(control="untrained")]
    # Of the last model; null where no update was crafted.
    after_attack: Annotated[UtilityRow | None, Field(subject="after_attack")]


class HealthRow(TypedDict):
    """Whether the encoder still tells images apart.

    Attributes:
        loss: mean training loss of the last round.
        chance: the same where every image has one output.
        collapsed: see `fedmia.report.health`.
    """

    # Mean between its outputs for different test images, in [-1, 1].
    cosine: Annotated[float, Field(log="{of}/cosine")]
    loss: float | None
    chance: float | None
    collapsed: bool


class RegimeRow(TypedDict):
    """Which of two regimes the scored encoder is of; see `fedmia.report.regime`.

    Attributes:
        name: overfit, weak.
        auc: of `similarity`.
        bound: overfit is over it.
    """

    name: str
    auc: float
    bound: float


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
        standing: `guaranteed`, `heuristic` or `empirical`.
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
        auc_ci: 95 % confidence interval [low, high] of `auc`; null where there is none.
        auc_ci_simultaneous: over the attacks of all groups.
        n_nonmembers_effective: Kish's number of the weighted non-members.
        null_auc: of non-members who pose as these members: mean and 95 % band.
    """

    attack: Attack
    under_attack: bool
    auc: float
    auc_ci: Interval
    auc_ci_simultaneous: Interval
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
        statement: whether the defended leak all the same; null where it is not known.
    """

    groups: list[GroupRow]
    statement: str | None


class AggregationRow(DefencePart, TypedDict):
    """What the server does with updates: a strategy's name, what it promises a client, what it
    tells of its last round or of all.

    Attributes:
        view: updates: it sees each by itself; sums: their sum alone.
    """

    view: str


class ClientRow(TypedDict):
    """One client; leakage of its scored members against non-members of the same class mix, or of
    its own where images belong to clients; null where it has none.

    Attributes:
        id: partition id.
        size: images.
        role: `honest`, or the role of the attacker.
        classes: images by class, null where not known.
        n_members: scored, of classes that a scored non-member has.
        n_nonmembers_effective: Kish's number of the weighted non-members.
        auc: AUC of its scored members, in [0, 1].
        auc_ci: 95 % confidence interval [low, high] of `auc`; null where there is none.
        auc_ci_simultaneous: over all clients.
        null_auc: of non-members who pose as its members: mean, 95 % band, posers.
        null_n: number of posers drawn for its null distribution.
        why: reasons to list it, where the report lists only some clients.
    """

    id: Client
    size: int
    role: str
    defence: Annotated[DefenceRow | None, Field(subject="defence")]
    classes: list[int] | None
    n_members: Members
    n_nonmembers_effective: float | None
    auc: float | None
    auc_ci: Interval | None
    auc_ci_simultaneous: Interval | None
    null_auc: float | None
    null_ci: Annotated[Interval | None, Field(part="null_auc")]
    null_n: int | None
    attack: Annotated[str | None, Field(column="attack")]  # that clients are compared by
    why: NotRequired[list[str]]


class ClientCounts(TypedDict):
    """What a report keeps of clients that it does not list; `clients.csv` holds all.

    Attributes:
        clients: number of clients.
        median_size: of the images that a client holds.
        defended: sentences on what defended clients do and promise.
    """

    clients: int
    median_size: float
    defended: list[str]


class CohortRow(TypedDict):
    """Clients whose last round lies in one stretch of rounds, or that no round drew; leakage of
    their scored members against non-members of the same class mix, null where they have none.

    Attributes:
        cohort: `never`, or the rounds `first-last`.
        clients: number of clients.
        images: that they hold.
        n_members: scored, of classes that a scored non-member has.
        n_nonmembers_effective: Kish's number of the weighted non-members.
        auc: area under the ROC curve, in [0, 1].
        auc_ci: 95 % confidence interval [low, high] of `auc`.
        auc_ci_simultaneous: over all cohorts.
        null_auc: of non-members who pose as these members: mean and 95 % band.
        attack: that cohorts are compared by.
    """

    cohort: Annotated[str, Field(column="subject")]
    clients: int
    images: int
    n_members: Members
    n_nonmembers_effective: float | None
    auc: float | None
    auc_ci: Interval | None
    auc_ci_simultaneous: Interval | None
    null_auc: float | None
    null_ci: Annotated[Interval | None, Field(part="null_auc")]
    attack: Annotated[str | None, Field(column="attack")]


class ClientDistribution(TypedDict):
    """AUCs of all clients, beside those of non-members who pose as their members.

    Attributes:
        clients: number of clients that have an AUC.
        over_half: of them, with a simultaneous interval over 0.5.
        under_half: of them, with a simultaneous interval under 0.5.
        with_null: clients with a null distribution of their own.
        over_null: of these, over the band of their own null.
        over_null_expected: if nothing leaked; clients share non-members, so it varies much.
        percentiles: of the clients' AUCs: 0th, 1st, .., 100th.
        null_percentiles: of the draws of all their nulls together.
    """

    clients: int
    over_half: int
    under_half: int
    with_null: int
    over_null: int
    over_null_expected: float
    percentiles: list[float]
    null_percentiles: list[float] | None


@dataclass(frozen=True)
class KnownAuc:
    """An AUC that is known, with its 95 % and its simultaneous interval.

    Attributes:
        value: the AUC, in [0, 1].
        ci: its 95 % confidence interval.
        together: its simultaneous interval.
    """

    value: float
    ci: Interval
    together: Interval


def known_auc(row: AucRow | ClientRow | CohortRow) -> KnownAuc | None:
    """The AUC of a row, None where it is null."""
    value, ci, together = row["auc"], row["auc_ci"], row["auc_ci_simultaneous"]
    if value is None or ci is None or together is None:
        return None
    return KnownAuc(value, ci, together)


AnyRow = TypeVar("AnyRow", bound=AucRow | ClientRow)


def rows_with_auc(rows: Iterable[AnyRow]) -> list[tuple[AnyRow, KnownAuc]]:
    """Each row that has an AUC, with it."""
    return [(row, auc) for row in rows if (auc := known_auc(row)) is not None]


class PerClientRow(TypedDict):
    """Whether one given client trained on an image; see `fedmia.statistics.by_client.client_auc`.

    Attributes:
        auc: area under the ROC curve, in [0, 1]; 0.5: no better than guessing.
        auc_ci: 95 % confidence interval [low, high] of `auc`; null where there is none.
        tpr_at_fpr: by target FPR.
        tpr_at_fpr_ci: at the thresholds drawn, their error not in it.
        n_members: number of scored members.
        n_nonmembers: number of scored non-members.
        clients: number of clients.
        positive_pairs: (image, client) pairs in which the client trained on the image.
        negative_pairs: pairs in which it did not.
    """

    auc: float
    auc_ci: Interval | None
    tpr_at_fpr: ByFpr
    tpr_at_fpr_ci: dict[str, Interval | None]
    n_members: Members
    n_nonmembers: Nonmembers
    clients: int
    positive_pairs: int
    negative_pairs: int


class NamingCounts(TypedDict):
    """Scored members whose client was named: `correct` of `n`.

    Attributes:
        correct: members whose client was named.
        n: scored members.
        accuracy: share of `n`, in [0, 1].
    """

    correct: int
    n: int
    accuracy: float
    ci: Annotated[Interval, Field(part="accuracy")]


class NamingNull(TypedDict):
    """How often non-members like a member are named its client; see
    `fedmia.statistics.by_client.matched_naming_rate`.

    Attributes:
        accuracy: share of such non-members that are named its client.
        difference: share of members named right, less `accuracy`; in [-1, 1].
        difference_ci: 95 % confidence interval [low, high] of `difference`; null where there is
            none.
        n_members: number of members that some non-member is like.
        alike: what the two share: `class` or `client`.
    """

    accuracy: float
    ci: Annotated[Interval, Field(part="accuracy")]
    difference: float
    difference_ci: Interval
    n_members: Members
    alike: str


class PlaceboNaming(NamingCounts, TypedDict):
    """The same of clients that never saw the images."""

    null: Annotated[NamingNull | None, Field(control="posers")]
    per_client: Annotated[PerClientRow | None, Field(subject="per_client")]


class NamingRow(NamingCounts, TypedDict):
    """An attack that names the client of an image.

    Attributes:
        attack: name of the attack.
        chance: accuracy of always naming the client with most scored members.
    """

    attack: Attack
    null: Annotated[NamingNull | None, Field(control="posers")]  # null without scores by client
    # Null without scores by client.
    per_client: Annotated[PerClientRow | None, Field(subject="per_client")]
    chance: float
    placebo: Annotated[PlaceboNaming | None, Field(control="placebo")]


class ClientInferenceRow(TypedDict):
    """Was this client's data set trained on? Null where no non-member has a class of its images.

    Attributes:
        client: partition id.
        difference: mean of its images less that of non-members of the same classes.
        n: number of images tested.
        n_nonmembers: number of non-members of their classes.
        p_value_untrained: p-value on the untrained encoder, in (0, 1].
    """

    client: Client
    p_value: Annotated[float | None, Field(part="difference", fills=("p",))]  # one-sided, in (0, 1]
    # Corrected for all clients (Holm).
    p_value_holm: Annotated[float | None, Field(part="difference", fills=("p_adjusted",))]
    difference: float | None
    n: int
    n_nonmembers: Nonmembers
    p_value_untrained: float | None


class PosersRow(TypedDict):
    """Sets of non-members, dealt like the clients' images, that pose as clients'.

    Attributes:
        n: number of sets.
        p_values: one for each set, in (0, 1].
    """

    n: int
    # By level, "0.01", "0.05": p-values as small.
    alarms: Annotated[dict[str, int], Field(keyed="target_fpr")]
    p_values: list[float]


class InferenceRow(TypedDict):
    """Dataset inference by one attack.

    Attributes:
        attack: name of the attack.
        paper: where it was published; may be empty.
        clients: one row a client.
        n_clients: number of clients, where `clients` lists only those of the smallest p-values.
        void: whether posers, or clients of the untrained encoder, are found more often than by
            chance.
        statement: what was found, one sentence.
    """

    attack: Attack
    paper: str
    clients: list[ClientInferenceRow]
    n_clients: NotRequired[int]
    posers: Annotated[PosersRow, Field(control="posers")]
    void: bool
    statement: str


class RoundRow(TypedDict):
    """One round; `leakage`, its intervals and `layers` (AUC by attack, by layer) empty where not
    scored.

    Attributes:
        round: 1, 2, ...
        under_attack: whether the model had received a crafted update.
        loss: mean training loss of the honest clients.
        knn: kNN accuracy of the global encoder, in [0, 1].
        leakage_ci: 95 % confidence interval of each AUC in `leakage`.
        layers_ci: 95 % confidence interval of each AUC in `layers`; absent from older reports.
    """

    round: Round
    under_attack: bool
    loss: float | None
    knn: float | None
    leakage: Annotated[
        dict[str, float | None], Field("auc", keyed="attack", log="leakage/{attack}")
    ]
    leakage_ci: dict[str, Interval | None]
    layers: Annotated[dict[str, float | None], Field("auc", keyed="layer", log="layers/{layer}")]
    layers_ci: NotRequired[dict[str, Interval | None]]


class Family(TypedDict):
    """The intervals that hold together at `level`.

    Attributes:
        level: joint confidence level, such as 0.95.
        intervals: number of intervals of attacks.
        intervals_clients: number of intervals of clients, a family of their own.
        intervals_sets: number of intervals of sets, a family of their own.
        method: how they are corrected.
        widest: width of the widest interval.
    """

    level: float
    intervals: int
    intervals_clients: int
    intervals_sets: int
    method: str
    widest: float | None


class NotRun(TypedDict):
    """An attack that could not run, and why.

    Attributes:
        attack: name of the attack.
        reason: why, in one line.
    """

    attack: Attack
    reason: str


class SweepPlace(TypedDict):
    """Where in a sweep: attack, kind (`known`, `query_budget`), value, known images a side.

    Attributes:
        attack: name of the attack.
        known: images a side that the attacker knows; null: it could not run.
    """

    attack: Attack
    sweep: Annotated[str, Field(column="subject")]
    value: Annotated[int, Field(column="subject")]
    known: int | None


class SweepPointRow(SweepPlace, AttackRow, TypedDict):
    """An attack at one value. Its simultaneous interval is of the sweep's own family.

    Attributes:
        not_run: null: it ran.
    """

    not_run: None


class SweepGapRow(SweepPlace, TypedDict):
    """A value at which an attack could not run, and why.

    Attributes:
        not_run: why it could not run.
    """

    not_run: str


SweepRow = SweepPointRow | SweepGapRow


class FaultRow(TypedDict):
    """A client that failed in a round.

    Attributes:
        round: 1, 2, ...
        client: partition id.
        reason: why, in one line.
        action: `stopped`, `retried` or `dropped`.
    """

    branch: Annotated[str, Field(column="branch")]
    round: Round
    client: Client
    reason: str
    action: str


class OutputRow(TypedDict):
    """One output of an encoder that attacks can read.

    Attributes:
        name: name of the layer.
        kind: `map`, `pooled` or `projection`.
    """

    name: str
    kind: str
    shape: Annotated[list[int], Field(aside=True)]  # of one image


class EncoderRow(TypedDict):
    """What an audit understood of the encoder that it was given.

    Attributes:
        form: of the file or folder, in a few words.
        loaded: number of tensors that were loaded from its file.
        dropped: names of its tensors that were left out.
        missing: names of tensors that the encoder has and its file lacks; they are random.
        size: pixels a side of the audited images.
        outputs: the outputs that attacks can read.
        crops: sizes of an image's parts that it takes.
        round: of the run whose model it is; null: of no run.
    """

    form: str
    loaded: int
    dropped: list[str]
    missing: list[str]
    size: int
    mean: Annotated[list[float], Field(aside=True)]
    std: Annotated[list[float], Field(aside=True)]
    outputs: list[OutputRow]
    crops: str
    round: Round | None


class Report(TypedDict):
    """The whole of `report.json`, in this order.

    Attributes:
        verdict: what the report says first, one sentence.
        verdict_code: `leaks`, `not-established`, `collapsed`, `shift`, `control-failed`, or
            `no-verdict` of a run that ended before its first round.
        means: what the verdict means, in plain words; absent from reports of older versions.
        sure: how sure it is; absent likewise.
        todo: what to do now; absent likewise.
        dataset_inference: results by attack; no verdict rests on them.
        utility: accuracies of the probes.
        health: whether the encoder still tells images apart; null: not measured.
        regime: of the scored encoder; null without the attack `similarity`.
        aggregation: what the server does with updates; absent from an audit.
        client_ranking: which clients leak most, one sentence; null where no two separate.
        lower_bound: of the claimed epsilons, by the run's attacks; absent without a claim.
        client_distribution: absent where the page shows every client.
        client_counts: absent where `clients` lists every client.
        client_cohorts: clients by their last round; absent where all train in every round, and
            where the page shows every client.
        named_clients: attacks that name the client of an image.
        family: the intervals that hold together.
        subject: what was attacked.
        not_run: attacks that could not run.
        failure: why the run ended early; null: it did not, or the user ended it.
        faults: clients that failed.
        notes: sentences for the reader.
        encoder: the audited encoder; absent from a run.
        config: the settings.
        versions: of Python and the packages.
        hardware: of the machine.
        sweep: attacks at each value of a sweep; absent without one.
        timing: seconds of wall-clock time, by part.
    """

    verdict: str
    verdict_code: str
    means: NotRequired[str]
    sure: NotRequired[str]
    todo: NotRequired[str]
    attacks: Annotated[list[AttackRow], Field(subject="attack", family="attacks")]
    sets: Annotated[list[SetRow], Field(subject="set", family="sets")]  # no verdict rests on them
    dataset_inference: list[InferenceRow]
    paired: Annotated[list[PairedRow], Field(subject="pair", family="attacks")]
    controls: Annotated[Controls, Field(subject="attack", family="attacks")]
    utility: Utility
    health: HealthRow | None
    regime: RegimeRow | None
    clients: Annotated[list[ClientRow], Field(subject="client", family="clients")]
    aggregation: NotRequired[AggregationRow]
    client_ranking: str | None
    lower_bound: NotRequired[AttackBoundRow]
    client_distribution: NotRequired[ClientDistribution]
    client_counts: NotRequired[ClientCounts]
    client_cohorts: NotRequired[
        Annotated[list[CohortRow], Field(subject="cohort", family="cohorts")]
    ]
    # Null where no client defends itself.
    defended: Annotated[DefenceGroupsRow | None, Field(subject="group", family="groups")]
    named_clients: list[NamingRow]
    rounds: Annotated[list[RoundRow], Field(subject="round")]
    family: Family
    subject: str
    not_run: list[NotRun]
    # The last finished round, where the run ended before its time.
    interrupted: Annotated[int | None, Field(aside=True)]
    failure: str | None
    faults: list[FaultRow]
    notes: list[str]
    encoder: NotRequired[EncoderRow]
    split: Annotated[Json, Field(keyed="metric")]
    config: Json
    versions: Json
    hardware: Json
    sweep: NotRequired[Annotated[list[SweepRow], Field(subject="sweep", family="sweep")]]
    timing: Json
