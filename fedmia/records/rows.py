"""The format of `report.json`: what each row holds, with its unit and range.

`X_ci` is the two-sided 95 % interval of X by itself. `low` and `high` hold for all of their kind
together: of attacks each limit at 95 %, of all else both. A number is null where it could not be
known or does not apply; so is its interval.

Each field is declared once (`fedmia.records.fields`): the file, its check, the table of all numbers
(`fedmia.table`), columns and their heads, and the reference are made of the declarations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmia.records.attack_rows import (
    AttackRow,
    AucRow,
    Interval,
    Json,
    PairedRow,
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
from fedmia.records.defence_rows import AggregationRow, AttackBoundRow
from fedmia.records.exposed_rows import ExposedRow, OverlapRow, PartRow
from fedmia.records.fields import (
    AUC,
    COUNT,
    NATS,
    SHARE,
    SIGNED,
    fact,
    interval,
    nested,
    number,
)
from fedmia.records.group_rows import GroupRow

FORMAT = 2  # of report.json
PIXELS = "pixels"  # the control that sees no model


@dataclass(frozen=True, kw_only=True)
class UtilityRow:
    """Accuracies of probes on `n` test images; null where a probe did not run."""

    round: int | None = fact(
        "of the model, as of an attack; null of the untrained one", column="round"
    )
    knn: float | None = number(
        "accuracy of a nearest-neighbour classifier on the encoder's outputs, near images counted "
        "more",
        SHARE,
        "probes.utility.knn_accuracy",
        log="{of}/knn",
    )
    knn_ci: Interval | None = interval("knn")
    linear: float | None = number(
        "accuracy of a linear classifier on the encoder's outputs",
        SHARE,
        "probes.utility.linear_accuracy",
        log="{of}/linear",
    )
    linear_ci: Interval | None = interval("linear")
    n: int = number("test images", COUNT)


@dataclass(frozen=True, kw_only=True)
class HealthRow:
    """Whether the encoder still tells images apart."""

    cosine: float | None = number(
        "mean between its outputs for different test images; null: not finite",
        SIGNED,
        "probes.utility.mean_cosine",
        log="{of}/cosine",
    )
    loss: float | None = number("mean training loss of the last round", NATS)
    chance: float | None = number("the loss where every image has one output", NATS)
    collapsed: bool = fact("whether it does not; see `fedmia.report.health`")


@dataclass(frozen=True, kw_only=True)
class RegimeRow:
    """Which of two regimes the scored encoder is of; see `fedmia.report.regime`."""

    name: str = fact("`overfit` or `weak`")
    auc: float = number("of the attack `similarity`", AUC, "statistics.auc.auc_estimate")
    bound: float = number("overfit is over it", AUC)


@dataclass(frozen=True, kw_only=True)
class RoundRow:
    """One round; `leakage` and `layers` are empty where its model was not scored."""

    round: int = fact("counted from 1", column="round")
    under_attack: bool = fact("whether the model had received a crafted update")
    loss: float | None = number(
        "mean training loss of the honest clients", NATS, head="loss", place=1, digits=3
    )
    knn: float | None = number(
        "accuracy of a nearest-neighbour classifier on the outputs of the global encoder",
        SHARE,
        "probes.utility.knn_accuracy",
        head="kNN",
        place=2,
        digits=3,
        default=None,
    )
    leakage: Mapping[str, float | None] = number(
        "AUC of each attack on the model of this round",
        AUC,
        "statistics.auc.auc_estimate",
        metric="auc",
        keyed="attack",
        default_factory=dict,
        log="leakage/{attack}",
    )
    leakage_ci: Mapping[str, Interval | None] = interval(
        "leakage", help="95 % interval of each AUC", default_factory=dict
    )
    layers: Mapping[str, float | None] = number(
        "AUC of the attack on each layer of the encoder alone",
        AUC,
        "statistics.auc.auc_estimate",
        metric="auc",
        keyed="layer",
        default_factory=dict,
        log="layers/{layer}",
    )
    layers_ci: Mapping[str, Interval | None] = interval(
        "layers", help="95 % interval of each AUC", default_factory=dict
    )
    cohort: Sequence[int] | None = number(
        "clients whose updates arrived; null where no recording tells", COUNT, default=None
    )


@dataclass(frozen=True, kw_only=True)
class Family:
    """The limits that hold together at `level`: of attacks each, of all else both."""

    level: float = number("joint confidence level", SHARE)
    intervals: int = number("tests for a leak: attacks, and attacks on whole data sets", COUNT)
    intervals_controls: int = number(
        "two-sided intervals of controls and paired differences beside those of the attacks: "
        "another family",
        COUNT,
    )
    intervals_clients: int = number("intervals of clients, a family of their own", COUNT)
    intervals_sets: int = number("intervals of sets, a family of their own", COUNT)
    method: str = fact("how they are corrected")


BROKEN = "failed: "  # begins the reason of an attack that broke; others could not run


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """An attack at one value of a sweep. Simultaneous intervals are of the sweep's own family."""

    attack: str = fact("name of the attack", column="attack")
    sweep: str = fact("what is varied: `known` or `query_budget`", column="subject")
    value: int = fact("of it", column="subject")
    known: int | None = number(
        "images a side that the attacker knows; null: it could not run", COUNT
    )
    not_run: str | None = fact("why it could not run; null: it ran")
    scored: AttackRow | None = nested("what it finds there; null: it could not run")


