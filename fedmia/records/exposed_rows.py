"""What `report.json` holds of single members: who is exposed, by which attacks, in which parts.

The conventions of `fedmia.records.rows` hold. Nothing here is the probability of a membership.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.records.attack_rows import Interval
from fedmia.records.fields import COUNT, PNG, PURE, SHARE, P, fact, interval, number

BOUND_BY = "statistics.exposed.most_false"
TPR_BY = "statistics.thresholds.tpr_at_fpr"
FOUND_BY, OVERLAP_BY = "statistics.exposed.exceeds_rate", "report.exposed.overlap_rows"


@dataclass(frozen=True, kw_only=True)
class ExposedRow:
    """One scored member, or one subject such as a patient, in a list by falling score."""

    rank: int = fact("place in the list, from 1", column="subject", head="rank", place=0)
    attack: str = fact("whose scores they are", column="attack")
    image: int | None = fact(
        "its number, as in `scores.csv`; null: a subject", head="image", place=1, optional=True
    )
    subject: str | None = fact(
        "to whom its images belong; null: an image", head="subject", place=1, optional=True
    )
    images: int | None = number(
        "scored images of the subject; null: an image",
        COUNT,
        head="images",
        place=2,
        optional=True,
    )
    client: int | None = fact(
        "that holds it; null: none, or several", column="client", head="client", place=2,
        optional=True,
    )  # fmt: skip
    label: int | None = fact(
        "its class; null: not known, or several", head="class", place=3, optional=True
    )
    score: float = number(
        "of the attack; of a subject the mean of its images'",
        PURE,
        "report.exposed.exposed_rows",
        head="score",
        place=4,
        digits=3,
    )
    p_value: float = number(
        "how rarely a scored non-member scores as high: 1 + their number, over 1 + all. It is no "
        "probability that this is a member",
        P,
        "statistics.exposed.conformal_p",
        head="p-value",
        place=5,
    )
    most_false: int = number(
        "at most so many of the list down to this row are there by chance, their scores "
        "exchangeable with those of non-members; at 95 % for all rows at once",
        COUNT,
        BOUND_BY,
        head="false so far,\nat most",
        place=6,
    )
    also: list[str] = fact(
        "other attacks that find it where 5 % of the non-members are taken for members",
        head="also found by",
        place=7,
    )
    file: str | None = fact(
        "name of its file; null: none, or not asked for", head="file", place=8, optional=True
    )
    picture: str | None = fact(
        "the image, of a subject that of the highest score, at most 64 pixels a side; null: not "
        "asked for",
        unit=PNG,
        head="picture",
        place=9,
        optional=True,
    )


@dataclass(frozen=True, kw_only=True)
class OverlapRow:
    """Whether an attack finds the members that the attack of the list finds, where 5 % of the
    non-members are taken for members."""

    attack: str = fact("beside the attack of the list", column="attack", head="attack", place=0)
    beside: str = fact("the attack of the list", column="baseline", head="beside", place=1)
    n_members: int = number(
        "scored members, or subjects", COUNT, column="n_members", head="members", place=2
    )
    share: float = number(
        "share of them that the attack finds", SHARE, FOUND_BY, head="finds", place=3, digits=3
    )
    both: float = number(
        "share that both attacks find",
        SHARE,
        OVERLAP_BY,
        head="both find",
        place=4,
        digits=3,
    )
    both_ci: Interval = interval("both", help="95 % interval, at the two thresholds as they are")
    independent: float = number(
        "share that both would find if which ones they find were independent",
        SHARE,
        OVERLAP_BY,
        head="if independent",
        place=5,
        digits=3,
    )
    either: float = number(
        "share that at least one of both finds",
        SHARE,
        OVERLAP_BY,
        head="either finds",
        place=6,
        digits=3,
    )


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """Share of some members that the attack of the list finds; the simultaneous interval is over
    all rows of its kind."""

    kind: str = fact("`class`, `client` or `group`", column="subject", head="by", place=0)
    name: str = fact(
        "number of the class or the client, value of the group", column="subject", head="which",
        place=1,
    )  # fmt: skip
    attack: str = fact("that finds them", column="attack")
    n_members: int = number(
        "scored members, images", COUNT, column="n_members", head="members", place=2
    )
    share: float = number(
        "share of them that is found where 5 % of all non-members are taken for members",
        SHARE,
        TPR_BY,
        head="found",
        place=3,
    )
    low: float | None = interval("share", ("low",))
    high: float | None = interval("share", ("high",))
    alarms: float | None = number(
        "share of the scored non-members of this class or group that is taken for members; where "
        "it is far from 5 %, the class or group itself scores high or low; null: none is of it",
        SHARE,
        FOUND_BY,
        head="non-members\nlikewise",
        place=4,
    )
    n_nonmembers: int | None = number(
        "scored non-members of this class or group; null of clients", COUNT, column="n_nonmembers"
    )
