"""The attacker's own encoders of an audit: trained when first asked for, or given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmia.data.cast import Cast
from fedmia.defenses.base import TrainingConditions
from fedmia.defenses.stack import DefenseStack, central_stack
from fedmia.encoders.base import LoadedEncoder
from fedmia.evaluation.audits.provided_shadows import ProvidedShadows
from fedmia.evaluation.audits.runs import run_of
from fedmia.evaluation.audits.shadowimages import ShadowImages
from fedmia.records.note import Note
from fedmia.report.words.notes import in_words
from fedmia.settings import registry
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.norms import norm_kind
from fedmia.settings.options import option_fields
from fedmia.settings.values import convert
from fedmia.shadows.plan import TargetTraining, attacker_augment, build_settings
from fedmia.shadows.train import TrainedShadow, shadow_bytes, shadow_notes, train_shadows
from fedmia.ssl.augment import Augment
from fedmia.ssl.train import Train
from fedmia.threat import Shadow, WhiteBox
from fedmia.threat.signals import PixelCache, Signals


class OwnShadows:
    """The shadow encoders of one audit.

    Args:
        audit: the audit's settings.
        released: the encoder under audit.
        audit_split: the images in their roles.
        cache: folder of trained shadows; None keeps none.
        device: where tensors are computed.
        say: prints one line for the user.
        progress: called with the epochs done and to do.
        stop: asked before each step.
        provided: shadows that the user brings; None: they are trained.

    Attributes:
        signals: what is known of the outputs of shadows that have a key, by it.
    """

    def __init__(
        self, audit: Audit, released: LoadedEncoder, audit_split: Cast, cache: Path | None,
        device: torch.device, say: Callable[[str], None], progress: Callable[[int, int], None],
        stop: Callable[[], bool], provided: ProvidedShadows | None = None,
    ) -> None:  # fmt: skip
        self.audit, self.released, self.audit_split = audit, released, audit_split
        self.cache, self.device, self.provided = cache, device, provided
        self.say, self.progress, self.stop = say, progress, stop
        self.signals = defaultdict[str, Signals](Signals)
        self._shadows = dict[bool, Sequence[Shadow] | Exception]()

    def augment(self) -> Augment:
        """The attacker's views: the encoder's augmentation, or less where its algorithm is unknown.

        Shadows from an earlier audit say which augmentation they were trained with.
        """
        if self.provided is not None and (own := self.provided.augment()) is not None:
            return own
        plan = self.audit.plan()
        if not self.audit.shadow.count:
            return self.released.augment
        return attacker_augment(plan, self.released.augment, self.audit_split.views)

    def make(
        self, attacker_images: Tensor, augment: Augment, pixels: PixelCache, *, naive: bool = False
    ) -> Sequence[Shadow]:
        """Make the shadows once, as an attack sees them.

        A failure is kept, too: shadows that diverge do so once.

        Args:
            attacker_images: images that the attacker holds; uint8 (N, C, H, W).
            augment: augmentation of its views.
            pixels: views drawn before.
            naive: those of an attacker who does not know the target's defence.

        Returns:
            The shadows.

        Raises:
            InputError: too few images, or knowledge that nobody has.
        """
        if naive not in self._shadows:
            try:
                self._shadows[naive] = self._views(attacker_images, augment, pixels, naive)
            except Exception as error:
                self._shadows[naive] = error
        shadows = self._shadows[naive]
        if isinstance(shadows, Exception):
            raise shadows
        return shadows

    def _views(
        self, attacker_images: Tensor, augment: Augment, pixels: PixelCache, naive: bool
    ) -> Sequence[Shadow]:
        views, trainings = [], self.train(naive)
        labels = self.images.labels if self.provided is None else self.provided.labels()
        for trained in trainings:
            own = trained.members
            alike = own.shape[1:] == attacker_images.shape[1:]
            queue = attacker_images if alike else torch.cat([own, trained.nonmembers])
            view = WhiteBox(
                trained.method,
                augment,
                seed=self.audit.seed,
                device=self.device,
                held=queue,
                signals=self.signals[trained.key] if trained.key else Signals(),
                pixels=pixels,
                labels=labels,
                precision=self.audit.encoder.precision,
            )
            trained.method.fill_bank(queue)
            views.append(Shadow(view, trained.members, trained.nonmembers))
        return tuple(views)

    def training_bytes(self) -> dict[str, int]:
        """Bytes of one in training, by part; empty where none is trained."""
        if self.provided is not None or not self.audit.shadow.count:
            return {}
        return shadow_bytes(self.audit.plan(), self._target(), *self.images.ground(), self.device)

    def notes(self) -> list[Note]:
        """How the shadows are trained, now or before, for the report."""
        if self.provided is not None:
            return self.provided.notes()
        if not self.audit.shadow.count:
            return []
        notes = shadow_notes(self.audit.plan(), self._target(), *self.images.ground())
        return notes + self._unknown_defences()

    def _unknown_defences(self) -> list[Note]:
        """That the run's clients trained under defences of which its attacker knows nothing."""
        run = run_of(self.audit)
        layers = [] if run is None else run.tree().get("defense") or []
        names: dict[bool, list[str]] = {False: [], True: []}
        for one in layers:
            names[registry.load("defense", one["name"]).releases].append(one["name"])
        unknown, (trained, sent) = list[Note](), names.values()
        if trained and not self.audit.shadow.defense:
            unknown.append(Note("shadows-undefended", {"defences": trained}))
        if sent:
            unknown.append(Note("updates-undefended", {"defences": sent}))
        return unknown

    def _guard(self, target: TargetTraining) -> DefenseStack | None:
        """The defences that the shadows are trained under, None without any."""
        if not self.audit.shadow.defense:
            return None
        settings = build_settings(self.audit.plan(), target)
        setting = TrainingConditions(norm_kind(settings.model[1], settings.ssl[1]), settings.spec)
        layers = [(one.name, one.build("defense")) for one in self.audit.shadow.defense]
        return central_stack(layers, setting, "shadow.defense")

    def digest(self) -> str:
        """Digest of the user's files that the shadows are made of; "" without any.

        Raises:
            InputError: --shadow-data cannot be read.
        """
        if self.provided is not None:
            return self.provided.digest()
        if self.audit.shadow.data is None:
            return ""
        return self.images.digest()

    def paired(self) -> bool:
        """Whether some shadows are of an attacker who knows the defence, others of a naive one."""
        return bool(self.audit.shadow.defense) or (
            self.provided is not None and self.provided.paired()
        )

    @cached_property
    def images(self) -> ShadowImages:
        """What the shadows are trained on."""
        return ShadowImages(self.audit, self.audit_split, self.say)

    def train(self, naive: bool = False) -> list[TrainedShadow]:
        """Train them, or read them where the cache has them; a folder there is called by the
        SHA-256 of all that decides the bits of a shadow.

        Args:
            naive: as of `make`.

        Returns:
            The shadows, in order.

        Raises:
            InputError: as of `make`.
        """
        if self.provided is not None:
            return self.provided.load(naive=naive)
        target = self._target()
        for note in shadow_notes(self.audit.plan(), target, *self.images.ground()):
            self.say(in_words(note))
        return train_shadows(
            self.audit.plan(),
            target if naive else replace(target, guard=self._guard(target)),
            *self.images.ground(),
            device=self.device,
            cache=self.cache,
            say=self.say,
            progress=self.progress,
            stop=self.stop,
        )

    def _target(self) -> TargetTraining:
        """What is recorded of the encoder's training: all of it for a fedmia run."""
        encoder: Any = self.released.method.encoder
        shape = self.audit_split.sides[0].images.shape
        known: dict[str, Any] = {}
        if (run := run_of(self.audit)) is not None:
            tree = run.tree()
            known = {k: _choice(tree[k]) for k in ("model", "ssl")}
            kinds = {f.name: kind for f, kind in option_fields(Train)}
            own = tree.get("train", {})
            known["train"] = Train(**{k: convert(k, v, kinds[k]) for k, v in own.items()})
        return TargetTraining(
            channels=int(shape[1]),
            size=int(shape[2]),
            mean=tuple(encoder.mean.flatten().tolist()),
            std=tuple(encoder.std.flatten().tolist()),
            views=self.audit_split.views,
            **known,
        )


def _choice(section: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return section["name"], {k: v for k, v in section.items() if k != "name"}