@dataclass(frozen=True, kw_only=True)
class FaultRow:
    """A client that failed in a round."""

    branch: str = fact("of the run: `main`, or a control", column="branch")
    round: int = fact("counted from 1", column="round")
    client: int = fact("partition id", column="client")
    reason: str = fact("why, in one line")
    action: str = fact("`stopped`, `retried` or `dropped`; of an audit, its update is `left out`")


@dataclass(frozen=True, kw_only=True)
class OutputRow:
    """One output of an encoder that attacks can read, from the pixels on."""

    name: str = fact("of the layer")
    kind: str = fact("`map`, `pooled` or `projection`")
    shape: list[int] = fact("of one image")


@dataclass(frozen=True, kw_only=True)
class EncoderRow:
    """How an audit read the encoder."""

    form: str = fact("of the file or folder, in a few words")
    loaded: int = number("tensors that were loaded from it", COUNT)
    dropped: list[str] = fact("names of its tensors that were not")
    missing: list[str] = fact(
        "names of tensors that the encoder has and the file lacks, which are random"
    )
    size: int = number("pixels a side of the audited images", COUNT)
    mean: list[float] = fact("subtracted from each channel of pixels in [0, 1]")
    std: list[float] = fact("by which each channel is divided then")
    outputs: list[OutputRow] = nested("that attacks can read")
    crops: str = fact("sizes of an image's parts that it takes")
    round: int | None = fact("of the run whose model it is; null: of no run", column="round")


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole of `report.json`, in this order."""

    format: int = fact("version of this format; no other is read")
    verdict: str = fact("what was found, and what controls say of it, in numbers")
    verdict_code: str = fact("one of those of `fedmia.report.codes`")
    means: str = fact("what the verdict means, in plain words")
    sure: str = fact("how sure that is")
    todo: str = fact("what to do now")
    attacks: list[AttackRow] = nested("a row an attack", subject="attack", family="attacks")
    sets: list[SetRow] = nested("no verdict rests on them", subject="set", family="sets")
    dataset_inference: list[InferenceRow] = nested("a row an attack on whole data sets")
    paired: list[PairedRow] = nested(
        "what attacks add to their paired controls", subject="pair", family="controls"
    )
    controls: dict[str, list[AttackRow]] = nested(
        "the attacks where nothing can leak: on the `untrained` encoder, and on a federation that "
        "never saw the images, the `placebo`, where there is one; of a federation without "
        "non-members on the `earlier-model`, of which neither side is a member, or on the "
        "`last-model`, of which both are",
        subject="attack",
        family="controls",
        keyed="control",
    )
    pixels: AucRow | None = nested(
        "a classifier that sees no model; null: it was not tried",
        subject="attack",
        family="controls",
        control=PIXELS,
    )
    utility: UtilityRow = nested("of the model that the passive attacks were scored on")
    utility_untrained: UtilityRow = nested(
        "of the untrained encoder", subject="utility", control="untrained"
    )
    utility_after_attack: UtilityRow | None = nested(
        "of the last model; null where no update was crafted", subject="utility/after_attack"
    )
    health: HealthRow | None = nested("of the same model as `utility`; null: not measured")
    regime: RegimeRow | None = nested("null without the attack `similarity`")
    clients: list[ClientRow] = nested(
        "a row a client, or a subject where images belong to subjects",
        subject="client",
        family="clients",
    )
    aggregation: AggregationRow | None = nested("what the server does with updates; null: none")
    client_ranking: str | None = fact(
        "which clients leak most, in a sentence; null where no two separate"
    )
    lower_bound: AttackBoundRow | None = nested(
        "of the claimed epsilons, by the run's attacks; null without a claim"
    )
    client_distribution: ClientDistribution | None = nested("null where each client is shown")
    client_counts: ClientCounts | None = nested("null where `clients` lists every client")
    client_cohorts: list[CohortRow] = nested(
        "by their last round; empty where all train in each, or each is shown",
        subject="cohort",
        family="cohorts",
    )
    defended: list[GroupRow] = nested(
        "defended and undefended clients; empty where none defends itself",
        subject="group",
        family="groups",
    )
    named_clients: list[NamingRow] = nested("a row an attack that names the client of an image")
    suspects: list[SuspectRow] = nested(
        "clients by how far their updates stand out, the most suspicious first; empty where none "
        "were kept",
        subject="suspect",
        title="Who attacks?",
        about="In each round a client's update is compared with those of the others: its norm, its "
        "cosine with their mean direction, and what it alone does to the loss of images that no "
        "client trained on, where that loss is known. The suspicion sums how far the three stand "
        "out, over the upper half of the client's rounds. It is compared with what honest clients "
        "have in as many rounds, and counts as a standard normal value. Norm, cosine and loss in "
        "the table are of the one round in which the client stands out most. A client with few or "
        "unusual images stands out, too: an alarm is a reason to look, no proof. The verdict does "
        "not use this table.",
    )
    exposed: list[ExposedRow] = nested(
        "scored members, or subjects, by falling score of one attack: the first ones, and the one "
        "that ends the list, which `exposed.csv` has whole; empty with few non-members",
        subject="exposed",
        title="Who is exposed?",
        about="The list has the scored members by falling score of one attack, fixed before any "
        "score was seen. The p-value says how rarely a scored non-member scores as high; it is no "
        "probability that the image is a member. A false discovery is a listed member whose score "
        "is exchangeable with those of the non-members: nothing tells it apart. The bound on their "
        "number holds for every list that begins at the top, for all at once, so you may stop "
        "reading where you like. It assumes that members whom nothing tells apart and non-members "
        "come from the same source, which the controls of the attacks test. Of subjects, such as "
        "patients, a row is one subject, by the mean score of its images; it takes subjects for "
        "exchangeable, each with the number of its images. A member that stands low in the list "
        "may be exposed to another attack.",
    )
    overlaps: list[OverlapRow] = nested(
        "other attacks beside that of `exposed`: whether they find the same members",
        subject="overlap",
        title="Do attacks find the same members?",
        about="Each attack has its own threshold, which one in twenty non-members reaches. If "
        "two attacks found members independently of each other, both would find the product of "
        "their shares. Where both find many more, they read the same trace of the image.",
    )
    parts: list[PartRow] = nested(
        "share of members that the attack of `exposed` finds, by class and client",
        subject="part",
        family="parts",
        title="Who is found, by class, client and group",
        about="One threshold holds for all rows: one in twenty of all scored non-members reaches "
        "it. The intervals hold the error of this threshold, and cover the rows of this table at "
        "once, as a family of their own; the verdict does not use them. A row has at least as many "
        "members as the table may have rows, and the parts with the most members have one. A class "
        "of whose non-members many more reach the threshold scores high by itself: compare the two "
        "columns. Clients differ in their classes, too.",
    )
    rounds: list[RoundRow] = nested("a row a round", subject="round")
    smallest_leak: float | None = number(
        "the smallest AUC that so many images would have shown; null: not even 1",
        AUC,
        "report.reach.smallest_leak",
    )
    family: Family = nested("the intervals that hold together")
    subject: str = fact("what was attacked")
    not_run: dict[str, str] = fact("attack that could not run -> why, in one line")
    interrupted: int | None = fact(
        "the last finished round, where the run ended before its time; else null"
    )
    failure: str | None = fact("why the run ended early; null: it did not, or the user ended it")
    faults: list[FaultRow] = nested("clients that failed")
    notes: list[str] = fact("for the reader, a sentence or more each")
    encoder: EncoderRow | None = nested("the audited encoder; null of a run")
    split: Json = number("number of images of each kind", COUNT, keyed="metric")
    config: Json = fact("the settings")
    versions: Json = fact("of Python and the packages")
    hardware: Json = fact("of the machine")
    sweep: list[SweepRow] = nested(
        "attacks at each value of a sweep; empty without one", subject="sweep", family="sweep"
    )
    timing: Json = fact("seconds of wall-clock time, by part")
