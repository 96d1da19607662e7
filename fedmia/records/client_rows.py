"""What `report.json` holds of clients: each, cohorts of them, naming them, inference on them.

The conventions of `fedmia.records.rows` hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.records.attack_rows import AUC_BY, ByFpr, Interval
from fedmia.records.defence_rows import DefenceRow
from fedmia.records.fields import (
    AUC,
    COUNT,
    NATS,
    PURE,
    SHARE,
    SIGNED,
    P,
    fact,
    interval,
    nested,
    number,
)

CLIENT, SUBJECT, GROUP, COHORT = "client", "subject", "group", "cohort"  # whose images
NEVER = "never"  # the cohort of clients that no round drew
NAMING_BY = "statistics.by_client.matched_naming_rate"
SUSPICION_BY = "statistics.suspicion.deviations"


@dataclass(frozen=True, kw_only=True)
class LeakRow:
    """Leakage of some scored members against non-members like them: of the same class mix or,
    where images belong to clients, of the clients' own; null where there are none. The
    simultaneous interval is over all rows of its kind."""

    whose: str = fact("whose images: `client`, `subject` such as a patient, `group`, `cohort`")
    attack: str | None = fact("that they are compared by; null: none", column="attack")
    n_members: int = number(
        "scored members, of classes that a scored non-member has",
        COUNT,
        column="n_members",
        head="scored",
        place=3,
    )
    n_nonmembers_effective: float | None = number(
        "Kish's number of the weighted non-members", PURE, "statistics.matching.effective_size"
    )
    auc: float | None = number("of these members", AUC, AUC_BY)
    low: float | None = interval("auc", ("low",))
    high: float | None = interval("auc", ("high",))
    auc_ci: Interval | None = interval("auc")
    null_auc: float | None = number(
        "AUC where nothing can leak, of non-members that pose as these members: mean, range of "
        "95 %",
        AUC,
        "statistics.matching.null_distribution",
        head="where nothing\ncan leak",
        place=5,
    )
    null_ci: Interval | None = interval("null_auc", help="range of 95 % of the null")


@dataclass(frozen=True, kw_only=True)
class ClientRow(LeakRow):
    """One client, or one subject, and the leakage of its scored members; the interval of a subject
    is of its own images."""

    id: int = fact("partition id, or number of a subject", column="client")
    name: str | None = fact("of a subject; null of a client", column="subject")
    size: int = number("images that it holds", COUNT, head="images", place=1)
    role: str = fact("`honest`, or the role of the attacker", head="role", place=2)
    defence: DefenceRow | None = nested("null: it does not defend itself", subject="defence")
    classes: list[int] | None = number("images by class, null where not known", COUNT)
    null_n: int | None = number("posers drawn for its null", COUNT)
    why: list[str] | None = fact("reasons to list it; null where all clients are listed")


@dataclass(frozen=True, kw_only=True)
class ClientCounts:
    """What a report keeps of clients that it does not list; `table.csv` holds all."""

    clients: int = number("clients of the federation", COUNT)
    median_size: float = number("images that a client holds, at the median", COUNT)
    defended: list[str] = fact("what defended clients do and promise, a sentence each")


@dataclass(frozen=True, kw_only=True)
class CohortRow(LeakRow):
    """Clients whose last round lies in one stretch of rounds, or that no round drew."""

    cohort: str = fact(
        "`never`, or the rounds `first-last`", column="subject", head="last round", place=0
    )
    clients: int = number("clients of the cohort", COUNT, head="clients", place=1)
    images: int = number("images that they hold", COUNT, head="images", place=2)


@dataclass(frozen=True, kw_only=True)
class ClientDistribution:
    """AUCs of all clients, beside those of non-members who pose as their members."""

    clients: int = number("clients that have an AUC", COUNT)
    over_half: int = number("of them, with a simultaneous interval over 0.5", COUNT)
    under_half: int = number("of them, with a simultaneous interval under 0.5", COUNT)
    with_null: int = number("clients with a null of their own", COUNT)
    over_null: int = number("of these, over the range of their own null", COUNT)
    over_null_expected: float = number(
        "if nothing leaked; clients share non-members, so it varies much", COUNT
    )
    percentiles: list[float] = number(
        "of the clients' AUCs: 0th, 1st, .., 100th", AUC, "report.clients.distribution"
    )
    null_percentiles: list[float] | None = number(
        "of the draws of all their nulls together", AUC, "report.clients.distribution"
    )


@dataclass(frozen=True, kw_only=True)
class PerClientRow:
    """Whether one given client trained on an image."""

    auc: float = number("of pairs (image, client)", AUC, "statistics.by_client.client_auc")
    auc_ci: Interval | None = interval("auc")
    tpr_at_fpr: ByFpr = number(
        "by target FPR", SHARE, "statistics.by_client.client_auc", keyed="target_fpr"
    )
    tpr_at_fpr_ci: dict[str, Interval | None] = interval(
        "tpr_at_fpr", help="at the thresholds drawn, whose error it does not hold"
    )
    n_members: int = number("scored members", COUNT, column="n_members")
    n_nonmembers: int = number("scored non-members", COUNT, column="n_nonmembers")
    clients: int = number("clients that the attack scores one by one", COUNT)
    positive_pairs: int = number("pairs in which the client trained on the image", COUNT)
    negative_pairs: int = number("pairs in which it did not", COUNT)


@dataclass(frozen=True, kw_only=True)
class NamingNull:
    """How often non-members like a member are named its client."""

    accuracy: float = number(
        "share of such non-members that are named its client", SHARE, NAMING_BY
    )
    ci: Interval = interval("accuracy")
    difference: float = number("share of members named right, less `accuracy`", SIGNED, NAMING_BY)
    difference_ci: Interval = interval("difference")
    n_members: int = number("members that some non-member is like", COUNT, column="n_members")
    alike: str = fact("what the two share: `class` or `client`")


@dataclass(frozen=True, kw_only=True)
class NamingRow:
    """An attack that names the client of an image: `correct` of `n` scored members."""

    attack: str = fact("name of the attack", column="attack")
    correct: int = number("members whose client was named", COUNT)
    n: int = number("scored members", COUNT)
    accuracy: float = number("share of `n`", SHARE, "report.per_client.named_rows")
    ci: Interval = interval("accuracy")
    chance: float | None = number(
        "accuracy of always naming the client with most scored members; null of the placebo",
        SHARE,
        "report.per_client.named_rows",
    )
    null: NamingNull | None = nested("null without scores by client", control="posers")
    per_client: PerClientRow | None = nested("null without scores by client", subject="per_client")
    placebo: NamingRow | None = nested(
        "the same of clients that never saw the images; null without a placebo", control="placebo"
    )


@dataclass(frozen=True, kw_only=True)
class ClientInferenceRow:
    """Was this data set trained on? Null where no non-member has a class of its images."""

    whose: str = fact("whose set: `client`, or `subject` such as a patient")
    client: int = fact("partition id, or number of a subject", column="client")
    name: str | None = fact("of a subject; null of a client", column="subject")
    p_value: float | None = interval(
        "difference",
        ("p",),
        help="chance of so high a score if the set was not trained on",
        head="p-value",
        place=1,
    )
    p_value_holm: float | None = interval(
        "difference",
        ("p_adjusted",),
        help="the p-value, corrected for all sets (Holm)",
        head="corrected p",
        place=2,
    )
    difference: float | None = number(
        "mean of its images less that of non-members of the same classes",
        PURE,
        "attacks.base.DatasetAttack.infer",
        head="difference",
        place=4,
        digits=4,
    )
    n: int = number("images tested", COUNT)
    n_nonmembers: int = number("non-members of their classes", COUNT, column="n_nonmembers")
    p_value_untrained: float | None = number(
        "p-value on the untrained encoder",
        P,
        "attacks.base.DatasetAttack.infer",
        head="untrained",
        place=3,
    )


@dataclass(frozen=True, kw_only=True)
class PosersRow:
    """Sets of non-members, dealt like the clients' images, that pose as clients'."""

    n: int = number("sets; 0 where images belong to subjects", COUNT)
    alarms: dict[str, int] = number(
        'p-values as small, by level "0.01", "0.05"',
        COUNT,
        "statistics.pvalues.count_alarms",
        keyed="target_fpr",
    )
    p_values: list[float] = number("one for each set", P, "attacks.base.DatasetAttack.infer")


@dataclass(frozen=True, kw_only=True)
class SuspectRow:
    """How far a client's updates stand out from those of the others; null where it sent none that
    could be compared. Norm, cosine and loss are of the round in which it stands out most."""

    client: int = fact("its number in the recording", column="client", head="client", place=0)
    suspicion: float | None = number(
        "how far its updates stand out over its rounds, against honest clients with as many, as a "
        "standard normal value; higher: likelier an attacker's",
        PURE,
        "statistics.suspicion.suspicions",
        head="suspicion",
        place=1,
    )
    alarm: bool | None = fact(
        "whether no client of honest federations of this size stood out as far; null: there is no "
        "alarm for so many clients and rounds, or without the loss",
        marks=True,
        head="alarm",
        place=2,
    )
    round: int | None = fact(
        "in which it stands out most", column="round", head="stands out most\nin round", place=3
    )
    norm: float | None = number(
        "length of its update over that of the round's median client; null: not finite",
        PURE,
        SUSPICION_BY,
        head="norm over median",
        place=4,
    )
    cosine: float | None = number(
        "between its update and the mean direction of the others'; 1: the same; null: none",
        SIGNED,
        SUSPICION_BY,
        head="cosine with others",
        place=5,
    )
    loss_change: float | None = number(
        "by how much its update alone changes the loss of images that no client trained on; null: "
        "not known, or no update that is finite and not zero",
        NATS,
        SUSPICION_BY,
        head="public loss",
        place=6,
        digits=3,
        signed=True,
    )


@dataclass(frozen=True, kw_only=True)
class InferenceRow:
    """Dataset inference by one attack."""

    attack: str = fact("name of the attack", column="attack")
    paper: str = fact("where it was published; may be empty")
    access: str = fact("what the attacker needs of the model: `black_box` or `white_box`")
    vantage: str = fact("where the attacker stands: `outsider`, `client` or `server`")
    clients: list[ClientInferenceRow] = nested("one row a client")
    n_clients: int | None = number(
        "clients; null where `clients` lists all, else it has those of the smallest p-values", COUNT
    )
    n_tested: int = number("sets that were tested, listed or not", COUNT)
    n_detected: int = number(
        "sets on which the encoder was trained, listed or not", COUNT, "report.judgement.detected"
    )
    posers: PosersRow = nested("the control", control="posers")
    p_value: float | None = number(
        "the least of the sets that the untrained encoder does not tell as well, corrected for all "
        "sets and for the other tests of the verdict; null: there is none",
        P,
        "report.datasets.inference_row",
    )
    p_value_untrained: float | None = number(
        "of all sets as one on the untrained encoder; null: there is one set, or no such encoder",
        P,
        "attacks.base.DatasetAttack.infer",
    )
    void: bool = fact(
        "whether posers are found more often than by chance, or all sets as one on the untrained "
        "encoder"
    )
    may_differ: bool = fact(
        "whether chance alone does not part the two sides and there is a placebo, over which "
        "attacks on images must lie: no control of the sets tells training from a shift"
    )
    family: int = fact("tests for a leak that `p_value` is corrected for, this attack one of them")
    n_nonmember_subjects: int | None = fact("whose exchange gives the p-values; null of clients")
