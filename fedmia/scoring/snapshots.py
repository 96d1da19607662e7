"""Attacks on the models of finished rounds: what the attacker sees of each, and the scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fedmia import registry
from fedmia.attacks.base import ActiveAttack, Attack, Known
from fedmia.federation.run import Finished
from fedmia.federation.snapshot import Snapshot
from fedmia.probes.pixels import pixel_scores
from fedmia.results import ScoredAttack
from fedmia.scoring.scorer import Scorer
from fedmia.settings.roles import sees
from fedmia.ssl.base import State
from fedmia.threat import ClientView, ServerView, WhiteBox
from fedmia.threat.signals import PixelCache, Signals


@dataclass
class Evaluation:
    """Scores attacks on the models of a finished federation.

    Args:
        attacks: name -> options of the attacks to run.
    """

    run: Finished
    attacks: dict[str, dict[str, Any]]

    def __post_init__(self) -> None:
        experiment, split = self.run.prepared.experiment, self.run.prepared.split
        self.site, self.snapshots = self.run.site, self.run.snapshots
        self.vantage, self.holder = sees(experiment.attacker).vantage, experiment.holder
        take = self.site.take
        self.scorer = Scorer(
            Known(take(split.known_members), take(split.known_nonmembers)),
            take(split.scored_members),
            take(split.scored_nonmembers),
            self.site.seed,
            self.build,
        )
        self.augment = registry.build("ssl", *self.site.ssl).augment
        self._pixels = PixelCache()

    def build(self, name: str) -> Attack:
        attack: Attack = registry.build("attack", name, self.attacks[name])
        return attack

    def passive(self) -> list[str]:
        return [n for n in self.attacks if not isinstance(self.build(n), ActiveAttack)]

    def active(self) -> str | None:
        """The name of the active attack, if one is run."""
        return next((n for n in self.attacks if isinstance(self.build(n), ActiveAttack)), None)

    def view(
        self,
        snapshot: Snapshot,
        signals: Signals,
        received: Mapping[int, State] | None = None,
        sent: dict[int, State] | None = None,
        branch: str = "main",
    ) -> WhiteBox:
        """What the attacker holds of a snapshot: the weights, and negatives of its own.

        A server also holds the updates of `branch` up to the snapshot's round.

        A client's negatives are its queue as it was then, or keys of its own images where it has
        none (round 0, or a client that does not train). An outsider has no images but the known
        ones: its negatives are their keys.
        """
        mine = self.site.parts["members"][self.holder] if self.holder is not None else None
        method = self.site.method(-1, len(mine) if mine is not None else None)
        method.load_shared(snapshot.state)
        method.eval()
        if snapshot.holder:
            method.load_local(snapshot.holder)
        else:
            method.fill_bank(self.site.pixels(self.site.held if mine is None else mine))
        shared: dict[str, Any] = {
            "seed": self.site.seed,
            "device": torch.device(self.site.device),
            "held": self.site.take(self.site.held),
            "signals": signals,
            "pixels": self._pixels,
        }
        if self.vantage == "outsider":
            return WhiteBox(method, self.augment, **shared)
        targets = self.site.take(self.site.targets)
        shared |= {"received": received, "sent": sent, "targets": targets}
        if self.vantage == "client":
            return ClientView(method, self.augment, **shared)
        return ServerView(method, self.augment, **shared, **self.uploads(branch, snapshot.round))

    def uploads(self, branch: str, last: int) -> dict[str, Any]:
        """Updates of `branch` by round, to round `last`, and what their clients had received."""
        before = self.snapshots.before(branch)
        updates = {r: self.snapshots.updates(branch, r) for r in before if r <= last}
        return {"before": before, "updates": updates}

    def on(self, snapshot: Snapshot, names: list[str], branch: str = "main") -> list[ScoredAttack]:
        """The named attacks on one snapshot of `branch`, sharing what they compute."""
        signals = Signals()
        seen = self.snapshots.received(branch, snapshot.round)
        views = ((n, self.view(snapshot, signals, seen, branch=branch)) for n in names)
        return [self.scorer.scored(n, view) for n, view in views]

    def by_layer(self, snapshot: Snapshot) -> dict[str, ScoredAttack]:
        """The `internal` attack on each layer alone; all of them are read in one pass."""
        view, found = self.view(snapshot, Signals()), {}
        with view.unmetered():
            for images in (self.scorer.known.both()[0], self.scorer.candidates):
                view.features(images, view.layers)
        for layer in view.layers:
            options = {**self.attacks["internal"], "layers": (layer,)}
            alone = replace(self.scorer, build=partial(registry.build, "attack", options=options))
            found[layer] = alone.scored("internal", view)
        return found

    def pixels(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores (members, non-members) of a classifier that never sees a model."""
        known, images = self.scorer.known, self.scorer.candidates
        return self.scorer.apart(pixel_scores(known.members, known.nonmembers, images))
