"""The images of an audit and their roles: known and scored members and non-members, and a rest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.config.audit import Audit
from fedmia.data.base import Views
from fedmia.data.images import NO_PROBES, ImageSet, IntArray, count_uniform, digests
from fedmia.evaluation.audits.owners import read_owners
from fedmia.evaluation.audits.sources import Source, find_images, source_views, take
from fedmia.evaluation.audits.subjects import AuditSubjects, cut_roles, read_subjects
from fedmia.options.errors import InputError, opt
from fedmia.records import ImageSubjects
from fedmia.threat import Labels

SIDES = ("members", "nonmembers")
MOST_KNOWN = 500  # a side, where `--known` leaves it open


@dataclass(frozen=True)
class AuditSplit:
    """Which images are known and which are scored; all uint8 (N, C, H, W).

    Attributes:
        known_members: known members; uint8 (K, C, H, W).
        known_nonmembers: known non-members; uint8 (K, C, H, W).
        scored_members: members that attacks score.
        scored_nonmembers: non-members that attacks score.
        member_ids, nonmember_ids: places of the scored images in their data sources.
        member_labels, nonmember_labels: class of each scored image, zeros where unlabelled.
        spare: non-members that play no other part, where shadows are trained on them; else none.
        labels: names of the classes of all these images, for attacks that need them.
        names: of the two data sources.
        spared: how many they are, wanted or not.
        subjects: of the scored images; None: they belong to none.
        known_subjects: numbers of those of the known members and of the known non-members.
        spare_subjects: likewise of the spare non-members.
        views: of the members' source.
        notes: on classes, copies that were left out, and what was converted or resized.
        owners: client of each image of the members' source, by its place; None: not known.
        own: of a federation's run, the images of the attacker's client; None: it is no client.
        received: of a federation's run, rounds whose models the attacker had; None: all.
    """

    known_members: Tensor
    known_nonmembers: Tensor
    scored_members: Tensor
    scored_nonmembers: Tensor
    member_ids: IntArray
    nonmember_ids: IntArray
    member_labels: IntArray
    nonmember_labels: IntArray
    spare: Tensor
    labels: Labels
    names: tuple[str, str]
    spared: int
    subjects: ImageSubjects | None = None
    known_subjects: tuple[IntArray, IntArray] | None = None
    spare_subjects: IntArray | None = None
    views: Views = field(default_factory=Views)
    notes: tuple[str, ...] = ()
    owners: IntArray | None = None
    own: Tensor | None = None
    received: frozenset[int] | None = None

    def attacked(self) -> Tensor:
        """Scored and known images: no shadow may be trained on them."""
        return torch.cat([
            self.scored_members, self.scored_nonmembers,
            self.known_members, self.known_nonmembers,
        ])  # fmt: skip

    def drop_nonmembers(self, dropped: NDArray[np.bool_], why: str) -> AuditSplit:
        """Drop some scored non-members, with a note that says why.

        Args:
            dropped: (N,) bool, which scored non-members to drop.
            why: the reason, for the report's note.

        Returns:
            The rest, with a note.

        Raises:
            InputError: fewer than 2 are left.
        """
        own = self.subjects
        if own is not None:  # a subject goes whole
            dropped = np.isin(own.nonmembers, own.nonmembers[dropped])
        remaining = np.flatnonzero(~dropped)
        note = f"{int(dropped.sum())} scored non-members are left out, {why}."
        if len(remaining) < 2:
            raise InputError(f"{note} {len(remaining)} remain, at least 2 are needed")
        return replace(
            self,
            scored_nonmembers=self.scored_nonmembers[remaining],
            nonmember_ids=self.nonmember_ids[remaining],
            nonmember_labels=self.nonmember_labels[remaining],
            subjects=own and replace(own, nonmembers=own.nonmembers[remaining]),
            notes=(*self.notes, note),
        )

    def counts(self) -> dict[str, Any]:
        """How many images play each role, for the report."""
        return {
            "members": self.names[0],
            "nonmembers": self.names[1],
            "known_members": len(self.known_members),
            "known_nonmembers": len(self.known_nonmembers),
            "scored_members": len(self.scored_members),
            "scored_nonmembers": len(self.scored_nonmembers),
            "spare_nonmembers": self.spared,
            "channels": int(self.scored_members.shape[1]),
            "size": int(self.scored_members.shape[2]),
        }


def deal(audit: Audit, size: int | None, owners: object = None) -> AuditSplit:
    """Load both sides, and give every image its role.

    Args:
        size: side of an image in pixels; None keeps the source's.
        owners: integers (N,), the client of each member; None: as the settings say.

    Returns:
        The images in their roles.

    Raises:
        InputError: a source that cannot be read, or images that `deal_sets` refuses.
    """
    members = find_images(audit, "members", size)
    others = find_images(audit, "nonmembers", size)
    views = source_views(str(audit.members), audit.members_options)
    split = deal_sets(audit, members, others, views)
    return replace(split, owners=read_owners(audit.owners if owners is None else owners, members))


def deal_sets(audit: Audit, members: Source, others: Source, views: Views) -> AuditSplit:
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
        roles = _roles(audit, {n: s.digests() for n, s in sides.items()}, subjects)
        parts = [take(s, n, np.concatenate(roles.of[n])) for n, s in sides.items()]
        if all(apart for _, apart in parts):
            break
    m, o = (images.with_channels(audit.channels) for images, _ in parts)
    _refuse_unlike(m, o)
    names = digests(m.images), digests(o.images)
    _refuse_overlap(*names, [np.concatenate(roles.of[n]) for n in SIDES])
    notes = [*unlike_classes(members, others), *roles.notes]
    notes += dict.fromkeys(n for images, _ in parts for n in images.notes)
    for flag, images in zip(SIDES, (m, o), strict=True):
        # Real sets hold a few; as many as stand in for lost images would tell one side.
        if count := count_uniform(images.images):
            notes.append(f"{count} of the {len(images)} {flag} have one colour throughout.")
    if audit.channels is not None:
        notes.append(
            f"The images were audited in {m.channels} channels: {opt('channels', audit.channels)}."
        )
    if not others.labelled:
        notes.append(NO_PROBES)
    first, known = (len(roles.of[n][0]) for n in SIDES)
    at = known + len(roles.of["nonmembers"][1])
    of_subjects: dict[str, Any] = {}
    if subjects is not None:
        of_subjects, note = _subjects_of(subjects, roles)
        notes.append(note)
    return AuditSplit(
        known_members=torch.from_numpy(m.images[:first]),
        known_nonmembers=torch.from_numpy(o.images[:known]),
        scored_members=torch.from_numpy(m.images[first:]),
        scored_nonmembers=torch.from_numpy(o.images[known:at]),
        member_ids=roles.of["members"][1],
        nonmember_ids=roles.of["nonmembers"][1],
        member_labels=m.labels[first:],
        nonmember_labels=o.labels[known:at],
        spare=torch.from_numpy(o.images[at:]),
        spared=roles.spared,
        labels=_labels(names, m, o),
        names=(m.name, o.name),
        views=views,
        notes=tuple(notes),
        **of_subjects,
    )


def _subjects_of(subjects: AuditSubjects, roles: _Roles) -> tuple[dict[str, Any], str]:
    """The fields of `AuditSplit` that say which subject an image of a role belongs to, and a note
    of how many images of how many play which."""
    of = {n: [subjects.of[n][places] for places in roles.of[n]] for n in SIDES}
    (known, scored, _), (others, scored_others, spare) = of.values()
    counts = [
        f"{len(one)} {what} of {len(np.unique(one))}"
        for one, what in ((known, "members"), (others, "non-members"), (scored, "members"),
                          (scored_others, "non-members"))
    ]  # fmt: skip
    note = (
        "Images belong to subjects, which are drawn whole: known {} and {}, scored {} and {} "
        "subjects. Intervals and tests are by subject."
    ).format(*counts)
    if len({*known.tolist(), *scored.tolist()}) == 1:  # its images are dealt one by one
        note += f" All members are of {subjects.names[scored[0]]}, in question as a whole."
        known = -1 - np.arange(len(known))
    fields = {
        "subjects": ImageSubjects(subjects.names, scored, scored_others),
        "known_subjects": (known, others),
        "spare_subjects": spare,
    }
    return fields, note


class _Roles(NamedTuple):
    """Places of the images in their sources.

    Attributes:
        of: side -> those known, those scored, and those that shadows are trained on.
        spared: non-members without another part.
        notes: copies that were left out.
    """

    of: dict[str, list[IntArray]]
    spared: int
    notes: list[str]


def _roles(audit: Audit, names: dict[str, list[bytes]], subjects: AuditSubjects | None) -> _Roles:
    """Roles of the images with these digests."""
    members, others = names.values()
    _refuse_overlap(members, others)
    orders, notes = [order_by_content(audit.seed, n) for n in names.values()], []
    for flag, order, listed in zip(SIDES, orders, names.values(), strict=True):
        if len(order) < len(listed):
            notes.append(f"{len(listed) - len(order)} byte-equal copies among the {flag} left out.")
    try:
        known, scored = role_sizes(audit, *map(len, orders))
    except InputError as error:
        raise InputError("; ".join([str(error), *(note.rstrip(".") for note in notes)])) from None
    cut = [np.split(o, [known, known + n]) for o, n in zip(orders, scored, strict=True)]
    spares = bool(audit.shadows) and audit.shadow_data is None
    if subjects is not None:
        for i, side in enumerate(SIDES):
            each = subjects.in_order(audit.seed, side, orders[i], names[side])
            cut[i] = cut_roles(audit, side, each, known, spares and side == "nonmembers")
    spared = len(cut[1][2])
    if not spares:
        cut[1][2] = cut[1][2][:0]
    cut[0][2] = cut[0][2][:0]
    return _Roles(dict(zip(SIDES, cut, strict=True)), spared, notes)


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


def unlike_classes(members: Source, others: Source) -> list[str]:
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
    examples = [", ".join(t[:3]) + (", .." if len(t) > 3 else "") for t in theirs]
    return [
        f"No class of the members ({examples[0]}) is among those of the non-members "
        f"({examples[1]}): they are taken for different ones."
    ]


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
    known = min(least // 4, MOST_KNOWN) if audit.known is None else audit.known
    if audit.known is None and known < 2:
        raise InputError(
            f"{members} members and {others} non-members are too few: at least 8 of each are "
            f"needed, or 4 of each with {opt('known', 2)}"
        )
    if known < 2 or least - known < 2:
        raise InputError(
            f"{members} members and {others} non-members are too few for {opt('known', known)}: at "
            "least 2 of each must be known, and 2 of each must remain to be scored"
        )
    remaining = [members - known, others - known]
    scored = [min(n, audit.limit or n) for n in remaining]
    if audit.shadows and audit.shadow_data is None:
        scored[1] = min(scored[1], remaining[1] // 2)
    return known, (scored[0], scored[1])
