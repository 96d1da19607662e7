"""The format of `report.json`: what each row holds, with its unit and range.

AUCs, rates, accuracies and shares lie in [0, 1]. An interval is its [low, high] of 95 % by itself,
or of all intervals of its kind together where its name says `simultaneous`. A number is null where
it could not be known; so is its interval.

A row names all its bases, `TypedDict` included, or pdoc would not find where a field comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict, TypeVar

Interval = Sequence[float]
Json = Mapping[str, Any]  # passed through as it came


class AucRow(TypedDict):
    """How well scores tell members; the numbers are null where a side is empty."""

    auc: float | None
    auc_ci: Interval | None
    auc_ci_simultaneous: Interval | None
    n_members: int  # scored
    n_nonmembers: int


class ThresholdRow(TypedDict):
    """Decisions at one threshold, as if members and non-members were equally many; null without a
    threshold, precision also where no image was called a member."""

    accuracy: float | None
    accuracy_ci: Interval | None
    precision: float | None
    precision_ci: Interval | None
    recall: float | None
    recall_ci: Interval | None


class RefittedRow(TypedDict):
    """The same at a threshold refitted on the attacker's known images of the target, whatever the
    attack's own; null without them."""

    threshold_refitted: float | None
    accuracy_refitted: float | None
    accuracy_refitted_ci: Interval | None
    precision_refitted: float | None
    precision_refitted_ci: Interval | None
    recall_refitted: float | None
    recall_refitted_ci: Interval | None


class Threat(TypedDict):
    """What the attacker needs: `black_box`, `white_box`; `outsider`, `client`, `server`."""

    access: str
    vantage: str


class AttackFacts(TypedDict):
    """An attack, and what it tells at low false-positive rates."""

    name: str
    paper: str  # where it was published, or empty
    threat: Threat
    under_attack: bool  # the model had received a crafted update
    round: int | None  # of the model that was scored, or the last of `rounds`; null: of no run
    rounds: Sequence[int]  # of an active attack all in which it acted; else `round` alone
    # By target FPR, "0.001", "0.01", "0.1"; null where too few non-members resolve it.
    tpr_at_fpr: dict[str, float | None]
    tpr_at_fpr_ci: dict[str, Interval | None]  # 95 %, the threshold's error in it
    fpr_achieved: dict[str, float | None]
    queries: int  # images that the attacker had embedded
    reading: str | None  # of an ascent: rise or level of the loss, or line23; null of all others
    choices: Json  # option -> value that the attack chose for it on known images
    threshold: float | None  # the attack's own, of its score; null where it has none
    threshold_source: str | None  # what chose it: shadow or known images; null without a threshold
    oracle_accuracy: float | None  # at the threshold that is best on the scored images themselves


class AttackRow(AucRow, ThresholdRow, RefittedRow, AttackFacts, TypedDict):
    """One attack on the images under test, or one control of it."""


class Compared(TypedDict):
    """An attack and its control on the same images."""

    attack: str
    control: str
    n_members: int
    n_nonmembers: int


class PairedRow(Compared, TypedDict):
    """What the attack adds. Without images to compare, numbers are null and AUCs absent."""

    difference: float | None  # of the AUCs, in [-1, 1]
    ci: Interval | None
    ci_simultaneous: Interval | None
    auc: NotRequired[float]
    auc_control: NotRequired[float]
    auc_control_ci: NotRequired[Interval]
    auc_control_ci_simultaneous: NotRequired[Interval]
    statement: str  # what `ci_simultaneous` says, in words


class SetControl(TypedDict):
    """A control on the same sets, and what the attack has over it."""

    name: str
    auc: float
    auc_ci: Interval
    difference: float  # of the AUCs, in [-1, 1]
    difference_ci: Interval


class SetRow(TypedDict):
    """Sets of `size` images, each of members alone or of non-members alone, told apart."""

    attack: str
    judged: str  # mean: by the mean score of its images; alone: acted on by itself, as a whole
    size: int
    n_member_sets: int
    n_nonmember_sets: int
    auc: float
    auc_ci: Interval
    auc_ci_simultaneous: Interval  # over the rows of `sets`
    control: SetControl | None


class Controls(TypedDict):
    """The attacks where nothing can leak. Absent: the run has no such control."""

    untrained: list[AttackRow]  # on the untrained encoder
    placebo: NotRequired[list[AttackRow]]  # on a federation that never saw the images
    posers: NotRequired[list[AttackRow]]  # non-members posing as members
    pixels: AucRow | None  # a classifier that sees no model


def control_sets(controls: Controls) -> dict[str, list[AttackRow]]:
    """The controls that repeat the attacks, by name; `pixels` is none of them."""
    return {name: rows for name, rows in controls.items() if isinstance(rows, list)}


