"""Without non-members: images that a federation trained on only after a round are non-members of
the model of that round.

Whoever knows which image was first trained on when is an origin: a file, the members' own list, or
the recording's roster with the client of each image. The sides differ in date, so a model is a
control to which both are alike, and an attack that finds the earlier side there as well reads
something else: an earlier model, of which neither are members, else the last one, of which both
are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedmia.data.cast import Cast
from fedmia.data.images import IntArray
from fedmia.encoders.memory import InMemory
from fedmia.evaluation.audits.federation import read_rounds
from fedmia.evaluation.audits.imagetable import read_image_numbers
from fedmia.evaluation.audits.owners import check_owners, read_owners
from fedmia.evaluation.audits.sources import SIDES, Source, find_images
from fedmia.recording.branches import EARLIER, LAST
from fedmia.records.note import Note
from fedmia.rounds.kept import KeptRounds
from fedmia.settings.commands.audit import LATER, Audit
from fedmia.settings.errors import InputError, opt
from fedmia.storage.states import States

FEW = 8  # rounds that an error names
SHARE = 0.5  # of the members at least, that an earlier model as a control leaves


class TrainingOrder:
    """In which round each image was first trained on, and the round that parts the sides.

    Args:
        rounds: what was kept of the federation, as it was read.
        first: int64 (N,), the round in which each image was first trained on; equal images are
            given the earliest of theirs.
        owners: int64 (N,), the client of each image; None: not known.
        by: `file`, `list` or `clients`, which says so.
        round: whose model is audited; None: the one that leaves the most balanced sides.

    Attributes:
        chosen: whether nobody named the round.
        members: places of the images first trained on until the round; where the control is an
            earlier model, after that alone.
        later: places of those that were trained on only after the round.
        control: branch and round of the model to which both sides are alike; None: none was kept.

    Raises:
        InputError: no such round, or one that leaves a side empty.
    """

    def __init__(
        self, rounds: KeptRounds, first: IntArray, owners: IntArray | None, by: str,
        round: int | None,
    ) -> None:  # fmt: skip
        self.rounds, self.first, self.owners, self.by = rounds, first, owners, by
        self.chosen = round is None
        self.round = self._choose() if round is None else self._check(round)
        self.later = np.flatnonzero(first > self.round)
        self.control = self._find_control()
        since = 0 if self.control is None or self.control[0] == LAST else self.control[1]
        early = first <= self.round
        self.members = np.flatnonzero(early & (first > since) if since else early)

    def sides(self, images: Source) -> tuple[Source, Source]:
        """The images that were trained on until the round, and those that only were after it.

        Args:
            images: all of them.

        Returns:
            Both sides.
        """
        after = f"{images.name}, trained on only after round {self.round}"
        return images.take(self.members), replace(images.take(self.later), name=after)

    def settle(self, cast: Cast) -> Cast:
        """A cast of both sides by the places in the source that both are of.

        Args:
            cast: its images in their roles, by their places within their side.

        Returns:
            The same, with a note of what it takes for granted.
        """
        assert cast.where is not None
        branch, at = self.control or (None, 0)
        note = Note(
            "trained-on-later",
            {"round": self.round, "members": len(self.members), "later": len(self.later),
             "begins": int(self.first[self.later].min()), "chosen": self.chosen, "by": self.by,
             "control": branch, "at": at},
        )  # fmt: skip
        owners = self.owners
        if owners is not None:  # others are no clients of these members
            inside = np.isin(np.arange(len(owners)), self.members)
            owners = np.where(inside, owners, -1)
        where = self.members[cast.where[0]], self.later[cast.where[1]]
        return replace(cast, where=where, owners=owners, notes=(note, *cast.notes))

    def cut(self, rounds: KeptRounds) -> KeptRounds:
        """What an attacker saw when the round ended, and the model that is the control.

        Args:
            rounds: all of them.

        Returns:
            Those until the round.
        """
        until, read = self.round, rounds.states.__getitem__
        control = {} if self.control is None else {self.control[0]: States(self.control[1:], read)}
        return replace(
            rounds,
            states=States([r for r in rounds.states if r <= until], read),
            sent={r: sent for r, sent in rounds.sent.items() if r <= until},
            banks={},
            records={r: one for r, one in rounds.records.items() if r <= until},
            notes=None,
            remarks=tuple(one for one in rounds.remarks if one.code != "last-model"),
            controls=control,
        )

    def _parting(self) -> list[int]:
        """Rounds with images first trained on until then and after it, of which a model was kept.

        Raises:
            InputError: there are none.
        """
        low, high, models = self.first.min(), self.first.max(), [r for r in self.rounds.states if r]
        where = opt("nonmembers", LATER)
        if low == high:
            raise InputError(
                f"{where}: all {len(self.first)} images were first trained on in round {low}, so "
                f"none is later; give {opt('nonmembers', 'DATASET')} of images that none trained on"
            )
        if parting := [r for r in models if low <= r < high]:
            return parting
        raise InputError(
            f"{where}: images were first trained on in rounds {low} to {high}, and no model of "
            f"rounds {low} to {high - 1} was kept ({_listed(models)} were)"
        )

    def _find_control(self) -> tuple[str, int] | None:
        """The latest earlier model that leaves at least half of the members; else the last model,
        where that was trained on every image."""
        early, models = self.first[self.first <= self.round], [r for r in self.rounds.states if r]
        trained = [r for r in models if early.min() <= r < self.round]
        if fitting := [r for r in trained if (early > r).mean() >= SHARE]:
            return EARLIER, max(fitting)
        last = max(models)
        return (LAST, last) if last > self.round and last >= self.first.max() else None

    def _choose(self) -> int:
        """The latest of the rounds that leave the smaller side largest."""
        early = {r: int((self.first <= r).sum()) for r in self._parting()}
        return max(early, key=lambda r: (min(early[r], len(self.first) - early[r]), r))

    def _check(self, round: int) -> int:
        """The round, if it parts the images."""
        if round not in (parting := self._parting()):
            raise InputError(
                f"{opt('federation.round', round)}: must be one of {_listed(parting)}, rounds of "
                "which a model was kept, with images first trained on until then and after it"
            )
        return round


def read_order(audit: Audit, objects: InMemory | None = None) -> TrainingOrder:
    """In which round each of the audit's images was first trained on.

    Args:
        audit: names the images, the federation, and what says so.
        objects: what a Python session hands over in place of names; None: nothing.

    Returns:
        The order, with the round that is audited.

    Raises:
        InputError: nothing says so, or what does is wrong, or no round parts the images.
    """
    objects = InMemory() if objects is None else objects
    rounds, (members,) = read_rounds(audit), find_images(audit, SIDES[:1], audit.data.size)
    assert rounds is not None  # settings refuse an encoder alone
    owners = read_owners(
        audit.federation.owners if objects.owners is None else objects.owners, members
    )
    if owners is not None:
        check_owners(owners, rounds)
    for by, origin in ORIGINS.items():
        first = origin(audit, objects, rounds, members, owners)
        if first is not None:
            early = _earliest(first, members)
            return TrainingOrder(rounds, early, owners, by, audit.federation.round)
    raise InputError(
        f"{opt('nonmembers', LATER)}: nothing says when each image was trained on: "
        f"{opt('federation.order', 'FILE')} does, or {opt('federation.owners', 'FILE')} with a "
        "recording of the rounds of each client"
    )


def _from_file(
    audit: Audit, objects: InMemory, rounds: KeptRounds, members: Source, owners: IntArray | None
) -> IntArray | None:
    """The round of each image by `federation.order`; None: there is no such file or array."""
    values = audit.federation.order if objects.order is None else objects.order
    if values is None:
        return None
    first = read_image_numbers("federation.order", values, "round", members)
    if lacking := int((first < 0).sum()):
        raise InputError(
            f"{opt('federation.order')}: {lacking} of {len(first)} members have no round (the "
            f"first: image {int(np.argmax(first < 0))}); {opt('members')} are images that were "
            "trained on"
        )
    return first


def _from_list(
    audit: Audit, objects: InMemory, rounds: KeptRounds, members: Source, owners: IntArray | None
) -> IntArray | None:
    """The round of each image by the members' own list; None: it has no such column."""
    if (first := members.columns.get("federation.order")) is None:
        return None
    if (lacking := int((first < 0).sum())) > 0:
        raise InputError(
            f"{opt('federation.order')}: {lacking} of {len(first)} members have no round in their "
            f"list (the first: image {int(np.argmax(first < 0))})"
        )
    return np.asarray(first, dtype=np.int64)


