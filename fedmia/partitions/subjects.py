"""Images of one subject, such as a patient, play one role: sizes of roles, known images and clients
are met as nearly as whole subjects allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray
from fedmia.partitions.base import Partition
from fedmia.settings.errors import InputError, opt
from fedmia.settings.values import escape_name
from fedmia.statistics.subjects import nearest_end

COLUMN = "groups"  # the option that names the column
LEAST = 2  # subjects of a role that is scored or known


def number_subjects(data: ImageSet | EncodedSet) -> tuple[tuple[str, ...], IntArray] | None:
    """The subject of each image.

    Args:
        data: images, or their encoded form.

    Returns:
        The names of the subjects, and (N,) the place of each image's among them; None: the images
        belong to none.

    Raises:
        InputError: two equal images of two subjects.
    """
    if (column := data.columns.get(COLUMN)) is None:
        return None
    texts = [escape_name(str(value)) for value in column.tolist()]
    names, of = np.unique(np.array(texts), return_inverse=True)
    first = dict[bytes, int]()
    for place, digest in enumerate(data.digests()):
        twin = first.setdefault(digest, place)
        if of[twin] != of[place]:
            raise InputError(
                f"{opt(COLUMN)}: images {twin} and {place} of {data.name} are equal, and belong to "
                f"{texts[twin]} and {texts[place]}"
            )
    return tuple(names.tolist()), of.astype(np.int64)


def keep_together(order: IntArray, of: IntArray, generator: np.random.Generator) -> IntArray:
    """The images of one subject side by side, subjects in an order that is drawn: that of their
    images would put those with many first.

    Args:
        order: (n,) places of images.
        of: (N,) subject of each image of the source.
        generator: of the draw.

    Returns:
        (n,) the same places.
    """
    rank = generator.permutation(int(of.max(initial=-1)) + 1)
    return order[np.argsort(rank[of[order]], kind="stable")]


def cut_whole(
    order: IntArray, of: IntArray, sizes: Sequence[int], least: Sequence[int]
) -> list[IntArray]:
    """Parts of an order of images, each of about so many, that no subject has two of.

    Args:
        order: (n,) places of images, those of a subject side by side.
        of: (N,) subject of each image of the source.
        sizes: images of each part; 0: it has none.
        least: fewest subjects of each part that has any.

    Returns:
        Places of the images of each part.

    Raises:
        InputError: too few subjects.
    """
    starts = np.flatnonzero(np.diff(of[order], prepend=-1))
    counts = np.diff([*starts, len(order)]).tolist()
    fewest = [at_least if size else 0 for size, at_least in zip(sizes, least, strict=True)]
    if len(counts) < sum(fewest):
        raise InputError(
            f"{opt(COLUMN)}: {len(counts)} subjects are too few: at least {sum(fewest)} are "
            f"needed, {LEAST} for each side that is known or scored, for the probes, and for each "
            "client"
        )
    parts, begin = list[IntArray](), 0
    for at, size in enumerate(sizes):
        rest = sum(fewest[at + 1 :])
        end = begin
        if size:
            end += nearest_end(counts[begin:], size, fewest[at], rest)
        places = [*starts, len(order)]
        parts.append(order[places[begin] : places[end]])
        begin = end
    return parts


def choose_known(
    parts: Sequence[IntArray], of: IntArray, known: int, generator: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """About `known` members, whole subjects, and all the others; both sorted.

    Of each client the subject that comes last in the order of the draw is never drawn.

    Args:
        parts: images of each client.
        of: (N,) subject of each image of the source.
        known: number of images.
        generator: of the draw.

    Returns:
        Places of the known members, and of the others.

    Raises:
        InputError: too few subjects.
    """
    members = np.concatenate(parts)
    drawn = generator.permutation(np.unique(of[members])).tolist()
    rank = {subject: at for at, subject in enumerate(drawn)}
    last = {max(rank[subject] for subject in of[part].tolist()) for part in parts if len(part)}
    free = [subject for subject in drawn if rank[subject] not in last]
    if len(free) < LEAST:
        raise InputError(
            f"{opt(COLUMN)}: of {len(drawn)} subjects of the members one of each client stays "
            f"scored, which leaves {len(free)} to be known, at least {LEAST} needed"
        )
    counts = Counter(of[members].tolist())
    take = nearest_end([counts[subject] for subject in free], known, LEAST, 0)
    is_known = np.isin(of[members], free[:take])
    return np.sort(members[is_known]), np.sort(members[~is_known])


def deal_subjects(
    images: IntArray, kinds: IntArray, of: IntArray, partition: Partition, clients: int,
    generator: np.random.Generator,
) -> list[IntArray]:  # fmt: skip
    """Images dealt by whole subjects, each by the class that most of its images have.

    Args:
        images: (n,) places of the images to be dealt.
        kinds: (N,) class of each image of the source.
        of: (N,) subject of each.
        partition: deals subjects as it would deal images.
        clients: number of clients.
        generator: of the draw.

    Returns:
        Positions among `images`, a client each.

    Raises:
        InputError: too few subjects for the clients under this law.
    """
    at = np.unique(of[images], return_inverse=True)[1]
    most = np.array([np.bincount(kinds[images[at == one]]).argmax() for one in range(at.max() + 1)])
    return [np.flatnonzero(np.isin(at, part)) for part in partition(most, clients, generator)]
