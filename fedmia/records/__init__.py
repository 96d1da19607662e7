"""Typed records: what the evaluation hands to the report, plain arrays and types.

`rows` is what report.json holds of them; `fields`, what a row declares of its numbers. The report
is the only place that holds scores and truth together. Nothing here knows the federation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
MEAN, ALONE = "mean", "alone"  # how a set was judged
LOSS_BEFORE = "loss-before"  # a control: the loss that an ascent starts from


@dataclass(frozen=True)
class ScoredAttack:
    """Scores of one attack on the evaluated images. A higher score says member.

    Attributes:
        name: the plugin's name.
        paper: where it was published, or the empty string.
        access: `black_box` or `white_box`.
        vantage: `outsider`, `client` or `server`.
        scores_members: (n,) in the order of `RunScores.member_ids`.
        scores_nonmembers: (m,) in the order of `RunScores.nonmember_ids` likewise.
        known_members, known_nonmembers: (k,) scores of the attacker's known images under the
            fitted attack; they choose a threshold and nothing else. Empty: none is known.
        shadow_threshold: the score above which the attack itself says member, where it was fitted
            on shadows; None: known images choose its threshold.
        under_attack: the scored model had already received a crafted update.
        rounds: of the scored model, none of no run; of an active attack all in which it acted.
        queries: images that the attack had embedded.
        seconds: that its fit and its scores took, less where rows were shared; a wall clock.
        act: the step on the loss that the attack reads, as figures name it: `ascent`, or empty.
        reading: what the score is of what the act shows: `rise` or `level` of the loss; or empty.
        also: the same attack in its other readings.
        choices: option -> value that the attack chose for it on known images; plain types.
        features_members, features_nonmembers: (n, 3), (m, 3) for the scatter, or None.
        feature_names: names of the three features.
        named_members: (n,) id of the client that the attack says holds each member, or None.
        client_ids: (K,) ids of the clients that the attack scores apart, or None.
        by_client_members, by_client_nonmembers: (n, K), (m, K) score of each image for each of
            `client_ids`, whether that client trained on it; None without them.
        sets_members, sets_nonmembers: (S, 2), (T, 2) of the sets that the attack judged as wholes
            and alone: its score, and that of its twin without the act; None where it did not.
        twin: name of the attack without its act, where that was scored too; `over`: what it is.
        twin_members, twin_nonmembers: (n,), (m,) its scores, or None.
    """

    name: str
    paper: str
    access: str
    vantage: str
    scores_members: FloatArray
    scores_nonmembers: FloatArray
    known_members: FloatArray = field(default_factory=lambda: np.zeros(0))
    known_nonmembers: FloatArray = field(default_factory=lambda: np.zeros(0))
    shadow_threshold: float | None = None
    under_attack: bool = False
    rounds: tuple[int, ...] = ()
    queries: int = 0
    seconds: float = 0.0
    act: str = ""
    reading: str = ""
    also: Sequence[ScoredAttack] = ()
    choices: Mapping[str, Any] = field(default_factory=dict)
    features_members: FloatArray | None = None
    features_nonmembers: FloatArray | None = None
    feature_names: tuple[str, ...] = ()
    named_members: IntArray | None = None
    client_ids: IntArray | None = None
    by_client_members: FloatArray | None = None
    by_client_nonmembers: FloatArray | None = None
    sets_members: FloatArray | None = None
    sets_nonmembers: FloatArray | None = None
    twin: str = ""
    over: str = ""
    twin_members: FloatArray | None = None
    twin_nonmembers: FloatArray | None = None

    @property
    def sides(self) -> tuple[FloatArray, FloatArray]:
        """Scores of the members (n,) and of the non-members (m,)."""
        return self.scores_members, self.scores_nonmembers


@dataclass(frozen=True)
class Pair:
    """An attack and its control on the same images; `over`: what the control is, in words."""

    attack: ScoredAttack
    control: ScoredAttack
    over: str


def list_attacks(attacks: Iterable[ScoredAttack]) -> list[ScoredAttack]:
    """The attacks, each followed by its other readings as rows of their own."""
    return [row for a in attacks for row in (replace(a, also=()), *a.also)]


def twins(attacks: Sequence[ScoredAttack]) -> list[Pair]:
    """Attacks beside themselves without their act, where both were scored."""
    found = []
    for a in attacks:
        if a.twin_members is not None and a.twin_nonmembers is not None:
            alone = ScoredAttack(
                a.twin, a.paper, a.access, a.vantage, a.twin_members, a.twin_nonmembers
            )
            found.append(Pair(a, alone, a.over))
    return found


@dataclass(frozen=True)
class SetScores:
    """Scores of sets of `size` images, each of members alone or of non-members alone.

    Attributes:
        judged: MEAN of the scores of the set's images, or ALONE: the attack acted on each set by
            itself and read its answer to the set as a whole.
        members, nonmembers: (S,), (T,) scores of the sets; higher says member.
        control: what the scores are compared with, or None.
        control_members, control_nonmembers: (S,), (T,) its scores of the same sets.
    """

    attack: str
    judged: str
    size: int
    members: FloatArray
    nonmembers: FloatArray
    control: str | None = None
    control_members: FloatArray | None = None
    control_nonmembers: FloatArray | None = None


@dataclass(frozen=True)
class ClientInference:
    """What an attack on whole data sets says of one set, against others of the same classes.

    Attributes:
        client: that holds it; None where non-members pose as a client's set.
        p_value: one-sided, small where the encoder knows the set; None where no other image is of
            its classes.
        difference: of what the attack compares, over others of the same class; None likewise.
        n, others: images of the set that were tested, and of their classes beside them.
    """

    client: int | None
    p_value: float | None
    difference: float | None
    n: int
    others: int


@dataclass(frozen=True)
class DatasetInference:
    """Dataset inference of every client by one attack.

    Attributes:
        clients: one a client. untrained: the same of the untrained encoder, or empty.
        posers: non-members dealt like the clients' images.
    """

    attack: str
    paper: str
    clients: Sequence[ClientInference]
    posers: Sequence[ClientInference]
    untrained: Sequence[ClientInference] = ()


@dataclass(frozen=True)
class SweepPoint:
    """One attack at one value of a sweep, with `known` images a side; or why it could not run."""

    attack: str
    value: int
    known: int | None = None
    scored: ScoredAttack | None = None
    not_run: str | None = None


@dataclass(frozen=True)
class AttackSweep:
    """Attacks at each of `values` of what the attacker has: `known` images or `query_budget`."""

    kind: str
    values: tuple[int, ...]
    points: Sequence[SweepPoint]


@dataclass(frozen=True)
class Probe:
    """Accuracy in [0, 1] of a utility probe on `n` test images; None where it could not run.

    `by_class`: of each class how many test images are right, and how many there are; or empty.
    """

    value: float | None
    n: int
    by_class: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Health:
    """Whether an encoder still tells images apart.

    Attributes:
        cosine: mean in [-1, 1] between its outputs for different test images.
        loss: mean training loss of the last round, None where not known.
        chance: the loss where every image has the same output, None where not known.
    """

    cosine: float
    loss: float | None = None
    chance: float | None = None


MEANINGFUL = 20.0  # a larger epsilon is printed as no meaningful guarantee
NOISE = {
    "seeded": "Noise, coins and cohorts come from a seeded generator: a simulation, whose noise "
    "can be drawn again by whoever has the settings.",
    "entropy": "Noise, coins and cohorts come from the operating system's entropy. Not covered: "
    "the generators that it starts are not cryptographic, and floating point leaves gaps in their "
    "noise (Mironov, CCS 2012).",
}
UNITS = ("image", "client")


@dataclass(frozen=True)
class Epsilon:
    """A privacy statement, printed with what it rests on.

    Attributes:
        value: epsilon spent over all `rounds`, None where none can be stated.
        delta: of (epsilon, delta)-DP, 0 for pure DP.
        standing: `guaranteed`, `heuristic` or `empirical`.
        assumptions: one sentence: unit of privacy, what is assumed, why the standing.
        canaries: of an audit of the mechanism, each in with probability 1/2; 0: there was none.
        guesses, correct: numbers of canaries guessed, fixed in advance, and how many were right.
        unit: of privacy, one of UNITS; empty where a plugin does not say.
        audit: the bound from below: of canaries in one run of any mechanism, `one-run`; of one that
            is mu-GDP, `one-run-gdp`; of that with a run for each, `own-runs-gdp`.
        noise_source: a key of NOISE, which says what it means.
    """

    value: float | None
    delta: float
    rounds: int
    standing: str
    assumptions: str
    canaries: int = 0
    guesses: Sequence[int] = ()
    correct: Sequence[int] = ()
    unit: str = ""
    audit: str = "one-run"
    noise_source: str = "seeded"


@dataclass(frozen=True)
class ClientDefence:
    """The defence of one client: its name, its privacy statement and the metrics it returned.

    Of several, `name` lists them, `epsilon` is what they promise together, and `parts` are each of
    them, in order, without parts of their own. `beside` are more statements of theirs, of another
    unit or delta: two such epsilons are never compared.
    """

    name: str
    epsilon: Epsilon | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[ClientDefence, ...] = ()
    beside: tuple[Epsilon, ...] = ()


@dataclass(frozen=True)
class Aggregation:
    """What the server does with the updates.

    Attributes:
        name: of the strategy.
        view: what the server sees of a round: `updates`, each client's, or their `sums`.
        epsilon: the statement on a client's privacy, None where none is made.
        metrics: what the strategy tells of its last round, or of all of them.
    """

    name: str
    view: str = "updates"
    epsilon: Epsilon | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientInfo:
    """One client. `size` counts the images it holds, `classes` the same by class, if known."""

    id: int
    size: int
    role: str
    defence: ClientDefence | None = None
    classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class RoundInfo:
    """One round. `leakage` and `layers` are empty where its snapshot was not scored.

    Attributes:
        under_attack: a crafted update has been averaged in by the end of this round.
        loss: mean training loss of the honest clients, None where none trained.
        knn: kNN accuracy in [0, 1] of the global encoder, None where it was not probed.
        leakage: attack name -> its scores.
        layers: layer name -> scores of the internal attack on that layer alone.
    """

    round: int
    under_attack: bool
    loss: float | None
    knn: float | None = None
    leakage: Mapping[str, ScoredAttack] = field(default_factory=dict)
    layers: Mapping[str, ScoredAttack] = field(default_factory=dict)


@dataclass(frozen=True)
class Curves:
    """Losses of the evaluated images while the malicious client acts on them.

    Attributes:
        act: what it does to its update, in a word that also names the figures: `ascent`.
        rounds: (R,) federated rounds.
        members, nonmembers: (R, n), (R, m) loss of each image under the aggregated model.
        control_members, control_nonmembers: the same without the act, or None.
        before_members, before_nonmembers: (n,), (m,) losses before the first crafted update.
        after_members, after_nonmembers: (n,), (m,) losses right after the local act.
    """

    act: str
    rounds: IntArray
    members: FloatArray
    nonmembers: FloatArray
    control_members: FloatArray | None = None
    control_nonmembers: FloatArray | None = None
    before_members: FloatArray | None = None
    before_nonmembers: FloatArray | None = None
    after_members: FloatArray | None = None
    after_nonmembers: FloatArray | None = None


@dataclass(frozen=True)
class Fault:
    """A client that failed in a round.

    Attributes:
        reason: in one line. action: `stopped`, `retried` or `dropped`.
    """

    branch: str
    round: int
    client: int
    reason: str
    action: str


@dataclass(frozen=True)
class EncoderInfo:
    """What an audit understood of the encoder that it was given.

    Attributes:
        form: of the file or folder, in a few words. loaded: tensors that were loaded from it.
        dropped: names of its tensors that were not. missing: names of the encoder's own that it
            lacks, which are random.
        size: pixels a side of the images shown to it.
        mean, std: by which their pixels in [0, 1] were normalised, one value a channel.
        outputs: name, kind (`map`, `pooled` or `projection`) and shape without the batch of all
            that attacks can read, from the pixels on.
        crops: sizes of an image's parts that it takes.
    """

    form: str
    loaded: int
    dropped: Sequence[str]
    missing: Sequence[str]
    size: int
    mean: Sequence[float]
    std: Sequence[float]
    outputs: Sequence[tuple[str, str, tuple[int, ...]]]
    crops: str


@dataclass(frozen=True)
class RunScores:
    """All that a report is made of.

    Attributes:
        seed: root seed; the per-client null is drawn from it.
        member_ids, nonmember_ids: (n,), (m,) ids of the scored images.
        member_client: (n,) id of the client that holds each scored member.
        member_labels, nonmember_labels: (n,), (m,) class of each.
        whose: (n,), (m,) client that each belongs to, where the data tell; clients are compared
            with non-members of their own. None: with those of their classes.
        attacks: the attacks listed, in the order declared.
        controls: set name (`untrained`, `placebo`) -> the same attacks under that control. An
            interval of theirs that excludes 0.5 voids the run.
        pairs: attacks beside controls that may well leak; only the difference is judged.
        sets: scores of sets of images, reported apart: no verdict rests on them.
        inferences: of whole data sets, by attack; likewise.
        pixels: scores (members, non-members) of a classifier that never sees a model.
        utility, utility_untrained: `knn` and `linear` -> Probe.
        round: of the model that `utility` and the passive attacks are of; None: of no run.
        after_attack: `utility` of the last model and its round; None where nothing was crafted.
        health: of the encoder that `utility` is of, None where not looked at.
        aggregation: of a federation, None where there is none.
        subject: what was attacked, as the page's title says it.
        not_run: attack -> why it could not run.
        pretrain: `none`, `pooled` or `public`.
        interrupted: last finished round where the run ended before its time, else None.
        failure: why it did, None where the user ended it.
        failed: attacks that raised where they were scored.
        faults: clients that failed, in order.
        encoder: that an audit was given, None for a run's own.
        split: sizes of the split; config, versions, hardware: passed through.
        timing: seconds beside those of the stopwatch, by part or, under one name, by attack.
    """

    seed: int
    member_ids: IntArray
    nonmember_ids: IntArray
    member_client: IntArray
    member_labels: IntArray
    nonmember_labels: IntArray
    whose: tuple[IntArray, IntArray] | None = None
    attacks: Sequence[ScoredAttack] = ()
    controls: Mapping[str, Sequence[ScoredAttack]] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()
    sets: Sequence[SetScores] = ()
    inferences: Sequence[DatasetInference] = ()
    pixels: tuple[FloatArray, FloatArray] | None = None
    utility: Mapping[str, Probe] = field(default_factory=dict)
    utility_untrained: Mapping[str, Probe] = field(default_factory=dict)
    round: int | None = None
    after_attack: tuple[Mapping[str, Probe], int] | None = None
    health: Health | None = None
    clients: Sequence[ClientInfo] = ()
    aggregation: Aggregation | None = None
    rounds: Sequence[RoundInfo] = ()
    curves: Curves | None = None
    sweep: AttackSweep | None = None
    subject: str = "a federated encoder"
    not_run: Mapping[str, str] = field(default_factory=dict)
    pretrain: str = "none"
    interrupted: int | None = None
    failure: str | None = None
    failed: Sequence[str] = ()
    faults: Sequence[Fault] = ()
    notes: Sequence[str] = ()
    encoder: EncoderInfo | None = None
    split: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)

    def alike(self) -> tuple[IntArray, IntArray]:
        """(n,), (m,) kinds within which members and non-members are compared, client by client."""
        return self.whose or (self.member_labels, self.nonmember_labels)
