"""The format of `report.json`: what each row holds, with its unit and range.

AUCs, rates, accuracies and shares lie in [0, 1]. `X_ci` is the two-sided 95 % interval of X by
itself. `low` and `high` hold for all of their kind together: of attacks each limit at 95 %, of all
else both. A number is null where it could not be known; so is its interval.

What a field is to the table of all numbers (`fedmia.table`), its annotation declares: a number
needs no mark; `column` identifies the numbers beside it. See `fedmia.records.fields`.

A row names all its bases, `TypedDict` included, or tools could not find where a field comes from.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from fedmia.records.attack_rows import (
    Attack,
    AttackRow,
    AucRow,
    Client,
    Interval,
    Json,
    PairedRow,
    Round,
    SetRow,
)
from fedmia.records.client_rows import (
    ClientCounts,
    ClientDistribution,
    ClientRow,
    CohortRow,
    InferenceRow,
    NamingRow,
    SuspectRow,
)
from fedmia.records.defence_rows import AggregationRow, AttackBoundRow, DefenceGroupsRow
from fedmia.records.fields import Field


class Controls(TypedDict):
    """The attacks where nothing can leak. Absent: the run has no such control.

    Attributes:
        placebo: on a federation that never saw the images; absent: the run has none.
    """

    untrained: Annotated[list[AttackRow], Field(control="untrained")]  # on the untrained encoder
    placebo: NotRequired[Annotated[list[AttackRow], Field(control="placebo")]]
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

    # Mean between its outputs for different test images, in [-1, 1]; null: not finite.
    cosine: Annotated[float | None, Field(log="{of}/cosine")]
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


class RoundRow(TypedDict):
    """One round; `leakage`, its intervals and `layers` (AUC by attack, by layer) empty where not
    scored.

    Attributes:
        round: 1, 2, ...
        under_attack: whether the model had received a crafted update.
        loss: mean training loss of the honest clients.
        knn: kNN accuracy of the global encoder, in [0, 1].
        leakage_ci: 95 % confidence interval of each AUC in `leakage`.
        layers_ci: 95 % confidence interval of each AUC in `layers`.
        cohort: clients whose updates arrived, where a recording tells.
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
    cohort: NotRequired[list[int]]


class Family(TypedDict):
    """The limits that hold together at `level`: of attacks each, of all else both.

    Attributes:
        level: joint confidence level, such as 0.95.
        intervals: number of tests for a leak: attacks, and attacks on whole data sets.
        intervals_controls: number of two-sided intervals, of controls and paired differences
            beside those of the attacks: another family.
        intervals_clients: number of intervals of clients, a family of their own.
        intervals_sets: number of intervals of sets, a family of their own.
        method: how they are corrected.
    """

    level: float
    intervals: int
    intervals_controls: int
    intervals_clients: int
    intervals_sets: int
    method: str


BROKEN = "failed: "  # begins the reason of an attack that broke; others could not run


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
        action: `stopped`, `retried` or `dropped`; of an audit, its update is `left out`.
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
        verdict: what was found, and what controls say of it, in numbers.
        verdict_code: one of those of `fedmia.report.codes`.
        means: what the verdict means, in plain words.
        sure: how sure it is.
        todo: what to do now.
        dataset_inference: results by attack.
        utility: accuracies of the probes.
        health: whether the encoder still tells images apart; null: not measured.
        regime: of the scored encoder; null without the attack `similarity`.
        aggregation: what the server does with updates; absent from an audit.
        client_ranking: which clients leak most, one sentence; null where no two separate.
        lower_bound: of the claimed epsilons, by the run's attacks; absent without a claim.
        client_distribution: absent where the page shows every client.
        client_counts: absent where `clients` lists every client.
        client_cohorts: by their last round; absent where all train in each, or each is shown.
        named_clients: attacks that name the client of an image.
        suspects: clients by how far their updates stand out; absent where none were kept.
        smallest_leak: the smallest AUC that so many images would have shown; null: not even 1.
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
    means: str
    sure: str
    todo: str
    attacks: Annotated[list[AttackRow], Field(subject="attack", family="attacks")]
    sets: Annotated[list[SetRow], Field(subject="set", family="sets")]  # no verdict rests on them
    dataset_inference: list[InferenceRow]
    paired: Annotated[list[PairedRow], Field(subject="pair", family="controls")]
    controls: Annotated[Controls, Field(subject="attack", family="controls")]
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
    suspects: NotRequired[Annotated[list[SuspectRow], Field(subject="suspect")]]
    rounds: Annotated[list[RoundRow], Field(subject="round")]
    smallest_leak: float | None
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
