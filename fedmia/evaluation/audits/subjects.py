"""Which subject, such as a patient or a customer, each image of an audit belongs to.

A subject has one role: an attacker that knows some of its images knows the others too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.attacks.base import DatasetAttack
from fedmia.data.cast import Cast
from fedmia.data.images import IntArray
from fedmia.evaluation.audits.imagetable import read_image_table
from fedmia.evaluation.audits.sources import Source
from fedmia.settings import registry
from fedmia.settings.commands.audit import Audit
from fedmia.settings.errors import InputError, opt
from fedmia.settings.values import disk_path, escape_name
from fedmia.statistics.subjects import nearest_end
from fedmia.untrusted.arrays import read_npy
from fedmia.untrusted.limits import unreadable

LEAST = 2  # subjects of a role, a side
FEW = 8  # images of a side, under which none are known without `--known`


# Names of the subjects, and by side the number of each image's, its place among the names.
Subjects = tuple[tuple[str, ...], dict[str, IntArray]]


def _read_arrays(files: str, counts: Mapping[str, int]) -> dict[str, list[Any]]:
    """The subject of each image of each side, by an array a side of text or integers."""
    where, paths = opt("groups", files), files.split(",")
    if len(paths) != len(counts):
        raise InputError(f"{where}: {len(paths)} files, must be two: MEMBERS.npy,OTHERS.npy")
    read = dict[str, list[Any]]()
    for path, (side, count) in zip(paths, counts.items(), strict=True):
        with unreadable(f"{where}: '{path}' cannot be read"):
            array = read_npy(f"{where}: '{path}'", Path(disk_path(path)))
            values = array.tolist()
        if array.dtype.kind not in "iuU" or array.ndim != 1:
            raise InputError(
                f"{where}: '{path}' has {array.dtype} {array.shape}, must be text or integers, a "
                "row of them"
            )
        if len(values) != count:
            raise InputError(f"{where}: '{path}' has {len(values)} subjects for {count} {side}")
        read[side] = [None if value == "" else value for value in values]
    return read


def in_order(seed: int, of: IntArray, order: IntArray, names: list[bytes]) -> list[IntArray]:
    """Places of the images of each subject, in an order of the seed and of the images' bytes.

    Args:
        seed: of the audit.
        of: (N,) subject of each image of a side.
        order: (M,) places of its distinct images, in the order that a subject's keep.
        names: digest of each image.

    Returns:
        Places by subject.
    """
    images: dict[int, list[int]] = {}
    for place in order.tolist():
        images.setdefault(int(of[place]), []).append(place)
    root = f"audit subjects {seed} ".encode()

    def rank(places: list[int]) -> bytes:
        return hashlib.sha256(root + b"".join(sorted(names[i] for i in places))).digest()

    return [np.array(places) for places in sorted(images.values(), key=rank)]


def read_subjects(audit: Audit, sides: Mapping[str, Source]) -> Subjects | None:
    """The subject of each image, as a column of its source or a file tells.

    Args:
        audit: names the column, which the sources have handed over, a CSV file of lines
            `side,image,subject`, or an array a side, `MEMBERS.npy,OTHERS.npy`.
        sides: the images of each side.

    Returns:
        The subjects; None: images belong to none.

    Raises:
        InputError: no such column or file, an image without a subject, or a subject on both sides.
    """
    if audit.groups is None:
        return None
    where, read = opt("groups", audit.groups), dict[str, list[Any]]()
    if audit.groups.endswith(".npy"):
        read |= _read_arrays(audit.groups, {side: len(images) for side, images in sides.items()})
    elif audit.subject_column is None:
        read |= read_image_table("groups", Path(audit.groups), "subject", sides, bool)
    else:
        for side, images in sides.items():
            column = images.columns.get("groups", np.full(len(images), None))
            read[side] = column.tolist()
    for side, values in read.items():
        if None in values:
            raise InputError(
                f"{where}: {values.count(None)} of {len(values)} {side} have no subject (the "
                f"first: image {values.index(None)})"
            )
    texts = {side: [escape_name(str(value)) for value in values] for side, values in read.items()}
    both = sorted(set.intersection(*map(set, texts.values())))
    if both:
        more = f", and {len(both) - 1} more likewise" * (len(both) > 1)
        raise InputError(f"{where}: subject '{both[0]}' is among the members and among the "
                         f"non-members{more}; a subject cannot be both")  # fmt: skip
    numbers = {name: i for i, name in enumerate(sorted(set().union(*texts.values())))}
    of = {side: np.array([numbers[name] for name in v], np.int64) for side, v in texts.items()}
    return tuple(numbers), of


def is_small_set(subjects: Subjects | None, images: int) -> bool:
    """Whether all members are of one subject with too few images for an attacker to know some.

    Args:
        subjects: of both sides; None: images belong to none.
        images: on the smaller side.

    Returns:
        Whether the subject is scored whole, and nothing known of it.
    """
    return subjects is not None and len(np.unique(subjects[1]["members"])) == 1 and images < FEW


def refuse_single_images(cast: Cast, name: str) -> str | None:
    """Why an attack on single images has no place where nothing is known of the only subject.

    Args:
        cast: the images in their roles.
        name: of the attack.

    Returns:
        The reason; None: it has one.
    """
    whole = issubclass(registry.load("attack", name), DatasetAttack)
    if whole or cast.subjects is None or len(cast.ids("known_members")):
        return None
    return (
        "judges single images, and all members are of one subject, so no interval shows a leak; "
        "attacks on whole sets judge the subject"
    )


def cut_roles(
    audit: Audit, side: str, subjects: list[IntArray], known: int, spares: bool
) -> list[IntArray]:
    """Places of the known, the scored and the other images of a side, no subject in two of them.

    The members may be of one subject, in question as a whole: its images are dealt one by one.

    Args:
        audit: says how many are known and scored; images, met as nearly as whole subjects allow.
        side: `members` or `nonmembers`.
        subjects: places of each subject's images, in the order in which they are dealt.
        known: number of known images; 0: none of a subject in question, and as few as may be of
            the others.
        spares: whether half of the others are for the shadows.

    Returns:
        Places of the images in each role.

    Raises:
        InputError: too few subjects.
    """
    sizes, least = [len(places) for places in subjects], LEAST
    whole = len(subjects) == 1 and side == "members"
    if whole:
        least = LEAST if known else 0
        sizes, known = [1] * sizes[0], known if audit.split.known else least
    elif len(subjects) < (needed := (2 + spares) * LEAST):
        alone = ", or members of one subject" if side == "members" else ""
        raise InputError(
            f"{opt('groups', audit.groups)}: {len(subjects)} subjects of the {side} are too few: "
            f"at least {needed} are needed, {LEAST} a role{alone}"
        )
    first = nearest_end(sizes, known, least, (1 + spares) * least)
    left = sum(sizes[first:])
    target = min(audit.split.limit or left, left // 2 if spares else left)
    second = first + nearest_end(sizes[first:], target, max(least, 1), spares * least)
    if whole:
        return np.split(subjects[0], [first, second])
    none = np.zeros(0, np.int64)
    cuts = subjects[:first], subjects[first:second], subjects[second:]
    return [np.concatenate([none, *cut]) for cut in cuts]
