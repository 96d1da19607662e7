"""What `report.json` holds of clients: each, cohorts of them, naming them, inference on them.

The conventions of `fedmia.records.rows` hold.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from fedmia.records.attack_rows import (
    Attack,
    ByFpr,
    Client,
    High,
    Interval,
    Low,
    Members,
    Nonmembers,
    Round,
    ThreatRow,
)
from fedmia.records.defence_rows import DefenceRow
from fedmia.records.fields import Field

Name = Annotated[str, Field(column="subject")]


class ClientRow(TypedDict):
    """One client; leakage of its scored members against non-members of the same class mix, or of
    its own where images belong to clients; null where it has none.

    Attributes:
        id: partition id, or number of a subject.
        name: of a subject; absent of a client. The subject's interval is of its own images.
        size: images.
        role: `honest`, or the role of the attacker.
        classes: images by class, null where not known.
        n_members: scored, of classes that a scored non-member has.
        n_nonmembers_effective: Kish's number of the weighted non-members.
        auc: AUC of its scored members, in [0, 1].
        auc_ci: 95 % confidence interval [low, high] of `auc`; null where there is none.
        low: lower end of its interval over all clients.
        high: upper end.
        null_auc: of non-members who pose as its members: mean, 95 % band, posers.
        null_n: number of posers drawn for its null distribution.
        why: reasons to list it, where the report lists only some clients.
    """

    id: Client
    name: NotRequired[Name]
    size: int
    role: str
    defence: Annotated[DefenceRow | None, Field(subject="defence")]
    classes: list[int] | None
    n_members: Members
    n_nonmembers_effective: float | None
    auc: float | None
    low: Low
    high: High
    auc_ci: Interval | None
    null_auc: float | None
    null_ci: Annotated[Interval | None, Field(part="null_auc")]
    null_n: int | None
    attack: Annotated[str | None, Field(column="attack")]  # that clients are compared by
    why: NotRequired[list[str]]


class ClientCounts(TypedDict):
    """What a report keeps of clients that it does not list; `table.csv` holds all.

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
        low: lower end of its interval over all cohorts.
        high: upper end.
        null_auc: of non-members who pose as these members: mean and 95 % band.
        attack: that cohorts are compared by.
    """

    cohort: Annotated[str, Field(column="subject")]
    clients: int
    images: int
    n_members: Members
    n_nonmembers_effective: float | None
    auc: float | None
    low: Low
    high: High
    auc_ci: Interval | None
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
        difference_ci: 95 % confidence interval [low, high] of `difference`.
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
        client: partition id, or number of a subject.
        name: of a subject; absent of a client.
        difference: mean of its images less that of non-members of the same classes.
        n: number of images tested.
        n_nonmembers: number of non-members of their classes.
        p_value_untrained: p-value on the untrained encoder, in (0, 1].
    """

    client: Client
    name: NotRequired[Name]
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
        n: number of sets; 0 where images belong to subjects.
        p_values: one for each set, in (0, 1].
    """

    n: int
    # By level, "0.01", "0.05": p-values as small.
    alarms: Annotated[dict[str, int], Field(keyed="target_fpr")]
    p_values: list[float]


class SuspectRow(TypedDict):
    """How far a client's updates stand out from those of the others; null where it sent none that
    could be compared. Norm, cosine and loss are of the round in which it stands out most.

    Attributes:
        client: its number in the recording.
        round: in which it stands out most.
        norm: of its update, over the median of the round's clients; null: it is not finite.
        cosine: of its update with the mean direction of the others', in [-1, 1]; null: it has none.
        loss_change: of images that no client trained on, by its update alone; null: not known, or
            no update that is finite and not zero.
        suspicion: over its rounds, against honest clients with as many, as a standard normal value;
            higher: likelier an attacker's.
        alarm: whether no honest client was as suspicious; null: not measured for so many clients
            and rounds, or without the loss.
    """

    client: Client
    round: Round | None
    norm: float | None
    cosine: float | None
    loss_change: float | None
    suspicion: float | None
    alarm: bool | None


class InferenceRow(TypedDict):
    """Dataset inference by one attack.

    Attributes:
        attack: name of the attack.
        paper: where it was published; may be empty.
        threat: what the attacker needs.
        clients: one row a client.
        n_clients: number of clients, where `clients` lists only those of the smallest p-values.
        p_value: the least of the sets that the untrained encoder does not tell as well, corrected
            for all sets and for the other tests of the verdict; null: there is none.
        p_value_untrained: of all sets as one on the untrained encoder, in (0, 1]; null: there is
            one set, or no such encoder.
        void: whether posers are found more often than by chance, or all sets as one on the
            untrained encoder.
        may_differ: true where chance alone does not part the two sides and there is a placebo, over
            which attacks on images must lie: no control of the sets tells training from a shift.
        statement: what was found, one sentence.
    """

    attack: Attack
    paper: str
    threat: ThreatRow
    clients: list[ClientInferenceRow]
    n_clients: NotRequired[int]
    posers: Annotated[PosersRow, Field(control="posers")]
    p_value: float | None
    p_value_untrained: float | None
    void: bool
    may_differ: NotRequired[bool]
    statement: str