def _from_roster(
    audit: Audit, objects: InMemory, rounds: KeptRounds, members: Source, owners: IntArray | None
) -> IntArray | None:
    """The first round of each image's client in the recording; None: clients are not known."""
    if owners is None or not rounds.records:
        return None
    where = opt("nonmembers", LATER)
    if not rounds.rostered:
        raise InputError(
            f"{where}: {rounds.where} has no roster (ClientApp(mods=[fedmia.flower.roster])) that "
            f"says who took part in which round: {opt('federation.order', 'FILE')} says the round "
            "of each image"
        )
    cohorts = {r: one.cohort for r, one in sorted(rounds.records.items()) if one.cohort}
    missing = sorted({*range(1, max(cohorts))} - {*cohorts})
    if missing:
        raise InputError(
            f"{where}: {rounds.where} does not say who took part in rounds {_listed(missing)}: "
            f"{opt('federation.order', 'FILE')} says the round of each image"
        )
    begun = {client: r for r, cohort in reversed(cohorts.items()) for client in cohort}
    return np.array([begun[client] for client in owners.tolist()], dtype=np.int64)


# What knows the order, by the word that a note takes; the first that does is asked.
Origin = Callable[[Audit, InMemory, KeptRounds, Source, IntArray | None], IntArray | None]
ORIGINS: dict[str, Origin] = {"file": _from_file, "list": _from_list, "clients": _from_roster}


def _earliest(first: IntArray, images: Source) -> IntArray:
    """Of equal images the earliest round: a copy that was trained on early is no later image."""
    names, earliest = images.digests(), dict[bytes, int]()
    for name, round in zip(names, first.tolist(), strict=True):
        earliest[name] = min(round, earliest.get(name, round))
    return np.array([earliest[name] for name in names], dtype=np.int64)


def _listed(rounds: list[int]) -> str:
    """A few of them."""
    return ", ".join(map(str, rounds[:FEW])) + ", .." * (len(rounds) > FEW)
