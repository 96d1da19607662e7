"""The images of an audit and their roles: known and scored members and non-members, and a rest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence, Sized
from dataclasses import replace
from functools import partial

import numpy as np

from fedmia.data.base import AugmentLimits
from fedmia.data.cast import NONE, Cast
from fedmia.data.classes import Labels
from fedmia.data.images import ImageSet, IntArray, count_uniform, digests
from fedmia.evaluation.audits.later import TrainingOrder, read_order
from fedmia.evaluation.audits.owners import read_owners
from fedmia.evaluation.audits.sources import SIDES, Source, find_images, source_views, take
from fedmia.evaluation.audits.subjects import (
    FEW,
    Subjects,
    cut_roles,
    in_order,
    is_small_set,
    read_subjects,
)
from fedmia.records.note import Note
from fedmia.report.words.notes import sentences
from fedmia.settings.commands.audit import LATER, Audit
from fedmia.settings.errors import IncompleteError, InputError, opt

MOST_KNOWN = 500  # a side, where `--known` leaves it open


def deal(
    audit: Audit, size: int | None, owners: object = None, channels: int | None = None,
    order: TrainingOrder | None = None,
) -> Cast:  # fmt: skip
    """Load both sides, and give every image its role.

    Args:
        size: side of an image in pixels; None keeps the source's.
        owners: integers (N,), the client of each member; None: as the settings say.
        channels: that the encoder takes; None: not known.
        order: of training, where later images are the non-members; None: as the settings say.

    Returns:
        The images in their roles.

    Raises:
        InputError: a source that cannot be read, or images that `deal_sets` refuses.
    """
    if audit.nonmembers == LATER:
        order = order or read_order(audit)
        (images,) = find_images(audit, SIDES[:1], size, channels)
        return order.settle(deal_sets(audit, *order.sides(images), source_views(audit)))
    members, others = find_images(audit, SIDES, size, channels, partial(_check_counts, audit))
    views = source_views(audit)
    split = deal_sets(audit, members, others, views)
    return replace(
        split, owners=read_owners(audit.federation.owners if owners is None else owners, members)
    )


def _check_counts(audit: Audit, members: int, others: int) -> None:
    """Raise InputError for too few images, before the sources are read; of subjects others are too
    few."""
    if audit.groups is not None:
        return
    try:
        role_sizes(audit, members, others)
    except InputError as error:
        few = audit.split.known is None and min(members, others) >= 4
        if not few:
            raise
        raise IncompleteError([str(error)], {"split.known": 2}) from None


def deal_sets(audit: Audit, members: Source, others: Source, views: AugmentLimits) -> Cast:
    """Give every image its role, and decode the images that have one.

    The role depends on the seed, on the image's bytes as its source keeps them and on the number of
    images. It depends neither on the order of the files nor on the side. Subjects are dealt whole.

    Args:
        members: the members' data set.
        others: the non-members' data set.
        views: view options that suit the data source.

    Returns:
        The images in their roles.

    Raises:
        InputError: sides of different shape, images on both sides, or fewer images than the
            roles need.
    """
    sides = dict(zip(SIDES, unify_classes(members, others), strict=True))
    subjects = read_subjects(audit, sides)
    while True:
        digested = {n: s.digests() for n, s in sides.items()}
        places, spared, notes = _roles(audit, digested, subjects)
        parts = [take(s, n, np.concatenate(places[n])) for n, s in sides.items()]
        if all(apart for _, apart in parts):
            break
    m, o = (images.with_channels(audit.data.channels) for images, _ in parts)
    _refuse_unlike(m, o)
    names = digests(m.images), digests(o.images)
    _refuse_overlap(*names, [np.concatenate(places[n]) for n in SIDES])
    notes = [*unlike_classes(members, others), *notes]
    notes += dict.fromkeys(n for images, _ in parts for n in images.notes)
    for flag, images in zip(SIDES, (m, o), strict=True):
        # Real sets hold a few; as many as stand in for lost images would tell one side.
        if count := count_uniform(images.images):
            notes.append(Note("one-colour", {"count": count, "images": len(images), "side": flag}))
    if audit.data.channels is not None:
        notes.append(
            Note("channels-chosen", {"channels": m.channels, "option": audit.data.channels})
        )
    if not others.labelled:
        notes.append(Note("no-labels"))
    if subjects is not None:
        notes.append(_settle_subjects(subjects, places))
    return Cast(
        (m, o),
        side_by_side(places["members"], "known_members", "scored_members")
        | side_by_side(places["nonmembers"], "known_nonmembers", "scored_nonmembers", "spare"),
        where=(np.concatenate(places["members"]), np.concatenate(places["nonmembers"])),
        spared=spared,
        labels=_labels(names, m, o),
        views=views,
        notes=tuple(notes),
        subject_names=() if subjects is None else subjects[0],
        subjects=None if subjects is None else (subjects[1]["members"], subjects[1]["nonmembers"]),
    )


def side_by_side(ids: Sequence[Sized], *roles: str) -> dict[str, IntArray]:
    """Places of the images of roles that lie one role after the other.

    Args:
        ids: of the images of each role, and of others after them.
        roles: their names.

    Returns:
        Role -> places.
    """
    ends = np.cumsum([0, *map(len, ids)])
    return {role: np.arange(*ends[i : i + 2]) for i, role in enumerate(roles)}


def _settle_subjects(subjects: Subjects, places: dict[str, list[IntArray]]) -> Note:
    """A note of how many images of how many subjects play which role; each known member of a
    subject in question becomes one of its own."""
    names, of = subjects
    by_role = {n: [of[n][role] for role in places[n]] for n in SIDES}
    (known, scored, _), (others, scored_others, _) = by_role.values()
    counts = [
        [(len(one), len(np.unique(one))) for one in sides]
        for sides in ((known, others), (scored, scored_others))
    ]
    alone = len({*known.tolist(), *scored.tolist()}) == 1  # its images are dealt one by one
    if alone:
        of["members"][places["members"][0]] = -1 - np.arange(len(known))
    name = names[scored[0]] if alone else None
    return Note("subjects-drawn", {"known": counts[0], "scored": counts[1], "alone": name})


def _roles(
    audit: Audit, names: dict[str, list[bytes]], subjects: Subjects | None
) -> tuple[dict[str, list[IntArray]], int, list[Note]]:
    """Side -> places in their source of the images known, of those scored, and of those that
    shadows are trained on; number of non-members without another part; notes on copies left out.
    """
    members, others = names.values()
    _refuse_overlap(members, others)
    orders, notes = [order_by_content(audit.seed, n) for n in names.values()], list[Note]()
    for flag, order, listed in zip(SIDES, orders, names.values(), strict=True):
        if len(order) < len(listed):
            copies = len(listed) - len(order)
            notes.append(Note("copies-of-side-out", {"copies": copies, "side": flag}))
    least = min(map(len, orders))
    small = audit.split.known is None and is_small_set(subjects, least)
    try:
        known, scored = (0, (least, least)) if small else role_sizes(audit, *map(len, orders))
    except InputError as error:
        reasons = [str(error), *(one.rstrip(".") for one in sentences(notes))]
        raise InputError("; ".join(reasons)) from None
    cut = [np.split(o, [known, known + n]) for o, n in zip(orders, scored, strict=True)]
    spares = bool(audit.shadow.count) and audit.shadow.data is None and not small
    if subjects is not None:
        for i, side in enumerate(SIDES):
            each = in_order(audit.seed, subjects[1][side], orders[i], names[side])
            cut[i] = cut_roles(audit, side, each, known, spares and side == "nonmembers")
    spared = len(cut[1][2])
    if not spares:
        cut[1][2] = NONE
    cut[0][2] = NONE
    return dict(zip(SIDES, cut, strict=True)), spared, notes


def _refuse_unlike(members: ImageSet, others: ImageSet) -> None:
    """Raise InputError unless the images of both sides have one shape."""
    if members.images.shape[1:] != others.images.shape[1:]:
        shapes = ["x".join(map(str, s.images.shape[1:])) for s in (members, others)]
        raise InputError(
            f"{opt('members')} are images of {shapes[0]}, {opt('nonmembers')} of {shapes[1]}: both "
            f"must have the same channels and size (size resizes both)"
        )


def unify_classes(*sets: Source) -> Iterator[Source]:
    """Give equal classes of all sets the same number.

    A data source numbers the classes that it holds. Where it lacks one, its numbers mean other
    classes.
    """
    classes, numbers = np.unique(
        np.concatenate([s.class_labels() for s in sets]), return_inverse=True
    )
    ends = np.cumsum([len(s) for s in sets])[:-1]
    for one, labels in zip(sets, np.split(numbers.astype(np.int64), ends), strict=True):
        yield replace(one, labels=labels, classes=tuple(classes.tolist()))


def _labels(names: tuple[list[bytes], list[bytes]], *sides: ImageSet) -> Labels:
    """Classes for attacks; none where they tell the side: one has none, or they share none."""
    classes = [one.class_labels() for one in sides]
    if len({*classes[0]} & {*classes[1]}) < 2:
        return Labels()
    return Labels(zip(names, classes, strict=True))


def unlike_classes(members: Source, others: Source) -> list[Note]:
    """A note for sides whose classes have no name in common.

    Args:
        members: the members' data set.
        others: the non-members' data set.

    Returns:
        One note, or none.
    """
    theirs = [sorted(set(s.class_labels().tolist())) for s in (members, others)]
    if min(map(len, theirs)) < 2 or set(theirs[0]) & set(theirs[1]):
        return []
    return [Note("classes-differ", {"members": theirs[0], "nonmembers": theirs[1]})]


def order_by_content(seed: int, names: list[bytes]) -> IntArray:
    """Places of the distinct images (the first of equal ones), in an order of seed and bytes.

    Args:
        seed: of the audit.
        names: digest of each image.

    Returns:
        (N,) places.
    """
    places = {name: i for i, name in reversed(list(enumerate(names)))}
    root = f"audit {seed} ".encode()
    ranked = sorted(places, key=lambda name: hashlib.sha256(root + name).digest())
    return np.array([places[name] for name in ranked], dtype=np.int64)


def _refuse_overlap(
    members: list[bytes], others: list[bytes], places: Sequence[IntArray] | None = None
) -> None:
    """Raise InputError where a digest is on both sides; `places` of the images if not all."""
    both = set(members) & set(others)
    if both:
        at = next(i for i, name in enumerate(members) if name in both)
        first = [at, others.index(members[at])]
        if places is not None:
            first = [int(p[i]) for p, i in zip(places, first, strict=True)]
        raise InputError(
            f"members and nonmembers share {len(both)} byte-equal images (the "
            f"first: member {first[0]}, non-member {first[1]}); an image cannot be both"
        )


def role_sizes(audit: Audit, members: int, others: int) -> tuple[int, tuple[int, int]]:
    """Known images a side, and how many members and non-members are scored.

    Args:
        audit: says how many are known and scored at most, and whether shadows take non-members.
        members: number of distinct members.
        others: of distinct non-members.

    Returns:
        Known images a side; scored members and scored non-members.

    Raises:
        InputError: too few of either for these roles.
    """
    least = min(members, others)
    known = min(least // 4, MOST_KNOWN) if audit.split.known is None else audit.split.known
    if audit.split.known is None and known < 2:
        raise InputError(
            f"{members} members and {others} non-members are too few: at least {FEW} of each are "
            f"needed, or 4 of each with {opt('split.known', 2)}"
        )
    if known < 2 or least - known < 2:
        raise InputError(
            f"{members} members and {others} non-members are too few for "
            f"{opt('split.known', known)}: at least 2 of each must be "
            "known, and 2 of each must remain to be scored"
        )
    remaining = [members - known, others - known]
    scored = [min(n, audit.split.limit or n) for n in remaining]
    if audit.shadow.count and audit.shadow.data is None:
        scored[1] = min(scored[1], remaining[1] // 2)
    return known, (scored[0], scored[1])
