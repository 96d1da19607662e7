"""Views of one released encoder, and of its untrained control: an attacker's, and the probes'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fedmia.attacks.base import Attack, Known
from fedmia.config.audit import Audit
from fedmia.encoders.base import Released
from fedmia.evaluation.audits.images import Dealt
from fedmia.options import registry
from fedmia.options.seeding import rng
from fedmia.probes.utility import knn_accuracy, linear_accuracy, mean_cosine
from fedmia.records import Health, Probe
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.threat import BlackBox, Meter, Shadow, WhiteBox
from fedmia.threat.signals import PixelCache, Signals

UNTRAINED = "untrained"  # the control; any other name is one of the encoder itself
VIEWS = {"black_box": BlackBox, "white_box": WhiteBox}

Shadows = Callable[[], Sequence[Shadow]]


@dataclass
class ModelViews:
    """Makes the views: rows and drawn images are shared between them, counts are not.

    Args:
        augment: recipe of the attacker's views.
        shadows: the attacker's own encoders, trained when first asked for; None: it has none.
        naive: the same, trained without the defence that `shadows` know; None: they know none.
        shadow_contents: digest of the files that they are made of, for `reuse`.
        shadow_notes: what the reader should know of how they are trained.
        pixels: views drawn once for the encoder, the controls and the shadows.
    """

    audit: Audit
    released: Released
    dealt: Dealt
    augment: Augment
    device: torch.device
    shadows: Shadows | None = None
    naive: Shadows | None = None
    shadow_contents: Callable[[], str] = lambda: ""
    shadow_notes: Callable[[], list[str]] = list
    pixels: PixelCache = field(default_factory=PixelCache)

    def __post_init__(self) -> None:
        self.known = Known(self.dealt.known_members, self.dealt.known_nonmembers)
        self.held = self.known.both()[0]
        self._signals: dict[str, Signals] = {}
        self._methods: dict[str, SSLMethod] = {}

    def build(self, name: str) -> Attack:
        """A fresh attack with the audit's options."""
        built: Attack = registry.build("attack", name, self.audit.attack.get(name, {}))
        return built

    def method(self, model: str) -> SSLMethod:
        """The encoder under audit, or its `untrained` control; its bank is the attacker's."""
        which = _which(model)
        if which not in self._methods:
            made = self.released.untrained() if which == UNTRAINED else self.released.method
            made.to(self.device).eval().fill_bank(self.held)
            self._methods[which] = made
        return self._methods[which]

    def _rows(self, model: str) -> Signals:
        return self._signals.setdefault(_which(model), Signals())

    def view(
        self, model: str, name: str, known: Known, budget: int | None, *, naive: bool = False
    ) -> BlackBox:
        """What the attacker that knows `known` holds of `model` while attack `name` runs.

        Args:
            naive: it does not know the defence of the target's training.
        """
        uses, own = self.build(name).asks_shadows(), self.naive if naive else self.shadows
        shadows = own() if uses and own is not None else ()
        return VIEWS[self.released.access](
            self.method(model),
            self.augment,
            seed=self.audit.seed,
            device=self.device,
            held=known.both()[0],
            signals=self._rows(model),
            pixels=self.pixels,
            shadows=shadows,
            labels=self.dealt.labels,
            precision=self.audit.precision,
            meter=Meter(budget),
        )

    def plain(self, model: str) -> BlackBox:
        """A view of `model` that belongs to no attack."""
        return BlackBox(
            self.method(model),
            self.augment,
            seed=self.audit.seed,
            device=self.device,
            signals=self._rows(model),
            precision=self.audit.precision,
        )


def _which(model: str) -> str:
    return UNTRAINED if model == UNTRAINED else "released"


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
    nothing = {"knn": Probe(None, 0), "linear": Probe(None, 0)}
    if len(fit) < 2 or len(np.unique(labels[fit])) < 2:
        return nothing
    view = views.plain(model)
    rows = view.embed_plain(dealt.scored_nonmembers, "avgpool")
    parts = (
        rows[fit], torch.from_numpy(labels[fit]), rows[test], torch.from_numpy(labels[test])
    )  # fmt: skip
    n = len(test)
    return {"knn": Probe(knn_accuracy(*parts), n), "linear": Probe(linear_accuracy(*parts), n)}


def health(views: ModelViews) -> Health | None:
    """How alike the encoder's outputs are for different scored non-members; None of fewer than
    two. Its loss is not known."""
    images = views.dealt.scored_nonmembers
    if len(images) < 2:
        return None
    return Health(mean_cosine(views.plain("released").embed_plain(images)))
