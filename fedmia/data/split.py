"""Who trains on what and who is scored: disjoint roles for the distinct images of a data source."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from fedmia.data._sizes import SplitOptions, check_clients, role_sizes
from fedmia.data.images import ImageSet, IntArray, digests
from fedmia.errors import InputError
from fedmia.partitions.base import Partition
from fedmia.seeding import rng

__all__ = ["Split", "SplitOptions", "make_split"]


@dataclass(frozen=True, eq=False)
class Split:
    """Roles of images as int64 index arrays into one ImageSet, checked when built.

    Attributes:
        parts: one array per client id, honest clients first, malicious ones last.
        malicious: how many of the last parts are the attackers' own (never evaluated).
        placebo_parts: one array per honest client for the placebo federation, or empty.
        members: union of the honest parts, in the order of client ids.
        owner: client id of each of `members`.
        known_members: members whose membership the attacker knows.
        scored_members: the other members.
        known_nonmembers: non-members that the attacker knows to be such.
        scored_nonmembers: the other non-members.
        test_fit: images that fit the probes.
        test_eval: images that test the probes.
        public: images for public pre-training.
        duplicates_removed: byte-equal copies left out before any role was given.
        distinct: images left after that.
    """

    parts: tuple[IntArray, ...]
    malicious: int
    placebo_parts: tuple[IntArray, ...]
    members: IntArray
    owner: IntArray
    known_members: IntArray
    scored_members: IntArray
    known_nonmembers: IntArray
    scored_nonmembers: IntArray
    test_fit: IntArray
    test_eval: IntArray
    public: IntArray
    duplicates_removed: int
    distinct: int

    def __post_init__(self) -> None:
        honest = self.parts[: self.honest]
        if not np.array_equal(self.members, np.concatenate(honest)):
            raise ValueError("members are not the union of the honest parts")
        if not np.array_equal(self.owner, np.repeat(np.arange(self.honest), [*map(len, honest)])):
            raise ValueError("owner does not name the client of each member")
        halves = np.concatenate([self.known_members, self.scored_members])
        if not np.array_equal(np.sort(halves), np.sort(self.members)):
            raise ValueError("known and scored members do not make up the members")
        outside = self.known_nonmembers, self.scored_nonmembers, self.test_fit, self.test_eval
        everything = np.concatenate([*self.parts, *self.placebo_parts, *outside, self.public])
        if len(np.unique(everything)) != len(everything):
            raise ValueError("an image has two roles")

    @property
    def honest(self) -> int:
        """Number of honest clients: ids 0..honest-1."""
        return len(self.parts) - self.malicious

    def without(self, gone: Collection[int]) -> Split:
        """The same less the images of the clients in `gone`, which are then of no role."""
        if not gone:
            return self
        stays = ~np.isin(self.owner, list(gone))
        left = self.members[stays]
        return replace(
            self,
            parts=tuple(p[:0] if c in gone else p for c, p in enumerate(self.parts)),
            members=left,
            owner=self.owner[stays],
            known_members=self.known_members[np.isin(self.known_members, left)],
            scored_members=self.scored_members[np.isin(self.scored_members, left)],
        )

    def counts(self) -> dict[str, int]:
        """How many images play each role, for the report."""
        return {
            "distinct": self.distinct,
            "duplicates_removed": self.duplicates_removed,
            "members": len(self.members),
            "known_members": len(self.known_members),
            "scored_members": len(self.scored_members),
            "known_nonmembers": len(self.known_nonmembers),
            "scored_nonmembers": len(self.scored_nonmembers),
            "attackers": sum(map(len, self.parts[self.honest :])),
            "placebo": sum(map(len, self.placebo_parts)),
            "test_fit": len(self.test_fit),
            "test_eval": len(self.test_eval),
            "public": len(self.public),
        }


def make_split(
    data: ImageSet,
    options: SplitOptions,
    partition: Partition,
    clients: int,
    malicious: int,
    placebo: bool,
    seed: int,
) -> Split:
    """Give every role its images: a function of the arguments alone.

    Of each group of byte-equal images only the first plays a role. The rest of the choice is one
    seeded permutation, so an image's role does not depend on its label but through `partition`.
    Members and the order of non-members do not change with the attackers or the placebo.

    Args:
        data: the source's images.
        options: sizes of the roles.
        partition: deals members, and apart from them the reserve, to clients.
        clients: number of clients, >= 1, malicious ones included.
        malicious: how many of the last clients attack; they hold images of the reserve.
        placebo: also draw parts for a placebo federation of the honest clients.
        seed: the run's root seed.

    Raises:
        InputError: too few images (with the arithmetic), fewer than 2 for a client, no honest
            client, or so many known members that none is left to score.
    """
    check_clients(options, clients, malicious)
    honest = clients - malicious
    # The first of each group of byte-equal images, ascending.
    first = {name: at for at, name in reversed([*enumerate(digests(data.images))])}
    pool = np.array(sorted(first.values()), dtype=np.int64)
    sizes = role_sizes(options, clients, malicious, placebo, len(pool), data.name)
    order = rng(seed, "split").permutation(pool)
    ends = np.cumsum([sizes.members, sizes.nonmembers, sizes.test, sizes.public, sizes.reserve])
    members, nonmembers, test, public, reserve = np.split(order, ends)[:5]

    honest_parts = _deal(data, members, partition, honest, rng(seed, "partition"))
    drawn = clients if placebo else malicious
    stream = rng(seed, "partition-reserve")
    dealt = _deal(data, reserve, partition, drawn, stream) if drawn else ()
    known, scored = _known(honest_parts, options.known, rng(seed, "known"))
    return Split(
        parts=(*honest_parts, *dealt[drawn - malicious :]),
        malicious=malicious,
        placebo_parts=dealt[:honest] if placebo else (),
        members=np.concatenate(honest_parts),
        owner=np.repeat(np.arange(honest), [*map(len, honest_parts)]),
        known_members=known,
        scored_members=scored,
        known_nonmembers=np.sort(nonmembers[: options.known]),
        scored_nonmembers=np.sort(nonmembers[options.known :]),
        test_fit=np.sort(test[: len(test) // 2]),
        test_eval=np.sort(test[len(test) // 2 :]),
        public=np.sort(public),
        duplicates_removed=len(data) - len(pool),
        distinct=len(pool),
    )


def _deal(
    data: ImageSet,
    images: IntArray,
    partition: Partition,
    clients: int,
    generator: np.random.Generator,
) -> tuple[IntArray, ...]:
    """`images` dealt to clients, as sorted index arrays of at least 2 each."""
    positions = partition(data.labels[images], clients, generator)
    for client, part in enumerate(positions):
        if len(part) < 2:
            raise InputError(
                f"{type(partition).__name__.lower()} partition of {len(images)} images gives "
                f"client {client} of {clients} {len(part)} images, at least 2 needed"
            )
    return tuple(np.sort(images[p]) for p in positions)


def _known(
    parts: tuple[IntArray, ...], known: int, generator: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """`known` members drawn as evenly over clients as their sizes allow, and all the others.

    One member of each client is never drawn. Both arrays are sorted.
    """
    quota = np.zeros(len(parts), np.int64)
    room = np.array([len(p) - 1 for p in parts])
    while (short := known - int(quota.sum())) > 0:
        able = np.flatnonzero(quota < room)
        # A whole round for every client with room, or, in the last round, a fair draw of some.
        quota[able if short >= len(able) else generator.permutation(able)[:short]] += 1
    shuffled = [generator.permutation(p) for p in parts]
    drawn = [p[:q] for p, q in zip(shuffled, quota, strict=True)]
    rest = [p[q:] for p, q in zip(shuffled, quota, strict=True)]
    return np.sort(np.concatenate(drawn)), np.sort(np.concatenate(rest))
