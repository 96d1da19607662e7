"""Who is exposed: members by falling score of one attack, and which attacks find the same ones.

Where images belong to subjects, such as patients, a row is a subject, by the mean of its images'
scores: images of one subject are no independent draws.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedmia.records import Evaluation, FloatArray, IntArray, ScoredAttack
from fedmia.records.exposed_rows import ExposedRow, OverlapRow, PartRow
from fedmia.records.note import Note
from fedmia.report.clients import declared_attack
from fedmia.report.selection import FEW
from fedmia.statistics.exposed import (
    FEWEST,
    LONGEST,
    conformal_p,
    exceeds_rate,
    most_false,
)
from fedmia.statistics.intervals import clopper_pearson
from fedmia.statistics.subjects import subject_means
from fedmia.statistics.thresholds import tpr_at_fpr

FPR = 0.05  # at which attacks and parts are compared
SIDE = 64  # most pixels a side of a picture in the table


def exposed_rows(run: Evaluation) -> list[ExposedRow]:
    """The list: as long as its bound says more, FEW rows at least and LONGEST at most.

    Args:
        run: the scores.

    Returns:
        A row for each member, or subject; none without an attack or with fewer than FEWEST
        non-members or subjects of them.
    """
    if (sides := _listed(run)) is None:
        return []
    attack, (members, others) = sides
    order = np.argsort(-members, kind="stable")
    p_values, bound = conformal_p(members, others), most_false(members, others)
    sure = np.arange(1, len(bound) + 1) - bound  # at least so many are told apart
    end = min(max(int(np.argmax(sure)) + 1, FEW), LONGEST, len(members))
    beside = {one.name: _is_found(run, one) for one in _others(run, attack)}
    places = order[:end].tolist()
    rows = list[ExposedRow]()
    for at, who in enumerate(_identities(run, attack, places)):
        place = places[at]
        row = ExposedRow(
            rank=at + 1,
            attack=attack.name,
            score=float(members[place]),
            p_value=float(p_values[place]),
            most_false=int(bound[at]),
            also=[name for name, hits in beside.items() if hits[place]],
            **who,
        )
        rows.append(row)
    return rows


def overlap_rows(run: Evaluation) -> list[OverlapRow]:
    """Each other attack beside that of the list, the largest overlap first.

    Args:
        run: the scores.

    Returns:
        A row for each; none where there is no list.
    """
    if (sides := _listed(run)) is None:
        return []
    attack, rows = sides[0], list[OverlapRow]()
    own = _is_found(run, attack)
    for other in _others(run, attack):
        theirs = _is_found(run, other)
        both, n = int((own & theirs).sum()), len(own)
        row = OverlapRow(
            attack=other.name,
            beside=attack.name,
            n_members=n,
            share=float(theirs.mean()),
            both=both / n,
            both_ci=clopper_pearson(both, n),
            independent=float(own.mean() * theirs.mean()),
            either=float((own | theirs).mean()),
        )
        rows.append(row)
    return sorted(rows, key=lambda row: -row.both)


def part_rows(run: Evaluation) -> list[PartRow]:
    """Share of the members of each class, client and group that the attack of the list finds.

    Args:
        run: the scores.

    Returns:
        A row for each of the FEW parts with the most members, of those with at least FEWEST; none
        of a kind of which there is one, and none where there is no list.
    """
    if (sides := _listed(run)) is None:
        return []
    attack = sides[0]
    kinds: dict[str, tuple[NDArray[Any], NDArray[Any] | None]] = {
        "class": (run.member_labels, run.nonmember_labels)
    }
    kinds |= {"client": (run.member_client, None)} if run.clients else {}
    kinds |= {} if run.groups is None else {"group": run.groups}
    parts = list[tuple[str, Any, NDArray[np.bool_]]]()
    for kind, (of, _) in kinds.items():
        each, counts = np.unique(of, return_counts=True)
        if len(each) > 1:
            large = each[counts >= FEWEST].tolist()
            parts += [(kind, name, of == name) for name in large]
    parts = sorted(parts, key=lambda part: -int(part[2].sum()))[:FEW]
    rows = list[PartRow]()
    for kind, name, mine in sorted(parts, key=lambda part: part[:2]):
        subjects = None if run.subjects is None else (run.subjects[0][mine], run.subjects[1])
        scores = attack.scores_members[mine], attack.scores_nonmembers
        rate = tpr_at_fpr(*scores, FPR, subjects, family=len(parts))
        assert rate is not None  # FEWEST non-members resolve it
        alarms, others = exceeds_rate(scores[1], scores[1], FPR), kinds[kind][1]
        like = None if others is None else others == name
        row = PartRow(
            kind=kind,
            name=str(name),
            attack=attack.name,
            n_members=int(mine.sum()),
            share=rate[0],
            low=rate[1][0],
            high=rate[1][1],
            alarms=None if like is None or not like.any() else float(alarms[like].mean()),
            n_nonmembers=None if like is None else int(like.sum()),
        )
        rows.append(row)
    return rows


def list_notes(run: Evaluation) -> list[Note]:
    """That images are shown; why there is no list of exposed members, though there is an attack."""
    notes = [Note("images-shown")] * (run.picture is not None)
    attack = declared_attack(run)
    if attack is None or _listed(run) is not None:
        return notes
    others, subjects = len(_by_unit(run, attack)[1]), run.subjects is not None
    why = Note("no-exposed", {"others": others, "least": FEWEST, "subjects": subjects})
    return [*notes, why]


def select_exposed(rows: Sequence[ExposedRow]) -> list[ExposedRow]:
    """The first FEW rows of a list, and the last one, which ends it."""
    return [*rows[:FEW], *rows[FEW:][-1:]]


def _listed(run: Evaluation) -> tuple[ScoredAttack, tuple[FloatArray, FloatArray]] | None:
    """The attack of the list and its scores by unit; None where there can be no list."""
    attack = declared_attack(run)
    if attack is None:
        return None
    sides = _by_unit(run, attack)
    return None if len(sides[1]) < FEWEST else (attack, sides)


def _by_unit(run: Evaluation, attack: ScoredAttack) -> tuple[FloatArray, FloatArray]:
    """Scores of the images, or of the subjects in order of their numbers, of both sides."""
    if run.subjects is None:
        return attack.sides
    members, others = (
        subject_means(scores, np.full(len(scores), 1 / max(len(scores), 1)), of)[0]
        for scores, of in zip(attack.sides, run.subjects, strict=True)
    )
    return members, others


def _others(run: Evaluation, attack: ScoredAttack) -> list[ScoredAttack]:
    """The other attacks that scored the same images."""
    sizes = [len(side) for side in attack.sides]
    return [a for a in run.attacks if a is not attack and [len(s) for s in a.sides] == sizes]


def _is_found(run: Evaluation, attack: ScoredAttack) -> NDArray[np.bool_]:
    """Which members, or subjects, an attack finds at FPR."""
    return exceeds_rate(*_by_unit(run, attack), FPR)


def _identities(
    run: Evaluation, attack: ScoredAttack, places: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Of each row the fields that say who it is; the first FEW rows have a picture."""
    subjects = None if run.subjects is None else run.subjects[0]
    numbers = None if subjects is None else np.unique(subjects)
    labelled = len(np.unique(np.r_[run.member_labels, run.nonmember_labels])) > 1
    for rank, place in enumerate(places):
        own: IntArray = np.array([place])
        fields: dict[str, Any] = {"image": int(run.member_ids[place])}
        if subjects is not None and numbers is not None:
            own = np.flatnonzero(subjects == numbers[place])
            fields = {"subject": run.subject_names[numbers[place]], "images": len(own)}
        clients, labels = set(run.member_client[own].tolist()), set(run.member_labels[own].tolist())
        fields["client"] = min(clients) if run.clients and len(clients) == 1 else None
        fields["label"] = min(labels) if labelled and len(labels) == 1 else None
        if run.picture is not None:
            best = int(own[np.argmax(attack.scores_members[own])])
            pixels, file = run.picture("scored_members", best)
            fields["file"] = file if subjects is None else None
            fields["picture"] = thumbnail(pixels) if rank < FEW else None
        yield dict.fromkeys(("image", "subject", "images", "file", "picture")) | fields


def thumbnail(pixels: NDArray[np.uint8]) -> str:
    """A picture of an image, at most SIDE pixels a side: PNG in base 64.

    Args:
        pixels: uint8 (C, H, W), C 1 or 3.

    Returns:
        The text.
    """
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    picture.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    picture.save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode("ascii")
