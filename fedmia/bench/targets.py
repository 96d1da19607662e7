"""The frozen targets of a bench: their cards, and their images in their roles, by SHA-256."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmia
from fedmia import __version__
from fedmia.data.cast import Cast
from fedmia.data.classes import ClassNames, Labels
from fedmia.data.decoding import resize_all
from fedmia.data.images import UNLABELLED, ByteArray, ImageSet, digests
from fedmia.evaluation.audits.images import side_by_side
from fedmia.recording.branches import MAIN
from fedmia.recording.files import digest_of
from fedmia.recording.format import Header, RecordedRound
from fedmia.recording.reader import RecordedRounds
from fedmia.recording.writer import RecordingWriter
from fedmia.seeding import rng
from fedmia.settings.commands.data import Data
from fedmia.settings.errors import InputError
from fedmia.settings.yamlfile import load
from fedmia.storage.outfolder import write_settings
from fedmia.storage.runfolder import RunFolder
from fedmia.untrusted.text import read_json

PLAN, TARGETS, CARD, ROLES, RESULTS = "plan.yaml", "targets", "card.json", "roles.json", "results"
COMMON = "common"  # folder of the roles that targets of one data set share
# Of an audit's roles, those in roles.json; `shadows` are images of which an attacker may train.
KNOWN_MEMBERS, KNOWN_NONMEMBERS, MEMBERS, NONMEMBERS, SHADOWS = ROLE_NAMES = (
    "known_members", "known_nonmembers", "members", "nonmembers", "shadows",
)  # fmt: skip
OF_AUDIT = "known_members", "known_nonmembers", "scored_members", "scored_nonmembers", "spare"
DIGITS = "digits"
# A placebo whose members, and they alone, were cut at the edge and made as large as before: an
# attack finds them there if it reads how images were prepared, which is no membership.
MISMATCH = "mismatch"
EDGE = 2  # pixels
Roles = dict[str, list[str]]  # SHA-256 of images by role
Images = Mapping[str, ByteArray]  # uint8 (C, H, W) by the SHA-256 of shape and bytes


class NoLabels(Labels):
    """Classes of images that a bench hands to nobody; who asks is noted."""

    queried = False

    def classes_of(self, names: list[bytes]) -> ClassNames:
        """Nobody's.

        Raises:
            InputError: always.
        """
        self.queried = True
        raise InputError("reads the images' classes, which a bench gives to nobody")


@dataclass(frozen=True)
class Target:
    """One frozen encoder, or one federation.

    Attributes:
        folder: a run of fedmia, with a card and roles.
        card: what it was trained on and how, and the SHA-256 of its files.
        views: options of the attacker's views over those that it was trained with, which can be
            whole images alone.
        unwritten: roles of one that was trained for a check, which stand in no file.
    """

    folder: Path
    card: Mapping[str, Any]
    views: Mapping[str, float] = field(default_factory=dict)
    unwritten: Roles | None = None

    @property
    def name(self) -> str:
        """Also that of its folder."""
        return self.folder.name

    @property
    def trap(self) -> str:
        """`untrained`, `placebo`, `dpsgd` or MISMATCH: no membership can be found in it, or next
        to none; else empty."""
        return str(self.card["trap"])

    @property
    def refuses(self) -> bool:
        """Whether who finds something in it is refused: of a trap, but for MISMATCH."""
        return self.trap not in ("", MISMATCH)

    @property
    def federated(self) -> bool:
        """Whether updates and the models of its rounds are there, too."""
        return int(self.card["clients"]) > 1

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its card, which holds those of all its files."""
        return digest_of(self.folder / CARD)

    @cached_property
    def roles(self) -> Roles:
        """SHA-256 of the images of each role."""
        if self.unwritten is not None:
            return self.unwritten
        roles: Roles = {}
        if common := self.card.get("common"):
            roles |= read_json(self.folder.parents[1] / COMMON / common)
        return {**roles, **read_json(self.folder / ROLES)}

    @cached_property
    def scored_images(self) -> NDArray[np.uint64]:
        """A number for each scored image (n + m,), members first: the begin of its SHA-256."""
        names = [*self.roles[MEMBERS], *self.roles[NONMEMBERS]]
        return np.array([int(name[:16], 16) for name in names], np.uint64)

    def own(self, images: Images) -> Images:
        """Of `images` those that have a role in it."""
        return {name: images[name] for names in self.roles.values() for name in names}

    def check_files(self) -> None:
        """Refuse a target of which a file was changed.

        Raises:
            InputError: naming the file.
        """
        for name, digest in self.card["files"].items():
            path = self.folder / name
            if not path.is_file() or digest_of(path) != digest:
                raise InputError(f"'{path}' is not the file of the card: another SHA-256")

    def split(self, images: Images, shadows: bool) -> Cast:
        """Its images in their roles.

        Args:
            images: at least its own.
            shadows: whether the attacker trains encoders of its own.

        Returns:
            The roles; nobody has classes. Shadows have twice as many images as the target was
            trained on, of which each is trained on half.
        """
        names = [self.roles[role] for role in ROLE_NAMES]
        trained_on = sum(len(self.roles[role]) for role in (KNOWN_MEMBERS, MEMBERS))
        names[-1] = names[-1][: 2 * trained_on]
        pixels = np.stack([images[name] for one in names for name in one])
        if self.trap == MISMATCH:
            ends = np.cumsum([0, *map(len, names)])
            for side in (KNOWN_MEMBERS, MEMBERS):
                at = ROLE_NAMES.index(side)
                part = slice(ends[at], ends[at + 1])
                pixels[part] = cut_edge(pixels[part])
        data = ImageSet(pixels, np.zeros(len(pixels), np.int64), self.name, UNLABELLED)
        roles = side_by_side(names, *OF_AUDIT[: 4 + shadows])
        return Cast(
            (data, data),
            roles,
            spared=len(names[-1]),
            labels=NoLabels(),
            views=Data(name=str(self.card["data"])).source().views,
        )


