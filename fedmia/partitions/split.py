"""Who trains on what and who is scored: disjoint roles for the distinct images of a data source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedmia.data.cast import Cast
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray
from fedmia.partitions.base import Partition
from fedmia.partitions.sizes import MOST_SCORED, SplitOptions, check_clients, role_sizes
from fedmia.partitions.subjects import (
    choose_known,
    cut_whole,
    deal_subjects,
    keep_together,
    number_subjects,
)
from fedmia.seeding import rng
from fedmia.settings.errors import InputError, opt

__all__ = ["SplitOptions", "make_split"]


def make_split(
    data: ImageSet | EncodedSet,
    options: SplitOptions,
    partition: Partition,
    clients: int,
    malicious: int,
    placebo: bool,
    seed: int,
) -> Cast:
    """Give every role its images: a function of the arguments alone.

    Of each group of byte-equal images only one plays a role: the first that belongs to a client,
    else the first. The rest of the choice is one seeded permutation, so an image's role does not
    depend on its label but through `partition`.
    Members and the order of non-members do not change with the attackers or the placebo.

    Where images belong to clients (`Partition.owned`), all roles but the attackers' own images are
    drawn from what the honest clients own, so that members and non-members are of one distribution;
    each attacker holds the same share of its own images as honest clients train on; and images
    of no client play no role. Where clients train on all that they own
    (`Partition.trains_on_all`), every role but theirs is drawn from the images of no client.

    Where images belong to subjects (`fedmia.partitions.subjects`), a subject plays one role.

    Args:
        data: the source's images, decoded or not.
        options: sizes of the roles; without a number of members every image gets one.
        partition: deals members, and apart from them the reserve, to clients.
        clients: number of clients, >= 1, malicious ones included.
        malicious: how many of the last clients attack, < clients; they hold images of the reserve.
        placebo: also draw parts for a placebo federation of the honest clients.
        seed: the run's root seed.

    Returns:
        The roles, checked: no image has two. Of encoded images `decode_split` adds the pixels.

    Raises:
        InputError: too few images (with the arithmetic), fewer than 2 for a client, so many known
            members that none is left to score, images that do not tell what the partition deals by,
            or another number of members than the clients own.
    """
    check_clients(options, clients, malicious)
    honest = clients - malicious
    kinds = partition.kinds(data, clients)
    distinct = _find_distinct(data, kinds)
    order, subjects = rng(seed, "split").permutation(distinct), number_subjects(data)
    of = None if subjects is None else subjects[1]
    if of is not None:
        order = keep_together(order, of, rng(seed, "split-subjects"))
    order, theirs, own = _pools(order, kinds, honest, partition, options.members)
    takers, what = (clients, malicious), data.name
    if partition.owned:
        takers, what = (honest, 0), f"what is left of {data.name} for these clients"
    count = own if partition.trains_on_all() else options.members
    sizes = role_sizes(replace(options, members=count), *takers, placebo, len(order), what)
    most = options.scored or (MOST_SCORED if options.members is None else sizes["members"])
    check_clients(replace(options, members=sizes["members"]), clients, malicious)
    receivers = clients if placebo else malicious
    amounts = [*sizes.values()]
    if of is None:
        parts = np.split(order, np.cumsum(amounts))[:5]
    else:
        parts = cut_whole(order, of, amounts, [max(honest, 2) + 2, 4, 2, 1, receivers])
    members, nonmembers, test, public, reserve = parts
    (known_out, scored_out), (fit, evaluate) = (
        _cut_in_two(part, size, of, least)
        for part, size, least in ((nonmembers, options.known, 2), (test, len(test) // 2, 1))
    )
    if partition.trains_on_all():  # clients of the placebo are as large as those of the run
        kinds = kinds.copy()
        kinds[reserve] = np.resize(kinds[members], len(reserve))
    share = round(len(theirs) * sizes["members"] / own)
    reserve = np.concatenate([reserve, theirs[:share]])

    honest_parts = _deal_images(kinds, members, partition, honest, rng(seed, "partition"), of)
    stream = rng(seed, "partition-reserve")
    reserve_parts: tuple[IntArray, ...] = ()
    if receivers:
        reserve_parts = _deal_images(kinds, reserve, partition, receivers, stream, of)
    draw = rng(seed, "known")
    if of is None:
        known, scored = _choose_known(honest_parts, options.known, draw)
    else:
        known, scored = choose_known(honest_parts, of, options.known, draw)
    if most < len(scored):
        scored = np.sort(rng(seed, "scored").choice(scored, most, replace=False))
    return Cast.of_run(
        data,  # type: ignore[arg-type]
        {
            "known_members": known,
            "scored_members": scored,
            "known_nonmembers": np.sort(known_out),
            "scored_nonmembers": np.sort(scored_out),
            "test_fit": np.sort(fit),
            "test_eval": np.sort(evaluate),
            "public": np.sort(public),
        },
        parts=(*honest_parts, *reserve_parts[receivers - malicious :]),
        malicious=malicious,
        placebo_parts=reserve_parts[:honest] if placebo else (),
        whose=kinds if partition.owned and not partition.trains_on_all() else None,
        duplicates_removed=len(data) - len(distinct),
        distinct=len(distinct),
        subjects=None if of is None else (of, of),
        subject_names=() if subjects is None else subjects[0],
    )


def _cut_in_two(part: IntArray, size: int, of: IntArray | None, least: int) -> list[IntArray]:
    """So many of the images first, and the others; as near as whole subjects allow."""
    if of is None:
        return np.split(part, [size])
    return cut_whole(part, of, [size, len(part) - size], [least, least])


def _find_distinct(data: ImageSet | EncodedSet, kinds: IntArray) -> IntArray:
    """One of each group of byte-equal images, ascending: the first that is of a kind, else the
    first."""
    names = data.digests()
    places = np.argsort(kinds < 0, kind="stable").tolist()
    first = {names[at]: at for at in reversed(places)}
    return np.array(sorted(first.values()), dtype=np.int64)


def _pools(
    order: IntArray, kinds: IntArray, honest: int, partition: Partition, members: int | None
) -> tuple[IntArray, IntArray, int]:
    """(images of every role but the attackers' own, these, how many of the former honest clients
    own), in the given order; what honest clients own stands first.

    Raises:
        InputError: clients train on all that they own, which is another number than `members`.
    """
    if not partition.owned:
        return order, order[:0], len(order)
    whose = kinds[order]
    own, theirs = order[(whose >= 0) & (whose < honest)], order[whose >= honest]
    if not partition.trains_on_all():
        return own, theirs, len(own)
    if members not in (None, len(own)):
        raise InputError(
            f"the honest clients own {len(own)} distinct images and train on all: "
            f"{opt('split.members')} must be {len(own)}, got {members}"
        )
    return np.concatenate([own, order[whose < 0]]), theirs, len(own)


def decode_split(encoded: EncodedSet, split: Callable[[EncodedSet], Cast]) -> Cast:
    """Decode the images that have a role.

    Equal images may be encoded differently, so copies show only now. Of those only the first keeps
    a role, and all roles are given anew.

    Args:
        encoded: images that are not decoded yet.
        split: gives every image its role.

    Returns:
        The decoded images in their roles.
    """
    while True:
        roles = split(encoded)
        data, apart = encoded.decode(np.sort(roles.used))
        if apart:
            return roles.with_data(data)


def _deal_images(
    kinds: IntArray,
    images: IntArray,
    partition: Partition,
    clients: int,
    generator: np.random.Generator,
    of: IntArray | None,
) -> tuple[IntArray, ...]:
    """`images` dealt to clients, as sorted index arrays of at least 2 each; `of`: their subjects,
    which belong to one client where it does not own images."""
    if of is None or partition.owned:
        positions = partition(kinds[images], clients, generator)
    else:
        positions = deal_subjects(images, kinds, of, partition, clients, generator)
    for client, part in enumerate(positions):
        if len(part) < 2:
            raise InputError(
                f"{type(partition).__name__.lower()} partition of {len(images)} images gives "
                f"client {client} of {clients} {len(part)} images, at least 2 needed"
            )
    return tuple(np.sort(images[p]) for p in positions)


def _choose_known(
    parts: tuple[IntArray, ...], known: int, generator: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """`known` members, each as likely as any other, and all the others; both sorted.

    Large clients give more of them, so scored members keep the classes of all members. Of each
    client the member that comes last in the order of the draw is never drawn.
    """
    members, owner = np.concatenate(parts), np.repeat(np.arange(len(parts)), [*map(len, parts)])
    order = generator.permutation(len(members))[::-1]  # so that `unique` meets the last one first
    last = np.unique(owner[order], return_index=True)[1]
    chosen = np.delete(order, last)[::-1][:known]
    return np.sort(members[chosen]), np.sort(np.delete(members, chosen))
