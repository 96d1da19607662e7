"""Shadows that the user brings: encoders as the cache keeps them, or federations of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedmia.data.cast import SCORED, Cast
from fedmia.data.classes import Labels
from fedmia.data.decoding import resize_all
from fedmia.data.images import digests
from fedmia.encoders.base import LoadOptions
from fedmia.encoders.run import build_plugin
from fedmia.encoders.run import load as load_run
from fedmia.evaluation.audits.runs import cast_of, run_of, trust_setting
from fedmia.records.note import Note
from fedmia.seeding import rng
from fedmia.settings.commands.audit import Audit
from fedmia.settings.errors import InputError, opt
from fedmia.shadows.cache import seal
from fedmia.shadows.draw import content_digest
from fedmia.shadows.plan import ShadowSettings, keep_crop_only
from fedmia.shadows.provided import load_shadows, read_settings, seals_digest
from fedmia.shadows.train import TrainedShadow
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSL
from fedmia.storage.runfolder import RunFolder, UntrustedPluginError

PLAIN = "fedavg"  # the strategy of whoever has no rule


class ProvidedShadows:
    """The shadow encoders of --shadow-encoders.

    They may be trained under two sets of defences, one of which contains the other. Those under
    more defences belong to the attacker who knows the defence, the others to the naive attacker.

    Args:
        audit: the audit's settings.
        audit_split: the images in their roles.
    """

    def __init__(self, audit: Audit, audit_split: Cast) -> None:
        self.audit, self.audit_split = audit, audit_split
        self._classes, self._held = Labels(), set[bytes]()

    @property
    def path(self) -> Path:
        return Path(str(self.audit.shadow.encoders))

    @cached_property
    def runs(self) -> list[RunFolder]:
        """Folders of federations; empty where the shadows are encoders of the cache."""
        run = RunFolder(self.path, trust_setting(self.audit))
        return [run] if run.has_settings() else run.inside()

    @cached_property
    def _settings(self) -> list[ShadowSettings]:
        """Of each encoder of the cache; empty where one cannot be read (`load` says why)."""
        return [] if self.runs else read_settings(self.path, trust_setting(self.audit))

    @cached_property
    def _trees(self) -> list[dict[str, Any]]:
        """Settings of each federation; empty where one cannot be built (`load` says why)."""
        trees = []
        for run in self.runs:
            try:
                tree = run.tree("ssl")
                build_plugin("ssl", tree)
            except (InputError, KeyError, TypeError):
                return []
            trees.append(tree)
        return trees

    @cached_property
    def defenses(self) -> list[tuple[str, ...]]:
        """What each shadow was trained under; empty where one cannot be read."""
        return [one.under for one in self._settings] + [*map(describe_defenses, self._trees)]

    def augment(self) -> Augment | None:
        """The views that the shadows were trained with, or less where one of them was trained by
        another algorithm than the target's; None: one cannot be read."""
        if self._settings:
            own = self._settings[0].spec.augment
            known = all(one.known_algorithm for one in self._settings)
        elif self._trees:
            spec: SSL = build_plugin("ssl", self._trees[0])
            target = run_of(self.audit)
            theirs = None if target is None else target.facts().get("ssl")
            own, known = spec.augment, all(tree["ssl"] == theirs for tree in self._trees)
        else:
            return None
        return own if known else keep_crop_only(own)

    def paired(self) -> bool:
        """Whether some are of an attacker who knows the defence and others of a naive one."""
        try:
            return len(set(_sides(self.defenses, self.path))) > 1
        except InputError:
            return False

    def load(self, *, naive: bool = False) -> list[TrainedShadow]:
        """Load the shadows of the attacker who knows the defence, or of the `naive` one.

        Raises:
            InputError: none there, one that cannot be read or is of images of other channels, or
                defences of which neither set holds the other.
        """
        known = _sides([t.defense for t in self._loaded], self.path)
        shadows = [t for t, knows in zip(self._loaded, known, strict=True) if knows is not naive]
        theirs, shape = shadows[0].members.shape, self.audit_split.sides[0].images.shape
        if theirs[1] != shape[1]:
            raise InputError(
                f"{opt('shadow.encoders')}: trained on images of {tuple(theirs[1:])}, the "
                f"audited ones are {tuple(shape[1:])}"
            )
        return shadows

    def drop_known_images(self) -> Cast:
        """Drop scored non-members that the shadows were trained on.

        Online shadows are the exception: half of the images under attack were put into each of
        them.

        Raises:
            InputError: a federation holds members under attack, or too few non-members are left.
            UntrustedPluginError: a federation's settings name a plugin from outside.
        """
        try:
            members, others = self._shared(self._loaded)
        except UntrustedPluginError:
            raise
        except InputError:  # the attacks that ask for shadows say so
            return self.audit_split
        if members and self.runs:
            raise InputError(
                f"{opt('shadow.encoders')}: runs in '{self.path}' hold {members} of the members "
                "under attack; a shadow is trained on images of the attacker's own"
            )
        if members or not others.any():
            return self.audit_split
        return self.audit_split.without_nonmembers(others, "as the given shadow encoders know them")

    def digest(self) -> str:
        """Digest of all shadows, in hexadecimal.

        Raises:
            InputError: as `load`.
        """
        if not self.runs:
            return seals_digest(self.path)
        digest = hashlib.sha256()
        for one in self._loaded:
            images = content_digest(one.members.numpy(), one.nonmembers.numpy())
            state = {n: t.detach().cpu() for n, t in one.method.shared_state().items()}
            digest.update(seal(json.dumps([one.defense, images]), state).numpy().data)
        return digest.hexdigest()

    def labels(self) -> Labels:
        """Classes of the audit's images, and of the federations'."""
        assert self._loaded is not None
        return self.audit_split.labels | self._classes

    def notes(self) -> list[Note]:
        """Notes on the federations, and on defences in which they differ from the target."""
        notes = list[Note]()
        for run, under in zip(self.runs, self.defenses, strict=False):
            settings = run.facts().get("federation", {})
            notes.append(
                Note(
                    "shadow-federation",
                    {"name": run.path.name, "clients": settings.get("clients"),
                     "rounds": settings.get("rounds"), "defences": join_names(under)},
                )
            )  # fmt: skip
        target = run_of(self.audit)
        if target is not None and self.defenses:
            theirs = describe_defenses(target.facts())
            own = max(self.defenses, key=len)
            if join_names(theirs) != join_names(own):
                names = join_names(theirs), join_names(own)
                notes.append(Note("defences-differ", {"run": names[0], "shadows": names[1]}))
        return notes

    @cached_property
    def _loaded(self) -> list[TrainedShadow]:
        if not self.runs:
            return load_shadows(self.path, trust_setting(self.audit))
        try:
            return [self._federation(run) for run in self.runs]
        except UntrustedPluginError:
            raise
        except InputError as error:
            raise InputError(f"shadow encoders: {error}") from None

    def _federation(self, run: RunFolder) -> TrainedShadow:
        """The last model of a run, with its members and as many of its non-members."""
        released = load_run(
            str(run.path), LoadOptions(seed=self.audit.seed, trust_plugins=run.trust)
        )
        cast = cast_of(run, "bring encoders that the audit trained")
        data, seed = cast.data, run.facts()["seed"]
        others = np.concatenate([cast.ids("known_nonmembers"), cast.ids("scored_nonmembers")])
        both = np.concatenate([cast.members, others])
        self._held |= set(digests(data.images[np.concatenate([both, *cast.parts])]))
        count = min(len(cast.members), len(others))
        inside, outside = (
            np.sort(rng(seed, "shadow-federation", side).permutation(ids)[:count])
            for side, ids in (("members", cast.members), ("nonmembers", others))
        )
        self._classes = self._classes | Labels(
            [(torch.from_numpy(data.images[both]), data.class_labels()[both])]
        )
        return TrainedShadow(
            released.method,
            torch.from_numpy(data.images[inside]),
            torch.from_numpy(data.images[outside]),
            run.path.name,
            describe_defenses(run.facts()),
        )

    def _shared(self, loaded: Sequence[TrainedShadow]) -> tuple[int, NDArray[np.bool_]]:
        """How many scored members are among the shadows' images, and which (N,) non-members."""
        size = int(loaded[0].members.shape[2])  # resized alike, an image is known again
        names = {d for t in loaded for x in (t.members, t.nonmembers) for d in digests(x.numpy())}
        names |= self._held
        inside = [
            np.array([d in names for d in digests(resize_all(side.numpy(), size, "scored images"))])
            for side in map(self.audit_split.pixels, SCORED)
        ]
        return int(inside[0].sum()), inside[1]


def describe_defenses(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """Name and options of each defence of a run's clients, and of its server's rule."""
    layers: list[Mapping[str, Any]] = list(tree.get("defense") or [])
    rule = tree.get("strategy") or {"name": PLAIN}
    if rule.get("name") != PLAIN:
        layers.append(rule)
    return tuple(
        f"{one['name']} {json.dumps({k: v for k, v in one.items() if k != 'name'}, sort_keys=True)}"
        for one in layers
    )


def join_names(defenses: Sequence[str]) -> str:
    """The names of defences, for a sentence."""
    return " and ".join(one.split(" ")[0] for one in defenses) or "no defence"


def _sides(defenses: Sequence[tuple[str, ...]], path: Path) -> list[bool]:
    """Whether each shadow is of the attacker who knows the defence, if that is clear."""
    kinds = sorted(set(defenses), key=len)
    if len(kinds) > 1 and (len(kinds) > 2 or not set(kinds[0]) < set(kinds[1])):
        names = "; ".join(sorted({join_names(kind) for kind in kinds}))
        raise InputError(
            f"shadow encoders: {path} mixes some trained under {names}: give those of one, and "
            "beside them at most some under fewer"
        )
    return [one == kinds[-1] for one in defenses]