def cut_edge(images: ByteArray) -> ByteArray:
    """Images (N, C, H, W) without EDGE pixels at each side, made as large as before."""
    inside = images[:, :, EDGE:-EDGE, EDGE:-EDGE]
    return resize_all(inside, images.shape[2], MISMATCH)


def bench_folder(bench: str) -> Path:
    """The folder of a bench: a path, or the name of one of the clone.

    Raises:
        InputError: there is none.
    """
    for folder in (Path(bench), Path(fedmia.__file__).parents[1] / "research/bench" / bench):
        if (folder / PLAN).is_file():
            return folder
    raise InputError(
        f"bench '{bench}': no folder with {PLAN}; a clone has some: CLONE/research/bench/NAME"
    )


def read_plan(folder: Path) -> Mapping[str, Any]:
    """The plan of a bench: its version, its seed, the recipe of each target."""
    return load(folder / PLAN)


def read_targets(folder: Path, only: Iterable[str] = ()) -> list[Target]:
    """The targets of a bench that are there, in the plan's order.

    Args:
        folder: of the bench.
        only: names of targets; none: all.

    Returns:
        The targets.

    Raises:
        InputError: an unknown name, a target of another version, or none is there.
    """
    plan, chosen = read_plan(folder), tuple(only)
    for name in chosen:
        if name not in plan["targets"]:
            listed = ", ".join(plan["targets"])
            raise InputError(f"targets '{name}': no such target of {plan['version']} ({listed})")
    targets = [
        Target(card.parent, read_json(card), plan["targets"][name].get("views", {}))
        for name in chosen or plan["targets"]
        if (card := folder / TARGETS / name / CARD).is_file()
    ]
    for target in targets:
        if target.card["version"] != plan["version"]:
            raise InputError(f"target '{target.name}' is of {target.card['version']}")
    if not targets:
        raise InputError(f"'{folder / TARGETS}' holds none of the targets: tools/targets.py")
    return targets


