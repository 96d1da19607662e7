"""The format of `report.json`: what each row holds, with its unit and range.

AUCs, rates, accuracies and shares lie in [0, 1]. An interval is its [low, high] of 95 % by itself,
or of all intervals of its kind together where its name says `simultaneous`. A number is null where
it could not be known; so is its interval.

What a field is to the table of all numbers (`fedmia.table`), its annotation declares: a number
needs no mark; `column` identifies the numbers beside it. See `fedmia.records.fields`.

A row names all its bases, `TypedDict` included, or pdoc would not find where a field comes from.
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
    """How well scores tell members; the numbers are null where a side is empty."""

    auc: Annotated[float | None, Field(log="auc{_control}/{attack}", log_ends="auc_{end}/{attack}")]
    auc_ci: Interval | None
    auc_ci_simultaneous: Interval | None
    n_members: Members  # scored
    n_nonmembers: Nonmembers


class ThresholdRow(TypedDict):
    """Decisions at one threshold, as if members and non-members were equally many; null without a
    threshold, precision also where no image was called a member."""

    accuracy: Annotated[float | None, Field(label="accuracy", head="accu-\nracy", place=2)]
    accuracy_ci: Interval | None
    precision: Annotated[float | None, Field(label="precision")]
    precision_ci: Interval | None
    recall: Annotated[float | None, Field(label="recall")]
    recall_ci: Interval | None


class RefittedThresholdRow(TypedDict):
    """The same at a threshold refitted on the attacker's known images of the target, whatever the
    attack's own; null without them."""

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
    """What the attacker needs: `black_box`, `white_box`; `outsider`, `client`, `server`."""

    access: str
    vantage: str


class AttackHead(TypedDict):
    """An attack, and the model that it was scored on."""

    name: Attack
    paper: str  # where it was published, or empty
    threat: ThreatRow
    under_attack: bool  # the model had received a crafted update
    round: Round | None  # of the model that was scored, or the last of `rounds`; null: of no run
    # Of an active attack all in which it acted; else `round` alone.
    rounds: Annotated[Sequence[int], Field(aside=True)]


class AttackFacts(TypedDict):
    """What an attack tells at low false-positive rates, and how it came to it."""

    # By target FPR, "0.001", "0.01", "0.1"; null where too few non-members resolve it.
    tpr_at_fpr: Annotated[
        dict[str, float | None],
        Field(keyed="target_fpr", head="TPR at\n1 % FPR", place=1, key="0.01",
              log="tpr_at_1_percent_fpr/{attack}"),
    ]  # fmt: skip
    tpr_at_fpr_ci: dict[str, Interval | None]  # 95 %, the threshold's error in it
    fpr_achieved: ByFpr
    queries: int  # images that the attacker had embedded
    reading: str | None  # of an ascent: rise or level of the loss, or line23; null of all others
    choices: Json  # option -> value that the attack chose for it on known images
    threshold: float | None  # the attack's own, of its score; null where it has none
    threshold_source: str | None  # what chose it: shadow or known images; null without a threshold
    # At the threshold that is best on the scored images themselves.
    oracle_accuracy: Annotated[float | None, Field(label="best (oracle)")]


class AttackRow(AttackHead, AucRow, ThresholdRow, RefittedThresholdRow, AttackFacts, TypedDict):
    """One attack on the images under test, or one control of it."""


class PairedRow(TypedDict):
    """An attack and its control on the same images, and what it adds. Without images to compare,
    numbers are null and AUCs absent."""

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
    """A control on the same sets, and what the attack has over it."""

    name: Annotated[str, Field(column="baseline")]
    auc: float
    auc_ci: Interval
    difference: Annotated[float, Field("auc_difference")]  # of the AUCs, in [-1, 1]
    difference_ci: Interval


class SetRow(TypedDict):
    """Sets of `size` images, each of members alone or of non-members alone, told apart."""

    attack: Attack
    # `mean`: by the mean score of its images; `alone`: acted on by itself, as a whole.
    judged: Annotated[str, Field(column="subject")]
    size: Annotated[int, Field(column="set_size")]
    n_member_sets: int
    n_nonmember_sets: int
    auc: float
    auc_ci: Interval
    auc_ci_simultaneous: Interval  # over the rows of `sets`
    control: SetControl | None


class Controls(TypedDict):
    """The attacks where nothing can leak. Absent: the run has no such control."""

    untrained: Annotated[list[AttackRow], Field(control="untrained")]  # on the untrained encoder
    # On a federation that never saw the images.
    placebo: NotRequired[Annotated[list[AttackRow], Field(control="placebo")]]
    # Non-members posing as members.
    posers: NotRequired[Annotated[list[AttackRow], Field(control="posers")]]
    pixels: Annotated[AucRow | None, Field(control="pixels")]  # a classifier that sees no model


