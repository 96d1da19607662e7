"""Views of one released encoder, and of its untrained control: an attacker's, and the probes'."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from fedmia.attacks.base import Known
from fedmia.config.audit import Audit
from fedmia.encoders.base import Released
from fedmia.evaluation.audits.images import Dealt
from fedmia.evaluation.audits.shadows import Own
from fedmia.evaluation.steps.probes import NO_PROBES, probe
from fedmia.options import registry
from fedmia.options.seeding import rng
from fedmia.probes.utility import mean_cosine
from fedmia.records import Health, Probe
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.threat import BlackBox, Meter, Shadow, WhiteBox
from fedmia.threat.signals import PixelCache, Signals

UNTRAINED = "untrained"  # the control
RELEASED = "released"  # the encoder itself
VIEWS = {"black_box": BlackBox, "white_box": WhiteBox}


@dataclass
class ModelViews:
    """Makes the views: rows and drawn images are shared between them, counts are not.

    Args:
        augment: recipe of the attacker's views.
        shadows: the attacker's own encoders; None: it has none.
        pixels: views drawn once for the encoder, the controls and the shadows.
    """

    audit: Audit
    released: Released
    dealt: Dealt
    augment: Augment
    device: torch.device
    shadows: Own | None = None
    pixels: PixelCache = field(default_factory=PixelCache)

    def __post_init__(self) -> None:
        self.known = Known(self.dealt.known_members, self.dealt.known_nonmembers)
        self.held = self.known.both()[0]
        self._signals: dict[str, Signals] = defaultdict(Signals)
        self._methods: dict[str, SSLMethod] = {}

    def method(self, model: str) -> SSLMethod:
        """RELEASED, the encoder under audit, or its UNTRAINED control; its bank is the
        attacker's."""
        if model not in self._methods:
            made = self.released.untrained() if model == UNTRAINED else self.released.method
            made.to(self.device).eval().fill_bank(self.held)
            self._methods[model] = made
        return self._methods[model]

    def view(
        self, model: str, name: str, known: Known, budget: int | None, *, naive: bool = False
    ) -> BlackBox:
        """What the attacker that knows `known` holds of `model` while attack `name` runs.

        Args:
            naive: it does not know the defence of the target's training.
        """
        attack = registry.build("attack", name, self.audit.attack.get(name, {}))
        shadows: Sequence[Shadow] = ()
        if attack.asks_shadows() and self.shadows is not None:
            shadows = self.shadows.make(self.held, self.augment, self.pixels, naive=naive)
        return VIEWS[self.released.access](
            held=known.both()[0],
            pixels=self.pixels,
            shadows=shadows,
            labels=self.dealt.labels,
            meter=Meter(budget),
            **self._shared(model),
        )

    def plain(self, model: str) -> BlackBox:
        """A view of `model` that belongs to no attack."""
        return BlackBox(**self._shared(model))

    def _shared(self, model: str) -> dict[str, Any]:
        """What all views of a model have."""
        return {
            "method": self.method(model),
            "augment": self.augment,
            "seed": self.audit.seed,
            "device": self.device,
            "signals": self._signals[model],
            "precision": self.audit.precision,
        }


def recipe(audit: Audit, augment: Augment, dealt: Dealt, of_run: bool) -> Augment:
    """The attacker's views: the encoder's recipe, as far as the images bear it, then --augment."""
    if not of_run:
        v = dealt.views
        augment = replace(
            augment,
            crop_min=max(v.crop_min, augment.crop_min),
            flip=min(v.flip, augment.flip),
            brightness=augment.brightness * v.jitter,
            contrast=augment.contrast * v.jitter,
            saturation=augment.saturation * v.jitter,
            hue=min(augment.hue * v.jitter, 0.5),
        )
    return replace(augment, **audit.augment)


def probes(views: ModelViews, model: str) -> dict[str, Probe]:
    """kNN and linear probe: fitted on half of the scored non-members, tested on the other half.

    Without two classes among the labels neither can run.
    """
    dealt = views.dealt
    labels = np.asarray(dealt.nonmember_labels)
    order = rng(views.audit.seed, "probes").permutation(len(labels))
    fit, test = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    if len(fit) < 2 or len(np.unique(labels[fit])) < 2:
        return NO_PROBES
    rows = views.plain(model).embed_plain(dealt.scored_nonmembers, "avgpool")
    classes = torch.from_numpy(labels)
    return probe(rows[fit], classes[fit], rows[test], classes[test])


def health(views: ModelViews) -> Health | None:
    """How alike the encoder's outputs are for different scored non-members; None of fewer than
    two. Its loss is not known."""
    images = views.dealt.scored_nonmembers
    if len(images) < 2:
        return None
    return Health(mean_cosine(views.plain(RELEASED).embed_plain(images)))