def find_images(targets: Iterable[Target], sources: Iterable[str]) -> dict[str, ByteArray]:
    """The images of targets by their SHA-256, from wherever they lie.

    Args:
        targets: those of digits need no source.
        sources: of images, such as `parquet:FILE`; those of digits are always one.

    Returns:
        All images of the targets that `have_images` then names; other targets may lack theirs.

    Raises:
        InputError: a source cannot be read, or has some images of a target and lacks others.
    """
    images, here = dict[str, ByteArray](), [*targets]
    needed = {name for target in here for role in ROLE_NAMES for name in target.roles[role]}
    for name in (DIGITS, *sources) if needed else ():
        source = Data(name=name)
        request = source.request(0)
        encoded = source.source().encoded(request)
        every = source.source().load(request) if encoded is None else encoded.all()
        names = (digest.hex() for digest in digests(every.images))
        images |= {one: every.images[at] for at, one in enumerate(names) if one in needed}
    for target in here:
        own = {name for role in ROLE_NAMES for name in target.roles[role]}
        lacking = own - images.keys()
        if lacking and (lacking != own or target.card["data"] == DIGITS):
            raise InputError(
                f"data '{', '.join(sources)}': lacks {len(lacking)} of {len(own)} images of target "
                f"{target.name} (the first: SHA-256 {min(lacking)[:12]})"
            )
    return images


def have_images(targets: Iterable[Target], images: Images) -> list[Target]:
    """The targets whose images are there.

    Args:
        targets: of a bench.
        images: of `find_images`.

    Returns:
        Those targets, in order.
    """
    return [one for one in targets if one.roles[MEMBERS][0] in images]


def open_bench(
    bench: str, only: Iterable[str], sources: Iterable[str]
) -> tuple[Path, list[Target], Images]:
    """A bench as far as its images are there.

    Args:
        bench: its name, or its folder.
        only: names of targets; none: all.
        sources: of images.

    Returns:
        Its folder, the targets whose images are there, and these images.

    Raises:
        InputError: as `bench_folder`, `read_targets` and `find_images`.
    """
    folder = bench_folder(bench)
    targets = read_targets(folder, only)
    images = find_images(targets, sources)
    return folder, have_images(targets, images), images


def keep_encoder(
    run: Path, target: Path, settings: Mapping[str, Any], only: int | None = None
) -> None:
    """Keep the models and updates of a run, the notes of an attacker inside, and the settings:
    nothing that a clock says, no scores.

    Args:
        run: its folder.
        target: folder of the target.
        settings: of the run, as a tree.
        only: the round whose model is kept alone, from 0; None: all models.
    """
    source = RecordedRounds(RunFolder(run).recording)
    header = Header({"fedmia": __version__, "strategy": "fedavg"}, every=0)
    own = RecordingWriter(RunFolder(target).recording, header)
    models, updates = source.models(MAIN), source.updates(MAIN)
    for round in models if only is None else [only]:
        own.save(MAIN, round, models[round])
        if sent := updates.get(round):
            digests = {c: own.save_update(MAIN, round, c, state) for c, state in sent.items()}
            own.add(RecordedRound(MAIN, round, updates=digests, cohort=sorted(digests)))
    if (attacker := source.attacker()) is not None:
        own.describe_attacker(*attacker)
        for round, (tensors, facts) in source.notes(MAIN).items():
            digest = own.save_file("notes", MAIN, round, tensors, facts)
            own.add(RecordedRound(MAIN, round, notes=digest))
    own.flush()
    write_settings(target, settings, fedmia=__version__)


def assign_roles(cast: Cast, names: list[bytes], trap: str = "", seed: int = 0) -> Roles:
    """SHA-256 of the images of each role.

    Args:
        cast: of the run that trained.
        names: digests of the images of its source.
        trap: of a `placebo` and of MISMATCH no image with a role was trained on.
        seed: of the placebo's roles.

    Returns:
        The roles.
    """
    members = {KNOWN_MEMBERS: cast.ids("known_members"), MEMBERS: cast.ids("scored_members")}
    others = cast.ids("scored_nonmembers")
    if trap in ("placebo", MISMATCH):
        others = rng(seed, "bench", "placebo").permutation(others)
        known, end = len(members[KNOWN_MEMBERS]), len(cast.members)
        members = {KNOWN_MEMBERS: others[:known], MEMBERS: others[known:end]}
        others = others[end:]
    known_others, public = cast.ids("known_nonmembers"), cast.ids("public")
    places = members | {KNOWN_NONMEMBERS: known_others, NONMEMBERS: others, SHADOWS: public}
    return {role: sorted(names[at].hex() for at in of) for role, of in places.items()}
