"""Typed records: what the evaluation hands to the report, plain arrays and types.

`rows` and its like are what report.json holds of them; `fields`, what a row declares of its
numbers. The report is the only place that holds scores and truth together. Nothing here knows the
federation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.records.client_rows import ClientInferenceRow
from fedmia.records.defence_rows import AggregationRow, DefenceRow
from fedmia.records.note import Note
from fedmia.records.rows import EncoderRow, FaultRow, HealthRow, RoundRow

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
Picture = Callable[[str, int], tuple[NDArray[np.uint8], str | None]]
MEAN, ALONE = "mean", "alone"  # how a set was judged
LOSS_BEFORE = "loss-before"  # a control: the loss that an ascent starts from
EPOCHS_CUT = "epochs cut to"  # among the choices of an attack that trained less than its recipe


@dataclass(frozen=True)
class ScoredAttack:
    """Scores of one attack on the evaluated images. A higher score says member.

    Attributes:
        name: the plugin's name.
        paper: where it was published, or the empty string.
        access: `black_box` or `white_box`.
        vantage: `outsider`, `client` or `server`.
        scores_members: (n,) in the order of `Evaluation.member_ids`.
        scores_nonmembers: (m,) in the order of `Evaluation.nonmember_ids`.
        known_members: (k,) scores of the attacker's known members under the fitted attack; they
            choose a threshold and nothing else. Empty: none is known.
        known_nonmembers: (k,) scores of its known non-members, likewise.
        shadow_threshold: the score above which the attack itself says member, where it was fitted
            on shadows; None: known images choose its threshold.
        fitted_on: known images that its fit learnt from, of both sides; 0: it learns from none.
        under_attack: the scored model had already received a crafted update.
        rounds: of the scored model, none where it is not of a run; of an active attack all in
            which it acted.
        queries: images that the attack had embedded.
        seconds: wall-clock time of its fit and its scores, less where rows were shared.
        scoring_queries, scoring_seconds: what of them the scores of the evaluated images took.
        act: the step on the loss that the attack reads, as figures name it: `ascent`, or empty.
        reading: what of the act's effect the score is: `rise` or `level` of the loss; or empty.
        also: the same attack in its other readings.
        choices: option -> value that the attack chose for it on known images; plain types.
        features_members: (n, 3) for the scatter plot, or None.
        features_nonmembers: (m, 3) for the scatter plot, or None.
        feature_names: names of the three features.
        named_members: (n,) id of the client that the attack says holds each member, or None.
        client_ids: (K,) ids of the clients that the attack scores one by one, or None.
        by_client_members: (n, K) score of each member for each of `client_ids`: whether that client
            trained on it; None without them.
        by_client_nonmembers: (m, K) of each non-member, likewise.
        sets_members: (S, 1 + controls) of the sets that the attack scored as wholes: its score, and
            those of its controls; None where it did not.
        sets_nonmembers: (T, 1 + controls) likewise.
        twins: names of what needs no act and was scored too, and what each is, in words.
        subjects_members: (n,) number of the subject that each member belongs to, such as a patient;
            None: to none.
        subjects_nonmembers: (m,) likewise of each non-member.
        twin_members: (n, twins) their scores, or None.
        twin_nonmembers: (m, twins) likewise.
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
    fitted_on: int = 0
    under_attack: bool = False
    rounds: tuple[int, ...] = ()
    queries: int = 0
    seconds: float = 0.0
    scoring_queries: int = 0
    scoring_seconds: float = 0.0
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
    subjects_members: IntArray | None = None
    subjects_nonmembers: IntArray | None = None
    twins: Mapping[str, str] = field(default_factory=dict)
    twin_members: FloatArray | None = None
    twin_nonmembers: FloatArray | None = None

    @property
    def sides(self) -> tuple[FloatArray, FloatArray]:
        """Scores of the members (n,) and of the non-members (m,)."""
        return self.scores_members, self.scores_nonmembers

    @property
    def subjects(self) -> tuple[IntArray, IntArray] | None:
        """Subjects of the members (n,) and of the non-members (m,); None: images have none."""
        members, nonmembers = self.subjects_members, self.subjects_nonmembers
        return None if members is None or nonmembers is None else (members, nonmembers)


@dataclass(frozen=True)
class Pair:
    """An attack and its control on the same images.

    Attributes:
        attack: the attack.
        control: the control.
        over: what the control is, in words.
    """

    attack: ScoredAttack
    control: ScoredAttack
    over: str


def list_attacks(attacks: Iterable[ScoredAttack]) -> list[ScoredAttack]:
    """The attacks, each followed by its other readings as rows of their own."""
    return [row for a in attacks for row in (replace(a, also=()), *a.also)]