class UtilityRow(TypedDict):
    """Accuracies of probes on `n` test images; null where a probe did not run."""

    round: int | None  # of the model, as of an attack; null of the untrained one
    knn: float | None
    knn_ci: Interval | None
    linear: float | None
    linear_ci: Interval | None
    n: int


class Utility(UtilityRow, TypedDict):
    """Of the model that the passive attacks were scored on, and of others beside it."""

    untrained: UtilityRow
    after_attack: UtilityRow | None  # of the last model; null where no update was crafted


class HealthRow(TypedDict):
    """Whether the encoder still tells images apart."""

    cosine: float  # mean between its outputs for different test images, in [-1, 1]
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

    value: float  # at 95 % by itself
    value_simultaneous: float  # together with all lower bounds of the report
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

    attack: str
    delta: float  # the largest claimed
    rate: float  # of false alarms that it was found at
    says: str  # what the attack calls an image there: member, non-member
    tried: int  # bounds that it is corrected for
    n_members: int  # of clients that claim an epsilon
    n_nonmembers: int
    clients: int
    claim: float  # the largest epsilon among them
    standing: str


class EpsilonRow(TypedDict):
    """A privacy statement; see `fedmia.records.Epsilon`."""

    value: float | None
    unit: str  # image or client; empty where a plugin does not say
    delta: float
    rounds: int
    standing: str
    noise_source: str  # seeded or entropy; `assumptions` says what that means
    assumptions: str
    lower_bound: NotRequired[CanaryBoundRow]  # where canaries audited the mechanism


class DefencePart(TypedDict):
    """One defence of a client; `epsilon` is null where none can be stated."""

    name: str
    epsilon: EpsilonRow | None
    metrics: dict[str, float]  # of its last round, as the simulator sees them


class DefenceRow(DefencePart, TypedDict):
    """All defences of a client together: their names, what they promise, and each by itself."""

    parts: list[DefencePart]  # in the order in which they act
    beside: NotRequired[list[EpsilonRow]]  # more statements, of another unit or delta


class GroupLeak(TypedDict):
    """Leakage of a group's scored members against non-members like them."""

    attack: str
    under_attack: bool
    auc: float
    auc_ci: Interval
    auc_ci_simultaneous: Interval  # over the attacks of all groups
    n_nonmembers_effective: float  # Kish's number of the weighted non-members
    null_auc: float | None  # of non-members who pose as these members: mean and 95 % band
    null_ci: Interval | None


class GroupRow(TypedDict):
    """Clients that defend themselves, or those that do not."""

    group: str  # defended or undefended
    clients: list[int]
    images: int
    n_members: int  # scored, of classes that a scored non-member has
    leakage: list[GroupLeak]
    knn: float | None  # of the global encoder, test images weighted to the group's class mix
    knn_ci: Interval | None


class DefendedRow(TypedDict):
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

    id: int
    size: int  # images
    role: str
    defence: DefenceRow | None
    classes: list[int] | None  # images by class, null where not known
    n_members: int  # scored, of classes that a scored non-member has
    n_nonmembers_effective: float | None  # Kish's number of the weighted non-members
    auc: float | None
    auc_ci: Interval | None
    auc_ci_simultaneous: Interval | None  # over all clients
    null_auc: float | None  # of non-members who pose as its members: mean, 95 % band, posers
    null_ci: Interval | None
    null_n: int | None
    attack: str | None  # that clients are compared by


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
class Auc:
    """An AUC that is known, with its 95 % and its simultaneous interval."""

    value: float
    ci: Interval
    together: Interval


def known_auc(row: AucRow | ClientRow) -> Auc | None:
    """The AUC of a row, None where it is null."""
    value, ci, together = row["auc"], row["auc_ci"], row["auc_ci_simultaneous"]
    if value is None or ci is None or together is None:
        return None
    return Auc(value, ci, together)


AnyRow = TypeVar("AnyRow", bound=AucRow | ClientRow)


def with_auc(rows: Iterable[AnyRow]) -> list[tuple[AnyRow, Auc]]:
    """Each row that has an AUC, with it."""
    return [(row, auc) for row in rows if (auc := known_auc(row)) is not None]


class PerClientRow(TypedDict):
    """Whether one given client trained on an image; see `fedmia.report.per_client`."""

    auc: float
    auc_ci: Interval | None
    tpr_at_fpr: dict[str, float | None]  # by target FPR
    tpr_at_fpr_ci: dict[str, Interval | None]  # at the thresholds drawn, their error not in it
    n_members: int
    n_nonmembers: int
    clients: int
    positive_pairs: int
    negative_pairs: int


class NamedCounts(TypedDict):
    """Scored members whose client was named: `correct` of `n`."""

    correct: int
    n: int
    accuracy: float
    ci: Interval


