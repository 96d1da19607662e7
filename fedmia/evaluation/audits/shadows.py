"""The attacker's own encoders of an audit: trained when first asked for, or given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmia.config.audit import Audit
from fedmia.config.compatibility import norm_kind
from fedmia.defenses._stack import DefenseStack
from fedmia.defenses.base import RunConditions
from fedmia.encoders.base import LoadedEncoder
from fedmia.evaluation.audits.images import AuditSplit
from fedmia.evaluation.audits.provided_shadows import ProvidedShadows
from fedmia.evaluation.audits.runs import run_of
from fedmia.evaluation.audits.shadowimages import ShadowImages
from fedmia.options import registry
from fedmia.options.errors import InputError, opt
from fedmia.options.option import option_fields
from fedmia.options.values import convert
from fedmia.shadows.plan import TargetTraining, attacker_augment, blueprint, crop_alone
from fedmia.shadows.train import TrainedShadow, shadow_notes, train_shadows
from fedmia.ssl.augment import Augment
from fedmia.ssl.train import Train
from fedmia.threat import Shadow, WhiteBox
from fedmia.threat.signals import PixelCache, Signals


@dataclass
class OwnShadows:
    """Shadow encoders of one audit.

    Args:
        say: takes a line for the user. progress: takes epochs done and to do.
        stop: asked before each step.
        given: what the user brings; None: they are trained.
    """

    audit: Audit
    released: LoadedEncoder
    audit_split: AuditSplit
    cache: Path | None
    device: torch.device
    say: Callable[[str], None]
    progress: Callable[[int, int], None]
    stop: Callable[[], bool]
    given: ProvidedShadows | None = None
    _shadows: dict[bool, Sequence[Shadow] | Exception] = field(default_factory=dict, init=False)

    def augment(self) -> Augment:
        """The attacker's views: the encoder's recipe, or less where its algorithm is unknown.

        Shadows that were trained before say what they were trained by.
        """
        if self.given is not None and (told := self.given.shadow_records):
            own = told[0].augment
            return own if all(one.known for one in told) else crop_alone(own)
        plan = self.audit.plan()
        if not self.audit.shadows:
            return self.released.augment
        return attacker_augment(plan, self.released.augment, self.audit_split.views)

    def make(
        self, held: Tensor, augment: Augment, pixels: PixelCache, *, naive: bool = False
    ) -> Sequence[Shadow]:
        """The shadows as an attack sees them, made once; so is their failure: those that diverge
        do so once.

        Args:
            held: the attacker's images. augment: recipe of its views. pixels: views drawn before.
            naive: those of an attacker who does not know the target's defence.

        Raises:
            InputError: too few images, or knowledge that nobody has.
        """
        if naive not in self._shadows:
            try:
                self._shadows[naive] = self._views(held, augment, pixels, naive)
            except Exception as error:
                self._shadows[naive] = error
        made = self._shadows[naive]
        if isinstance(made, Exception):
            raise made
        return made

    def _views(
        self, held: Tensor, augment: Augment, pixels: PixelCache, naive: bool
    ) -> Sequence[Shadow]:
        made, trainings = [], self._trained(naive)
        labels = self.images.labels if self.given is None else self.given.labels()
        for trained in trainings:
            own = trained.members
            alike = own.shape[1:] == held.shape[1:]
            queue = held if alike else torch.cat([own, trained.nonmembers])
            view = WhiteBox(
                trained.method,
                augment,
                seed=self.audit.seed,
                device=self.device,
                held=queue,
                signals=Signals(),
                pixels=pixels,
                labels=labels,
                precision=self.audit.precision,
            )
            trained.method.fill_bank(queue)
            made.append(Shadow(view, trained.members, trained.nonmembers))
        return tuple(made)

    def notes(self) -> list[str]:
        """What the reader should know of how they are trained, whether now or before."""
        if self.given is not None:
            return self.given.notes()
        if not self.audit.shadows:
            return []
        notes = shadow_notes(self.audit.plan(), self._target(), *self.images.ground())
        return notes + self._unknown_defences()

    def _unknown_defences(self) -> list[str]:
        """That the run's clients trained under defences of which its attacker knows nothing."""
        run = run_of(self.audit)
        layers = [] if run is None else run.tree().get("defense") or []
        names: dict[bool, list[str]] = {False: [], True: []}
        for one in layers:
            names[registry.load("defense", one["name"]).releases].append(one["name"])
        found, (trained, sent) = list[str](), names.values()
        if trained and not self.audit.shadow_defense:
            found.append(
                f"The run's clients trained under {' and '.join(trained)}, the shadow encoders did "
                f"not: {opt('shadow_defense.name', ','.join(trained))} trains them so too."
            )
        if sent:
            found.append(
                f"The run's clients sent their updates under {' and '.join(sent)}, and a shadow "
                f"sends none: {opt('shadow_encoders', 'RUN')} takes a federation that does."
            )
        return found

    def _guard(self, target: TargetTraining) -> DefenseStack | None:
        """The defences that the shadows are trained under, None without any.

        Raises:
            InputError: they do not suit the shadows.
        """
        layers = [(one.name, one.build("defense")) for one in self.audit.shadow_defense]
        if not layers:
            return None
        made = blueprint(self.audit.plan(), target)
        setting = RunConditions(norm_kind(made.model[1], made.ssl[1]), made.spec)
        for name, defense in layers:
            try:
                defense.check(setting)
            except InputError as error:
                where = opt("shadow_defense.name", name)
                raise InputError(f"{where}: {error.text}") from None
        return DefenseStack(layers)

    def contents(self) -> str:
        """Digest of what the user gave to make them of, "" where that is nothing.

        Raises:
            InputError: --shadow-data cannot be read.
        """
        if self.given is not None:
            return self.given.content()
        if self.audit.shadow_data is None:
            return ""
        return self.images.contents()

    def paired(self) -> bool:
        """Whether some are of an attacker who knows the target's defence, and others are not."""
        return bool(self.audit.shadow_defense) or (self.given is not None and self.given.paired())

    @cached_property
    def images(self) -> ShadowImages:
        """What the shadows are trained on."""
        return ShadowImages(self.audit, self.audit_split, self.say)

    def _trained(self, naive: bool) -> list[TrainedShadow]:
        if self.given is not None:
            return self.given.load(naive=naive)
        target = self._target()
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
        shape = self.audit_split.scored_members.shape
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