def control_sets(controls: Controls) -> dict[str, list[AttackRow]]:
    """The controls that repeat the attacks, by name; `pixels` is none of them."""
    return {name: rows for name, rows in controls.items() if isinstance(rows, list)}


class UtilityRow(TypedDict):
    """Accuracies of probes on `n` test images; null where a probe did not run."""

    round: Round | None  # of the model, as of an attack; null of the untrained one
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
    """Whether the encoder still tells images apart."""

    # Mean between its outputs for different test images, in [-1, 1].
    cosine: Annotated[float, Field(log="{of}/cosine")]
    loss: float | None  # mean training loss of the last round
    chance: float | None  # the same where every image has one output
    collapsed: bool  # see `fedmia.report.health`


class RegimeRow(TypedDict):
    """Which of two regimes the scored encoder is of; see `fedmia.report.regime`."""

    name: str  # overfit, weak
    auc: float  # of `similarity`
    bound: float  # overfit is over it


class BoundRow(TypedDict):
    """A lower bound of epsilon; 0 where nothing is refuted."""

    value: Annotated[float, Field("lower_bound")]  # at 95 % by itself
    # Together with all lower bounds of the report.
    value_simultaneous: Annotated[float, Field("lower_bound_simultaneous")]
    refuted: bool  # the claim lies under `value_simultaneous`


class CanaryBoundRow(BoundRow, TypedDict):
    """By canaries in a run of the mechanism of their own; see `fedmia.lowerbounds`."""

    audit: str  # one-run (onerun.py), one-run-gdp or own-runs-gdp (fdp.py)
    canaries: int  # each in with probability 1/2
    guesses: list[int]  # numbers of them guessed, fixed in advance
    correct: list[int]
    most: float  # what `value_simultaneous` would be if every guess were right


class AttackBoundRow(BoundRow, TypedDict):
    """The largest by the run's attacks; see `fedmia.lowerbounds.rates`."""

    attack: Attack
    delta: float  # the largest claimed
    rate: float  # of false alarms that it was found at
    says: str  # what the attack calls an image there: member, non-member
    tried: int  # bounds that it is corrected for
    n_members: Members  # of clients that claim an epsilon
    n_nonmembers: Nonmembers
    clients: int
    claim: float  # the largest epsilon among them
    standing: str


class EpsilonRow(TypedDict):
    """A privacy statement; see `fedmia.records.Epsilon`."""

    value: Annotated[float | None, Field("epsilon")]
    unit: Annotated[str, Field(column="unit")]  # image or client; empty where a plugin does not say
    delta: float
    rounds: int
    standing: Annotated[str, Field(column="note")]
    noise_source: str  # seeded or entropy; `assumptions` says what that means
    assumptions: str
    # Where canaries audited the mechanism.
    lower_bound: NotRequired[Annotated[CanaryBoundRow, Field(subject="lower_bound")]]


class DefencePart(TypedDict):
    """One defence of a client; `epsilon` is null where none can be stated."""

    name: str
    epsilon: EpsilonRow | None
    # Of its last round, as the simulator sees them.
    metrics: Annotated[dict[str, float], Field(keyed="metric")]


class DefenceRow(DefencePart, TypedDict):
    """All defences of a client together: their names, what they promise, and each by itself."""

    # In the order in which they act.
    parts: Annotated[list[DefencePart], Field(subject="part", indexed=True)]
    # More statements, of another unit or delta.
    beside: NotRequired[Annotated[list[EpsilonRow], Field(subject="beside", indexed=True)]]


class GroupLeak(TypedDict):
    """Leakage of a group's scored members against non-members like them."""

    attack: Attack
    under_attack: bool
    auc: float
    auc_ci: Interval
    auc_ci_simultaneous: Interval  # over the attacks of all groups
    n_nonmembers_effective: float  # Kish's number of the weighted non-members
    null_auc: float | None  # of non-members who pose as these members: mean and 95 % band
    null_ci: Annotated[Interval | None, Field(part="null_auc")]


class GroupRow(TypedDict):
    """Clients that defend themselves, or those that do not."""

    group: Annotated[str, Field(column="subject")]  # defended or undefended
    clients: Annotated[list[int], Field(aside=True)]
    images: int
    n_members: Members  # scored, of classes that a scored non-member has
    leakage: list[GroupLeak]
    knn: float | None  # of the global encoder, test images weighted to the group's class mix
    knn_ci: Interval | None


