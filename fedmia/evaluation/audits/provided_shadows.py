"""Shadows that the user brings: encoders as the cache keeps them, or federations of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedmia.config.audit import Audit
from fedmia.data._pixels import resize_all
from fedmia.data.images import digests
from fedmia.encoders.base import LoadOptions
from fedmia.encoders.run import build_plugin
from fedmia.encoders.run import load as load_run
from fedmia.evaluation.audits.images import AuditSplit
from fedmia.evaluation.audits.runs import dealt_again, run_of, trust_setting
from fedmia.options.errors import InputError, opt
from fedmia.options.seeding import rng
from fedmia.shadows.cache import seal
from fedmia.shadows.draw import content_digest
from fedmia.shadows.given import blueprints, content, load_shadows
from fedmia.shadows.train import TrainedShadow
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSL
from fedmia.storage.manifest import CONFIG
from fedmia.storage.runfolder import RunFolder, UntrustedPluginError
from fedmia.threat import Labels

PLAIN = "fedavg"  # the strategy of whoever has no rule


@dataclass(frozen=True)
class ShadowRecord:
    """What a shadow says of its training, without being loaded.

    Attributes:
        augment: recipe of its views. known: whether it is the target's.
        defense: what it was trained under.
    """

    augment: Augment
    known: bool
    defense: tuple[str, ...]


@dataclass
class ProvidedShadows:
    """The shadows of --shadow-encoders.

    Where they were trained under two sets of defences and one holds the other, those under more
    are of the attacker who knows them, the others of the naive one.
    """

    audit: Audit
    audit_split: AuditSplit

    def __post_init__(self) -> None:
        self._classes, self._held = Labels(), set[bytes]()

    @property
    def path(self) -> Path:
        return Path(str(self.audit.shadow_encoders))

    @cached_property
    def runs(self) -> list[RunFolder]:
        """Federations, none where they are encoders of the cache."""
        inside = sorted(f.parent for f in self.path.glob(f"*/{CONFIG}"))
        folders = [self.path] if (self.path / CONFIG).is_file() else inside
        return [RunFolder(folder, trust_setting(self.audit)) for folder in folders]

    @cached_property
    def shadow_records(self) -> list[ShadowRecord]:
        """Of each; empty where one cannot be read: `load` says why."""
        if not self.runs:
            return [
                ShadowRecord(b.spec.augment, b.known_algorithm, b.under)
                for b in blueprints(self.path)
            ]
        target = run_of(self.audit)
        own = None if target is None else target.facts().get("ssl")
        found = []
        for run in self.runs:
            try:
                tree = run.tree("ssl")
                spec: SSL = build_plugin("ssl", tree)
            except (InputError, KeyError, TypeError):
                return []
            found.append(ShadowRecord(spec.augment, tree["ssl"] == own, under(tree)))
        return found

    def paired(self) -> bool:
        """Whether some are of an attacker who knows the defence and others of a naive one."""
        try:
            return len(set(_sides([t.defense for t in self.shadow_records], self.path))) > 1
        except InputError:
            return False

    def load(self, *, naive: bool = False) -> list[TrainedShadow]:
        """Those of the attacker who knows the defence, or of the `naive` one.

        Raises:
            InputError: none there, one that cannot be read or is of images of other channels, or
                defences of which neither set holds the other.
        """
        known = _sides([t.defense for t in self._loaded], self.path)
        found = [t for t, knows in zip(self._loaded, known, strict=True) if knows is not naive]
        theirs, shape = found[0].members.shape, self.audit_split.scored_members.shape
        if theirs[1] != shape[1]:
            raise InputError(
                f"{opt('shadow_encoders')}: trained on images of {tuple(theirs[1:])}, the "
                f"audited ones are {tuple(shape[1:])}"
            )
        return found

    def drop_known_images(self) -> AuditSplit:
        """The images less those non-members that the shadows know: none of them is scored, but by
        online shadows, which half of the images under attack were put into.

        Raises:
            InputError: a federation holds members under attack, or too few non-members are left.
            Untrusted: a federation's settings name a plugin from outside that is not trusted.
        """
        try:
            members, others = self._shared(self._loaded)
        except UntrustedPluginError:
            raise
        except InputError:  # the attacks that ask for shadows say so
            return self.audit_split
        if members and self.runs:
            raise InputError(
                f"{opt('shadow_encoders')}: runs in '{self.path}' hold {members} of the members "
                "under attack; a shadow is trained on images of the attacker's own"
            )
        if members or not others.any():
            return self.audit_split
        return self.audit_split.drop_nonmembers(others, "as the given shadow encoders know them")

    def content(self) -> str:
        """Digest (hex) of all that they are.

        Raises:
            InputError: as `load`.
        """
        if not self.runs:
            return content(self.path)
        found = hashlib.sha256()
        for one in self._loaded:
            images = content_digest(*(digests(x.numpy()) for x in (one.members, one.nonmembers)))
            state = {n: t.detach().cpu() for n, t in one.method.shared_state().items()}
            found.update(seal(json.dumps([one.defense, images]), state).numpy().data)
        return found.hexdigest()

    def labels(self) -> Labels:
        """Classes of the audit's images, and of the federations'."""
        assert self._loaded is not None
        return self.audit_split.labels | self._classes

    def notes(self) -> list[str]:
        """Which federations they are, and that the target's defences are others than theirs."""
        found = []
        for run, told in zip(self.runs, self.shadow_records, strict=False):
            held = run.facts().get("federation", {})
            found.append(
                f"Shadow encoder {run.path.name}: a federation of {held.get('clients')} clients "
                f"over {held.get('rounds')} rounds, under {named(told.defense)}."
            )
        target = run_of(self.audit)
        if target is not None and self.shadow_records:
            theirs, own = (
                under(target.facts()),
                max((t.defense for t in self.shadow_records), key=len),
            )
            if named(theirs) != named(own):
                found.append(
                    f"The run was trained under {named(theirs)}, the shadow encoders under "
                    f"{named(own)}."
                )
        return found

    @cached_property
    def _loaded(self) -> list[TrainedShadow]:
        if not self.runs:
            return load_shadows(self.path)
        try:
            return [self._federation(run) for run in self.runs]
        except UntrustedPluginError:
            raise
        except InputError as error:
            raise InputError(f"shadow encoders: {error.text}") from None

    def _federation(self, run: RunFolder) -> TrainedShadow:
        """The last model of a run, with its members and as many of its non-members."""
        released = load_run(
            str(run.path), LoadOptions(seed=self.audit.seed, trust_plugins=run.trust)
        )
        prepared = dealt_again(run, "bring encoders that the audit trained")
        data, split = prepared.data, prepared.split
        others = np.concatenate([split.known_nonmembers, split.scored_nonmembers])
        both = np.concatenate([split.members, others])
        self._held |= set(digests(data.images[np.concatenate([both, *split.parts])]))
        count = min(len(split.members), len(others))
        inside, outside = (
            np.sort(
                rng(prepared.experiment.seed, "shadow-federation", side).permutation(ids)[:count]
            )
            for side, ids in (("members", split.members), ("nonmembers", others))
        )
        self._classes = self._classes | Labels(
            [(torch.from_numpy(data.images[both]), data.named()[both])]
        )
        return TrainedShadow(
            released.method,
            torch.from_numpy(data.images[inside]),
            torch.from_numpy(data.images[outside]),
            run.path.name,
            under(run.facts()),
        )

    def _shared(self, loaded: Sequence[TrainedShadow]) -> tuple[int, NDArray[np.bool_]]:
        """How many scored members are among the shadows' images, and which (N,) non-members."""
        size = int(loaded[0].members.shape[2])  # resized alike, an image is known again
        names = {d for t in loaded for x in (t.members, t.nonmembers) for d in digests(x.numpy())}
        names |= self._held
        inside = [
            np.array([d in names for d in digests(resize_all(side.numpy(), size, "scored images"))])
            for side in (self.audit_split.scored_members, self.audit_split.scored_nonmembers)
        ]
        return int(inside[0].sum()), inside[1]


