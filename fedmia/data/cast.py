"""Who is who: the role of each image of a run or of an audit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedmia.data.base import AugmentLimits
from fedmia.data.classes import Labels
from fedmia.data.images import ByteArray, ImageSet, IntArray
from fedmia.records.note import Note
from fedmia.settings.errors import InputError

OF_MEMBERS = ("known_members", "scored_members", "own")  # roles of the members' side
OF_OTHERS = ("known_nonmembers", "scored_nonmembers", "spare", "test_fit", "test_eval", "public")
SCORED, KNOWN = ("scored_members", "scored_nonmembers"), ("known_members", "known_nonmembers")
ATTACKED = (*SCORED, *KNOWN)
NONE: IntArray = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Cast:
    """Each image of a run or of an audit in its role, checked when built.

    The roles are `known_members`, whose membership the attacker knows, and `scored_members`;
    `known_nonmembers` and `scored_nonmembers` likewise; `spare` non-members that shadows may be
    trained on; `own`, of an audit those of the attacker's client; and of a run `test_fit` and
    `test_eval`, which fit and test the probes, and `public`, for pre-training. What is not named
    has no images. All arrays of integers are int64.

    Attributes:
        sides: the members' images and the non-members'; in a run both are one set.
        roles: role -> (N,) places of its images in the set of its side.
        where: place in its data source of each image of either set; None: as in the set.
        parts: of a run the places of each client's images, honest clients first, malicious ones
            last; empty: an audit.
        malicious: how many of the last parts are the attackers' own (never evaluated).
        placebo_parts: one array per honest client for the placebo federation, or empty.
        owners: client of each image of the members' source, by its place; negative: none, or an
            attacker; None: not known. Of a run: `of_run`.
        whose: client that each image of the source belongs to, -1 for none; None where they belong
            to none before they are dealt, or non-members to none.
        subjects: number of the subject of each image of the members' source and of the others', by
            its place; None: they belong to none.
        subject_names: of the subjects; a number is a place here.
        labels: names of the classes of an audit's images, for attacks that need them.
        spared: of an audit, non-members that play no other part, wanted or not; None: of a run.
        views: that suit the members' source.
        received: rounds whose models the attacker had; None: all.
        notes: for the report: on classes, copies that were left out, what was converted.
        duplicates_removed: of a run, byte-equal copies left out before any role was given.
        distinct: of a run, images left after that.
    """

    sides: tuple[ImageSet, ImageSet]
    roles: Mapping[str, IntArray]
    where: tuple[IntArray, IntArray] | None = None
    parts: tuple[IntArray, ...] = ()
    malicious: int = 0
    placebo_parts: tuple[IntArray, ...] = ()
    owners: IntArray | None = None
    whose: IntArray | None = None
    subjects: tuple[IntArray, IntArray] | None = None
    subject_names: tuple[str, ...] = ()
    labels: Labels = field(default_factory=Labels)
    spared: int | None = None
    views: AugmentLimits = field(default_factory=AugmentLimits)
    received: frozenset[int] | None = None
    notes: tuple[Note, ...] = ()
    duplicates_removed: int = 0
    distinct: int = 0

    def __post_init__(self) -> None:
        if unknown := self.roles.keys() - {*OF_MEMBERS, *OF_OTHERS}:
            raise ValueError(f"no such role: {min(unknown)}")
        if not self.parts:
            return
        halves = np.concatenate([self._places("known_members"), self._places("scored_members")])
        if len(np.unique(halves)) != len(halves) or not np.isin(halves, self.members).all():
            raise ValueError("known and scored members are not distinct members")
        if len(np.unique(self.used)) != len(self.used):
            raise ValueError("an image has two roles")

    @classmethod
    def of_run(
        cls, data: ImageSet, roles: Mapping[str, IntArray], parts: tuple[IntArray, ...],
        malicious: int = 0, **rest: Any,
    ) -> Cast:  # fmt: skip
        """The cast of a run: both sides are one set, and who owns an image follows from `parts`.

        Args:
            data: the images of its source.
            roles: as of the class.
            parts: likewise.
            malicious: likewise.
            rest: other attributes, by name.

        Returns:
            The cast.

        Raises:
            ValueError: an unknown role, or an image that has two.
        """
        owners = np.full(len(data), -1, dtype=np.int64)
        for client, part in enumerate(parts[: len(parts) - malicious]):
            owners[part] = client
        return cls((data, data), roles, parts=parts, malicious=malicious, owners=owners, **rest)

    # -- the images of a role ------------------------------------------------------------------

    def pixels(self, role: str) -> Tensor:
        """The images of a role; uint8 (N, C, H, W), which nobody may change."""
        return _rows(self._set(role).images, self._places(role))

    def picture(self, role: str, at: int) -> tuple[ByteArray, str | None]:
        """The `at`th image of a role, uint8 (C, H, W), and the name of its file, where it has one.

        Args:
            role: of the image.
            at: its place among the images of the role.

        Returns:
            The pixels, and the name or None.
        """
        images, place = self._set(role), int(self._places(role)[at])
        return images.images[place], images.files[place] if images.files else None

    def ids(self, role: str) -> IntArray:
        """(N,) place of each image of a role in the data source of its side."""
        places = self._places(role)
        return places if self.where is None else self.where[role not in OF_MEMBERS][places]

    def classes(self, role: str) -> IntArray:
        """(N,) class of each image of a role, in 0..classes-1; zeros where unlabelled."""
        return self._set(role).labels[self._places(role)]

    def subject(self, role: str) -> IntArray | None:
        """(N,) number of the subject of each image of a role; None: they belong to none."""
        if self.subjects is None:
            return None
        return self.subjects[role not in OF_MEMBERS][self.ids(role)]

    def subject_sides(self, kind: str) -> tuple[IntArray, IntArray] | None:
        """`subject` of the members and of the non-members that are `known` or `scored`."""
        members, others = (self.subject(f"{kind}_{side}") for side in ("members", "nonmembers"))
        return None if members is None or others is None else (members, others)

    def group_sides(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """(n,), (m,) what the data source says of the group of each scored image, such as its
        device; None: it says nothing of one side."""
        sides = [self._set(role).columns.get("group") for role in SCORED]
        if sides[0] is None or sides[1] is None:
            return None
        return sides[0][self._places(SCORED[0])], sides[1][self._places(SCORED[1])]

    def owner(self, role: str) -> IntArray | None:
        """(N,) client of each image of a role; negative: none; None: not known."""
        if self.owners is None:
            return None
        places = self.ids(role)
        return self.owners[places] if role in OF_MEMBERS else np.full(len(places), -1)

    def kinds(self) -> tuple[IntArray, IntArray]:
        """(n,), (m,) kinds of the scored members and non-members within which sets are compared:
        the clients that they belong to, where non-members do, else their classes."""
        members, others = SCORED
        if self.whose is None:
            return self.classes(members), self.classes(others)
        return self.whose[self.ids(members)], self.whose[self.ids(others)]

    def attacked(self) -> Tensor:
        """Scored and known images: no shadow may be trained on them; uint8 (N, C, H, W)."""
        return torch.cat([self.pixels(role) for role in ATTACKED])

    @property
    def own(self) -> Tensor | None:
        """Of an audit of a run, the images of the attacker's client; None: it is no client."""
        return self.pixels("own") if "own" in self.roles else None

    @property
    def names(self) -> tuple[str, str]:
        """Of the members' data source and of the other."""
        return self.sides[0].name, self.sides[1].name

    def _places(self, role: str) -> IntArray:
        return self.roles.get(role, NONE)

    def _set(self, role: str) -> ImageSet:
        return self.sides[role not in OF_MEMBERS]

    # -- the clients of a run ------------------------------------------------------------------

    @property
    def data(self) -> ImageSet:
        """Of a run the images of its source; black where one has no role."""
        return self.sides[0]

    def with_data(self, data: ImageSet) -> Cast:
        """The same roles in another set of a run's images."""
        return replace(self, sides=(data, data))

    def client_images(self, client: int) -> Tensor:
        """The images that a client of a run trains on; uint8 (N, C, H, W)."""
        return _rows(self.data.images, self.parts[client])

    @cached_property
    def members(self) -> IntArray:
        """Union of the honest parts, in the order of client ids."""
        return np.concatenate([NONE, *self.parts[: self.honest]])

    @property
    def used(self) -> IntArray:
        """All images of a run that have a role."""
        outside = [self._places(role) for role in OF_OTHERS]
        return np.concatenate([*self.parts, *self.placebo_parts, *outside])

    @property
    def honest(self) -> int:
        """Number of honest clients: ids 0..honest-1."""
        return len(self.parts) - self.malicious

    # -- fewer images --------------------------------------------------------------------------

    def only(self, positions: Mapping[str, ArrayLike]) -> Cast:
        """The same cast with some images of some roles.

        Args:
            positions: role -> which of its images, by position or as (N,) bool.

        Returns:
            Those images in these roles, in that order; all of the other roles.
        """
        return replace(self, roles={
            **self.roles,
            **{role: self._places(role)[np.asarray(at)] for role, at in positions.items()},
        })  # fmt: skip

    def without_clients(self, gone: Collection[int]) -> Cast:
        """The same cast without the images of clients in `gone`."""
        if not gone:
            return self
        assert self.owners is not None  # of a run they are known
        stays = ~np.isin(self.owners, list(gone))
        staying = {role: stays[self._places(role)] for role in OF_MEMBERS[:2]}
        parts = tuple(p[:0] if c in gone else p for c, p in enumerate(self.parts))
        owners = np.where(stays, self.owners, -1)
        return replace(self, roles=self.only(staying).roles, parts=parts, owners=owners)

    def indispensable(self, gone: Collection[int]) -> str | None:
        """Why a run cannot do without the clients in `gone`; None if it can."""
        if any(client >= self.honest for client in gone):
            return "the attacker's client cannot be dropped"
        remaining = self.without_clients(gone)
        known, scored = (len(remaining.ids(role)) for role in OF_MEMBERS[:2])
        if len(self.members) and min(known, scored) < 2:
            return (
                f"its images cannot be dropped: {known} known and {scored} other members would be "
                "left, at least 2 of each are needed"
            )
        return None

    def without_nonmembers(self, dropped: NDArray[np.bool_], why: str) -> Cast:
        """The same cast without some scored non-members, with a note that says why.

        Args:
            dropped: (N,) bool, which scored non-members to drop; a subject goes whole.
            why: the reason, for the report's note.

        Returns:
            The rest, with a note.

        Raises:
            InputError: fewer than 2 are left.
        """
        of = self.subject("scored_nonmembers")
        if of is not None:
            dropped = np.isin(of, of[dropped])
        note = Note("nonmembers-out", {"images": int(dropped.sum()), "why": why})
        if (remaining := int((~dropped).sum())) < 2:
            raise InputError(
                f"{dropped.sum()} scored non-members are left out, {why}. {remaining} remain, at "
                "least 2 are needed"
            )
        return replace(self.only({"scored_nonmembers": ~dropped}), notes=(*self.notes, note))

    # -- the report ----------------------------------------------------------------------------

    def counts(self) -> dict[str, Any]:
        """How many images play each role, for the report."""

        def sizes(*roles: str) -> dict[str, int]:
            return {role: len(self._places(role)) for role in roles}

        if self.spared is not None:
            return {
                "members": self.names[0],
                "nonmembers": self.names[1],
                **sizes(*KNOWN, *SCORED),
                "spare_nonmembers": self.spared,
                "channels": self.sides[0].channels,
                "size": self.sides[0].size,
            }
        return {
            "distinct": self.distinct,
            "duplicates_removed": self.duplicates_removed,
            "members": len(self.members),
            **sizes(*OF_MEMBERS[:2], *OF_OTHERS[:2]),
            "attackers": sum(map(len, self.parts[self.honest :])),
            "placebo": sum(map(len, self.placebo_parts)),
            **sizes("test_fit", "test_eval", "public"),
        }


def _rows(images: ByteArray, places: IntArray) -> Tensor:
    """Images at `places`, without a copy where they lie side by side."""
    if len(places) and images.flags.writeable and (np.diff(places) == 1).all():
        return torch.from_numpy(images[places[0] : places[-1] + 1])
    return torch.from_numpy(images[places])