class NamedNull(TypedDict):
    """How often non-members like a member are named its client; see `fedmia.report.naming`."""

    accuracy: float
    ci: Interval
    difference: float  # of the members named right over it, in [-1, 1]
    difference_ci: Interval
    n_members: int  # that a non-member is like
    alike: str  # class or client: what the two share


class PlaceboNamed(NamedCounts, TypedDict):
    """The same of clients that never saw the images."""

    null: NamedNull | None
    per_client: PerClientRow | None


class NamedRow(NamedCounts, TypedDict):
    """An attack that names the client of an image."""

    attack: str
    null: NamedNull | None  # null without scores by client
    per_client: PerClientRow | None  # null without scores by client
    chance: float  # right by always naming the client with most scored members
    placebo: PlaceboNamed | None


class InferredRow(TypedDict):
    """Was this client's data set trained on? Null where no non-member has a class of its images."""

    client: int
    p_value: float | None  # one-sided, in (0, 1]
    p_value_holm: float | None  # corrected for all clients (Holm)
    difference: float | None  # of what is compared, over non-members of the same class
    n: int  # images tested
    n_nonmembers: int  # of their classes
    p_value_untrained: float | None  # on the untrained encoder


class PosersRow(TypedDict):
    """Sets of non-members, dealt like the clients' images, that pose as clients'."""

    n: int
    alarms: dict[str, int]  # by level, "0.01", "0.05": p-values as small
    p_values: list[float]


class InferenceRow(TypedDict):
    """Dataset inference by one attack."""

    attack: str
    paper: str
    clients: list[InferredRow]
    posers: PosersRow
    void: bool  # posers, or clients of the untrained encoder, are found too often for chance
    statement: str


class RoundRow(TypedDict):
    """One round; `leakage`, its intervals and `layers` (AUC by attack, by layer) empty where not
    scored."""

    round: int
    under_attack: bool
    loss: float | None  # mean of the honest clients
    knn: float | None  # accuracy of the global encoder
    leakage: dict[str, float | None]
    leakage_ci: dict[str, Interval | None]  # 95 %
    layers: dict[str, float | None]


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

    attack: str
    reason: str


class SweepPlace(TypedDict):
    """Where in a sweep: attack, kind (`known`, `query_budget`), value, known images a side."""

    attack: str
    sweep: str
    value: int
    known: int | None


class SweptRow(SweepPlace, AucRow, ThresholdRow, RefittedRow, AttackFacts, TypedDict):
    """An attack at one value. Its simultaneous interval is of the sweep's own family."""

    not_run: None


class UnsweptRow(SweepPlace, TypedDict):
    """A value at which an attack could not run, and why."""

    not_run: str


SweepRow = SweptRow | UnsweptRow


class FaultRow(TypedDict):
    """A client that failed in a round."""

    branch: str
    round: int
    client: int
    reason: str
    action: str  # stopped, retried, dropped


class OutputRow(TypedDict):
    """One output of an encoder that attacks can read."""

    name: str
    kind: str  # map, pooled, projection
    shape: list[int]  # of one image


class EncoderRow(TypedDict):
    """What an audit understood of the encoder that it was given."""

    form: str
    loaded: int  # tensors of its file
    dropped: list[str]  # names of its tensors that were left out
    missing: list[str]  # names of the encoder's own that it lacks: random
    size: int  # pixels a side
    mean: list[float]
    std: list[float]
    outputs: list[OutputRow]
    crops: str  # sizes of an image's parts that it takes
    round: int | None  # of the run whose model it is; null: of no run


class Report(TypedDict):
    """The whole of `report.json`, in this order."""

    verdict: str
    verdict_code: str  # leaks, not-established, collapsed, shift, control-failed
    attacks: list[AttackRow]
    sets: list[SetRow]  # no verdict rests on them
    dataset_inference: list[InferenceRow]  # nor on these
    paired: list[PairedRow]
    controls: Controls
    utility: Utility
    health: HealthRow | None
    regime: RegimeRow | None  # null without `similarity`
    clients: list[ClientRow]
    aggregation: NotRequired[AggregationRow]  # of a federation
    client_ranking: str | None  # null where no two clients separate
    lower_bound: NotRequired[AttackBoundRow]  # of claimed epsilons, by the run's attacks
    client_distribution: NotRequired[ClientDistribution]  # of more clients than a page shows
    defended: DefendedRow | None  # null where no client defends itself
    named_clients: list[NamedRow]
    rounds: list[RoundRow]
    family: Family
    subject: str
    not_run: list[NotRun]
    interrupted: int | None  # the last finished round, where the run ended before its time
    failure: str | None  # why it did; null where the user ended it
    faults: list[FaultRow]
    notes: list[str]
    encoder: NotRequired[EncoderRow]  # of an audit
    split: Json
    config: Json
    versions: Json
    hardware: Json
    sweep: NotRequired[list[SweepRow]]
    timing: Json  # seconds, the only wall clocks