class DefenceGroupsRow(TypedDict):
    """Leakage and utility by defended and undefended clients."""

    groups: list[GroupRow]
    statement: str | None  # whether the defended leak all the same; null where it is not known


class AggregationRow(DefencePart, TypedDict):
    """What the server does with updates: a strategy's name, what it promises a client, what it
    tells of its last round or of all."""

    view: str  # updates: it sees each by itself; sums: their sum alone


class ClientRow(TypedDict):
    """One client; leakage of its scored members against non-members of the same class mix, or of
    its own where images belong to clients; null where it has none."""

    id: Client
    size: int  # images
    role: str
    defence: Annotated[DefenceRow | None, Field(subject="defence")]
    classes: list[int] | None  # images by class, null where not known
    n_members: Members  # scored, of classes that a scored non-member has
    n_nonmembers_effective: float | None  # Kish's number of the weighted non-members
    auc: float | None
    auc_ci: Interval | None
    auc_ci_simultaneous: Interval | None  # over all clients
    null_auc: float | None  # of non-members who pose as its members: mean, 95 % band, posers
    null_ci: Annotated[Interval | None, Field(part="null_auc")]
    null_n: int | None
    attack: Annotated[str | None, Field(column="attack")]  # that clients are compared by


class ClientDistribution(TypedDict):
    """AUCs of all clients, beside those of non-members who pose as their members."""

    clients: int  # that have an AUC
    over_half: int  # of them, with a simultaneous interval over 0.5
    under_half: int
    with_null: int
    over_null: int  # of these, over the band of their own null
    over_null_expected: float  # if nothing leaked; clients share non-members, so it varies much
    percentiles: list[float]  # of the clients' AUCs: 0th, 1st, .., 100th
    null_percentiles: list[float] | None  # of the draws of all their nulls together


@dataclass(frozen=True)
class KnownAuc:
    """An AUC that is known, with its 95 % and its simultaneous interval."""

    value: float
    ci: Interval
    together: Interval


def known_auc(row: AucRow | ClientRow) -> KnownAuc | None:
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
    """Whether one given client trained on an image; see `fedmia.statistics.by_client.asked`."""

    auc: float
    auc_ci: Interval | None
    tpr_at_fpr: ByFpr  # by target FPR
    tpr_at_fpr_ci: dict[str, Interval | None]  # at the thresholds drawn, their error not in it
    n_members: Members
    n_nonmembers: Nonmembers
    clients: int
    positive_pairs: int
    negative_pairs: int


class NamingCounts(TypedDict):
    """Scored members whose client was named: `correct` of `n`."""

    correct: int
    n: int
    accuracy: float
    ci: Annotated[Interval, Field(part="accuracy")]


class NamingNull(TypedDict):
    """How often non-members like a member are named its client; see
    `fedmia.statistics.by_client.named_alike`."""

    accuracy: float
    ci: Annotated[Interval, Field(part="accuracy")]
    difference: float  # of the members named right over it, in [-1, 1]
    difference_ci: Interval
    n_members: Members  # that a non-member is like
    alike: str  # class or client: what the two share


class PlaceboNaming(NamingCounts, TypedDict):
    """The same of clients that never saw the images."""

    null: Annotated[NamingNull | None, Field(control="posers")]
    per_client: Annotated[PerClientRow | None, Field(subject="per_client")]


class NamingRow(NamingCounts, TypedDict):
    """An attack that names the client of an image."""

    attack: Attack
    null: Annotated[NamingNull | None, Field(control="posers")]  # null without scores by client
    # Null without scores by client.
    per_client: Annotated[PerClientRow | None, Field(subject="per_client")]
    chance: float  # right by always naming the client with most scored members
    placebo: Annotated[PlaceboNaming | None, Field(control="placebo")]


class ClientInferenceRow(TypedDict):
    """Was this client's data set trained on? Null where no non-member has a class of its images."""

    client: Client
    p_value: Annotated[float | None, Field(part="difference", fills=("p",))]  # one-sided, in (0, 1]
    # Corrected for all clients (Holm).
    p_value_holm: Annotated[float | None, Field(part="difference", fills=("p_adjusted",))]
    difference: float | None  # of what is compared, over non-members of the same class
    n: int  # images tested
    n_nonmembers: Nonmembers  # of their classes
    p_value_untrained: float | None  # on the untrained encoder


class PosersRow(TypedDict):
    """Sets of non-members, dealt like the clients' images, that pose as clients'."""

    n: int
    # By level, "0.01", "0.05": p-values as small.
    alarms: Annotated[dict[str, int], Field(keyed="target_fpr")]
    p_values: list[float]