def under(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """The defences of a run's clients and the rule of its server: a text each, the name first."""
    layers: list[Mapping[str, Any]] = list(tree.get("defense") or [])
    rule = tree.get("strategy") or {"name": PLAIN}
    if rule.get("name") != PLAIN:
        layers.append(rule)
    return tuple(
        f"{one['name']} {json.dumps({k: v for k, v in one.items() if k != 'name'}, sort_keys=True)}"
        for one in layers
    )


def named(defenses: Sequence[str]) -> str:
    """Their names, for a sentence."""
    return " and ".join(one.split(" ")[0] for one in defenses) or "no defence"


def _sides(defenses: Sequence[tuple[str, ...]], path: Path) -> list[bool]:
    """Whether each shadow is of the attacker who knows the defence.

    Raises:
        InputError: more than two sets of defences, or two of which neither holds the other.
    """
    kinds = sorted(set(defenses), key=len)
    if len(kinds) > 1 and (len(kinds) > 2 or not set(kinds[0]) < set(kinds[1])):
        names = "; ".join(sorted({named(kind) for kind in kinds}))
        raise InputError(
            f"shadow encoders: {path} mixes some trained under {names}: give those of one, and "
            "beside them at most some under fewer"
        )
    return [one == kinds[-1] for one in defenses]