def twins(attacks: Sequence[ScoredAttack]) -> list[Pair]:
    """Attacks beside each of what needs no act, where both were scored."""
    pairs = []
    for a in attacks:
        if a.twin_members is not None and a.twin_nonmembers is not None:
            for i, (name, over) in enumerate(a.twins.items()):
                sides = a.twin_members[:, i], a.twin_nonmembers[:, i]
                twin = ScoredAttack(name, a.paper, a.access, a.vantage, *sides)
                pairs.append(Pair(a, twin, over))
    return pairs


@dataclass(frozen=True)
class SetScores:
    """Scores of sets of images, each of members alone or of non-members alone.

    Attributes:
        attack: name of the attack.
        judged: MEAN: a set's score is the mean of the scores of its images; ALONE: the attack
            acted on each set by itself and read its answer to the set as a whole.
        size: images a set.
        members: (S,) scores of the sets of members; higher says member.
        nonmembers: (T,) scores of the sets of non-members.
        controls: what the scores are compared with: name -> its scores (S,) and (T,) of the same
            sets.
    """

    attack: str
    judged: str
    size: int
    members: FloatArray
    nonmembers: FloatArray
    controls: Mapping[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)


@dataclass(frozen=True)
class SetComparison:
    """What an attack on whole data sets says of one set, against others of the same classes.

    Attributes:
        p_value: one-sided, small where the encoder knows the set; None where no other image is of
            its classes.
        difference: of what the attack compares, over others of the same class; None likewise.
        n: number of images of the set that were tested.
        others: number of non-members of their classes.
    """

    p_value: float | None
    difference: float | None
    n: int
    others: int


@dataclass(frozen=True)
class DatasetInferenceResults:
    """Dataset inference of every client by one attack: was its whole data set trained on?

    Attributes:
        attack: name of the attack.
        paper: where it was published.
        clients: one row a client; the report corrects the p-values for all.
        posers: p-values of posers: non-members dealt like the clients' images.
        access: `black_box` or `white_box`.
        vantage: `outsider`, `client` or `server`.
        untrained_together: p-value of all clients' images as one set under the untrained encoder;
            None: there is one client, or no such encoder.
    """

    attack: str
    paper: str
    clients: Sequence[ClientInferenceRow]
    posers: Sequence[float]
    access: str = "black_box"
    vantage: str = "outsider"
    untrained_together: float | None = None


@dataclass(frozen=True)
class SweepPoint:
    """One attack at one value of a sweep.

    Attributes:
        attack: name of the attack.
        sweep: what is varied: `known` images a side, or `query_budget`.
        value: of it.
        known: images a side that the attacker knows; None: it could not run.
        scored: its scores; None: it could not run.
        not_run: why it could not run, or None.
    """

    attack: str
    sweep: str
    value: int
    known: int | None = None
    scored: ScoredAttack | None = None
    not_run: str | None = None


@dataclass(frozen=True)
class Probe:
    """Accuracy of a utility probe.

    Attributes:
        value: accuracy in [0, 1]; None: the probe could not run.
        n: number of test images.
        trials: independent ones that they are worth, where images belong to subjects; None: all.
        by_class: (right, all) numbers of test images of each class; or empty.
    """

    value: float | None
    n: int
    by_class: tuple[tuple[int, int], ...] = ()
    trials: float | None = None


@dataclass(frozen=True)
class ClientInfo:
    """One client of a run.

    Attributes:
        id: partition id.
        size: number of images that it holds.
        role: honest, or the attacker's role.
        defence: None: it does not defend itself.
        classes: number of its images of each class; empty: not known.
        last_round: the last round up to the scored model in which it trained, 0: none; None where
            all clients train in every round.
    """

    id: int
    size: int
    role: str
    defence: DefenceRow | None = None
    classes: tuple[int, ...] = ()
    last_round: int | None = None