class InferenceRow(TypedDict):
    """Dataset inference by one attack."""

    attack: Attack
    paper: str
    clients: list[ClientInferenceRow]
    posers: Annotated[PosersRow, Field(control="posers")]
    void: bool  # posers, or clients of the untrained encoder, are found too often for chance
    statement: str


class RoundRow(TypedDict):
    """One round; `leakage`, its intervals and `layers` (AUC by attack, by layer) empty where not
    scored."""

    round: Round
    under_attack: bool
    loss: float | None  # mean of the honest clients
    knn: float | None  # accuracy of the global encoder
    leakage: Annotated[
        dict[str, float | None], Field("auc", keyed="attack", log="leakage/{attack}")
    ]
    leakage_ci: dict[str, Interval | None]  # 95 %
    layers: Annotated[dict[str, float | None], Field("auc", keyed="layer", log="layers/{layer}")]


class Family(TypedDict):
    """The intervals that hold together at `level`."""

    level: float
    intervals: int
    intervals_clients: int  # a family of their own
    intervals_sets: int  # another
    method: str
    widest: float | None  # width


class NotRun(TypedDict):
    """An attack that could not run, and why."""

    attack: Attack
    reason: str


class SweepPlace(TypedDict):
    """Where in a sweep: attack, kind (`known`, `query_budget`), value, known images a side."""

    attack: Attack
    sweep: Annotated[str, Field(column="subject")]
    value: Annotated[int, Field(column="subject")]
    known: int | None


class SweepPointRow(SweepPlace, AttackRow, TypedDict):
    """An attack at one value. Its simultaneous interval is of the sweep's own family."""

    not_run: None


class SweepGapRow(SweepPlace, TypedDict):
    """A value at which an attack could not run, and why."""

    not_run: str


SweepRow = SweepPointRow | SweepGapRow


class FaultRow(TypedDict):
    """A client that failed in a round."""

    branch: Annotated[str, Field(column="branch")]
    round: Round
    client: Client
    reason: str
    action: str  # stopped, retried, dropped


class OutputRow(TypedDict):
    """One output of an encoder that attacks can read."""

    name: str
    kind: str  # map, pooled, projection
    shape: Annotated[list[int], Field(aside=True)]  # of one image


class EncoderRow(TypedDict):
    """What an audit understood of the encoder that it was given."""

    form: str
    loaded: int  # tensors of its file
    dropped: list[str]  # names of its tensors that were left out
    missing: list[str]  # names of the encoder's own that it lacks: random
    size: int  # pixels a side
    mean: Annotated[list[float], Field(aside=True)]
    std: Annotated[list[float], Field(aside=True)]
    outputs: list[OutputRow]
    crops: str  # sizes of an image's parts that it takes
    round: Round | None  # of the run whose model it is; null: of no run


class Report(TypedDict):
    """The whole of `report.json`, in this order."""

    verdict: str
    verdict_code: str  # leaks, not-established, collapsed, shift, control-failed
    attacks: Annotated[list[AttackRow], Field(subject="attack", family="attacks")]
    sets: Annotated[list[SetRow], Field(subject="set", family="sets")]  # no verdict rests on them
    dataset_inference: list[InferenceRow]  # nor on these
    paired: Annotated[list[PairedRow], Field(subject="pair", family="attacks")]
    controls: Annotated[Controls, Field(subject="attack", family="attacks")]
    utility: Utility
    health: HealthRow | None
    regime: RegimeRow | None  # null without `similarity`
    clients: Annotated[list[ClientRow], Field(subject="client", family="clients")]
    aggregation: NotRequired[AggregationRow]  # of a federation
    client_ranking: str | None  # null where no two clients separate
    lower_bound: NotRequired[AttackBoundRow]  # of claimed epsilons, by the run's attacks
    client_distribution: NotRequired[ClientDistribution]  # of more clients than a page shows
    # Null where no client defends itself.
    defended: Annotated[DefenceGroupsRow | None, Field(subject="group", family="groups")]
    named_clients: list[NamingRow]
    rounds: Annotated[list[RoundRow], Field(subject="round")]
    family: Family
    subject: str
    not_run: list[NotRun]
    # The last finished round, where the run ended before its time.
    interrupted: Annotated[int | None, Field(aside=True)]
    failure: str | None  # why it did; null where the user ended it
    faults: list[FaultRow]
    notes: list[str]
    encoder: NotRequired[EncoderRow]  # of an audit
    split: Annotated[Json, Field(keyed="metric")]
    config: Json
    versions: Json
    hardware: Json
    sweep: NotRequired[Annotated[list[SweepRow], Field(subject="sweep", family="sweep")]]
    timing: Json  # seconds, the only wall clocks
