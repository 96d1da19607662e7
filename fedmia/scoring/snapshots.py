"""Attacks on the models of finished rounds: what the attacker sees of each, and the scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedmia import registry
from fedmia.attacks.base import ActiveAttack, Attack, DatasetAttack, Known
from fedmia.data.sets import ImageSets
from fedmia.federation.run import Finished
from fedmia.federation.snapshot import Snapshot
from fedmia.probes.pixels import pixel_scores
from fedmia.results import Inference, ScoredAttack
from fedmia.scoring.datasets import inference, suspects
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
        """Names of the attacks that score images of finished models."""
        others = ActiveAttack | DatasetAttack
        return [n for n in self.attacks if not isinstance(self.build(n), others)]

    def datasets(self) -> list[DatasetAttack]:
        """The attacks that answer for whole data sets."""
        built = (self.build(name) for name in self.attacks)
        return [attack for attack in built if isinstance(attack, DatasetAttack)]

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

    def on(
        self,
        snapshot: Snapshot,
        names: list[str],
        branch: str = "main",
        sets: ImageSets | None = None,
        signals: Signals | None = None,
    ) -> list[ScoredAttack]:
        """The named attacks on one snapshot of `branch`, sharing what they compute.

        Args:
            sets: to be judged as wholes, by the attacks that can.
            signals: rows known of the snapshot.
        """
        signals = Signals() if signals is None else signals
        seen = self.snapshots.received(branch, snapshot.round)
        views = ((n, self.view(snapshot, signals, seen, branch=branch)) for n in names)
        return [self.scorer.scored(n, view, sets) for n, view in views]

    def infer(self, round: int, signals: tuple[Signals, Signals]) -> list[Inference]:
        """What attacks on data sets say of each client, by the model of `round`.

        Args:
            signals: rows known of that model, and of the untrained one.
        """
        prepared, scorer, built = self.run.prepared, self.scorer, self.datasets()
        if not built:
            return []
        split, labels = prepared.split, prepared.data.labels
        owner = dict(zip(split.members, split.owner, strict=True))
        of = suspects(
            scorer.members,
            scorer.nonmembers,
            (labels[split.scored_members], labels[split.scored_nonmembers]),
            np.array([owner[i] for i in split.scored_members]),
            prepared.experiment.partition.build("partition"),
            self.site.seed,
        )
        rounds = (round, 0)
        views = [
            self.view(self.snapshots.load("main", r), rows)
            for r, rows in zip(rounds, signals, strict=True)
        ]
        return [inference(a, scorer.known, of, self.site.seed, *views) for a in built]

    def pixels(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores (members, non-members) of a classifier that never sees a model."""
        known, images = self.scorer.known, self.scorer.candidates
        return self.scorer.apart(pixel_scores(known.members, known.nonmembers, images))