@dataclass(frozen=True)
class Curves:
    """Losses of the evaluated images while the malicious client acts on them.

    Attributes:
        act: what it does to its update, in a word that also names the figures: `ascent`.
        rounds: (R,) federated rounds.
        members: (R, n) loss of each member under the aggregated model.
        nonmembers: (R, m) loss of each non-member.
        control_members: (R, n) the same without the act, or None.
        control_nonmembers: (R, m) likewise.
        before_members: (n,) losses before the first crafted update.
        before_nonmembers: (m,) likewise.
        after_members: (n,) losses right after the local act.
        after_nonmembers: (m,) likewise.
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
class Evaluation:
    """All that a report is made of.

    Attributes:
        seed: root seed; the per-client null is drawn from it.
        member_ids: (n,) ids of the scored members.
        nonmember_ids: (m,) ids of the scored non-members.
        member_client: (n,) id of the client that holds each scored member.
        member_labels: (n,) class of each.
        nonmember_labels: (m,) class of each.
        whose: (n,), (m,) client that each belongs to, where the data tell; clients are compared
            with non-members of their own. None: with those of their classes.
        subject_names: of the subjects, such as patients, to which the images belong, where the data
            tell; a subject's number is its place.
        subjects: (n,), (m,) number of each image's; where there are no clients, `member_client`
            has those of the members.
        groups: (n,), (m,) group of each image, such as its device, where the data tell.
        attacks: the attacks listed, in the order declared.
        controls: set name (`untrained`, `placebo`) -> the same attacks under that control. The run
            is void where an interval of theirs excludes 0.5.
        pairs: attacks beside controls that may well leak; only the difference is judged.
        sets: scores of sets of images, reported apart: no verdict rests on them.
        inferences: of whole data sets, by attack.
        pixels: scores (members, non-members) of a classifier that never sees a model.
        utility: `knn` and `linear` -> the probe of the scored encoder.
        utility_untrained: the same of the untrained encoder.
        round: of the model that `utility` and the passive attacks are of; None: it is not of a run.
        after_attack: `utility` of the last model and its round; None where nothing was crafted.
        health: of the encoder that `utility` is of, None where not measured.
        clients: of a federation, in order of their ids.
        aggregation: of a federation, None where there is none.
        rounds: of a federation, in order, without the numbers of attacks.
        leakage: of each round whose model is scored: attack -> its scores.
        layers: likewise: layer -> scores of the internal attack on that layer alone.
        rows: rows of the report that the evaluation makes itself, by their field.
        picture: (role, place among its images) -> uint8 (C, H, W) and the name of its file or
            None, of `scored_members` and `scored_nonmembers`; None: the user shows no images.
        curves: losses by attacked round, None without an active attack.
        sweep: attacks at each value of a sweep; empty without one.
        subject: what was attacked, as the page's title says it.
        not_run: attack -> why it could not run.
        pretrain: `none`, `pooled` or `public`.
        interrupted: last finished round where the run ended before its time, else None.
        failure: why it ended so, None where the user ended it.
        failed: attacks that raised an error where they were scored.
        faults: clients that failed, in order.
        notes: for the reader of the report.
        encoder: of an audit, None for a run.
        drawn: whether chance alone parts members from non-members; False: an audit's images, a
            node's, or all that the clients own against the rest.
        split: sizes of the split.
        config: the settings, as the report keeps them.
        versions: of Python and the packages.
        hardware: of the machine.
        timing: seconds beside those of the stopwatch, by part or, under one name, by attack.
    """

    seed: int
    member_ids: IntArray
    nonmember_ids: IntArray
    member_client: IntArray
    member_labels: IntArray
    nonmember_labels: IntArray
    whose: tuple[IntArray, IntArray] | None = None
    subject_names: tuple[str, ...] = ()
    subjects: tuple[IntArray, IntArray] | None = None
    groups: tuple[NDArray[Any], NDArray[Any]] | None = None
    attacks: Sequence[ScoredAttack] = ()
    controls: Mapping[str, Sequence[ScoredAttack]] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()
    sets: Sequence[SetScores] = ()
    inferences: Sequence[DatasetInferenceResults] = ()
    pixels: tuple[FloatArray, FloatArray] | None = None
    utility: Mapping[str, Probe] = field(default_factory=dict)
    utility_untrained: Mapping[str, Probe] = field(default_factory=dict)
    round: int | None = None
    after_attack: tuple[Mapping[str, Probe], int] | None = None
    health: HealthRow | None = None
    clients: Sequence[ClientInfo] = ()
    aggregation: AggregationRow | None = None
    rounds: Sequence[RoundRow] = ()
    leakage: Mapping[int, Mapping[str, ScoredAttack]] = field(default_factory=dict)
    layers: Mapping[int, Mapping[str, ScoredAttack]] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    picture: Picture | None = None
    curves: Curves | None = None
    sweep: Sequence[SweepPoint] = ()
    subject: str = "a federated encoder"
    not_run: Mapping[str, str] = field(default_factory=dict)
    pretrain: str = "none"
    interrupted: int | None = None
    failure: str | None = None
    failed: Sequence[str] = ()
    faults: Sequence[FaultRow] = ()
    notes: Sequence[Note] = ()
    encoder: EncoderRow | None = None
    drawn: bool = True
    split: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)

    @property
    def by_subject(self) -> bool:
        """Whether the report has subjects in place of clients, of which there are none."""
        return self.subjects is not None and not self.clients

    def alike(self) -> tuple[IntArray, IntArray]:
        """(n,), (m,) kinds within which members and non-members are compared, client by client."""
        return self.whose or (self.member_labels, self.nonmember_labels)
