"""Attacks on the models of finished rounds: what the attacker sees of each, and the scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fedmia.attacks.base import ActiveAttack, Attack, DatasetAttack, Known
from fedmia.data.sets import ImageSets
from fedmia.evaluation.federated.observer import Observer
from fedmia.evaluation.steps.datasets import inference, suspects
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.federation.run import Finished
from fedmia.options import registry
from fedmia.partitions.base import Partition
from fedmia.partitions.iid import IID
from fedmia.probes.pixels import pixel_scores
from fedmia.records import Inference, ScoredAttack
from fedmia.storage.snapshot import Snapshot, StateFiles
from fedmia.threat.signals import Signals

Found = TypeVar("Found")


@dataclass
class Evaluation:
    """Scores attacks on the models of a finished federation.

    Args:
        attacks: name -> options of the attacks to run.
        observer: of the run's attacker, if there is one already.
        failures: takes what attacks raise; None lets it through.
    """

    run: Finished
    attacks: dict[str, dict[str, Any]]
    observer: Observer | None = None
    failures: Failures | None = None

    def __post_init__(self) -> None:
        experiment, split = self.run.prepared.experiment, self.run.split
        self.site, self.snapshots = self.run.site, self.run.snapshots
        self.observed = self.observer or Observer(experiment, self.site)
        take = self.site.take
        self.scorer = Scorer(
            Known(take(split.known_members), take(split.known_nonmembers)),
            take(split.scored_members),
            take(split.scored_nonmembers),
            self.site.seed,
            self.build,
            self.run.sets(),
        )

    def build(self, name: str) -> Attack:
        attack: Attack = registry.build("attack", name, self.attacks[name])
        return attack

    def passive(self) -> list[str]:
        """Names of the attacks that score images of finished models."""
        others = ActiveAttack | DatasetAttack
        return [n for n in self.attacks if not isinstance(self.build(n), others)]

    def datasets(self) -> dict[str, DatasetAttack]:
        """The attacks that answer for whole data sets."""
        built = {name: self.build(name) for name in self.attacks}
        return {n: attack for n, attack in built.items() if isinstance(attack, DatasetAttack)}

    def active(self) -> str | None:
        """The name of the active attack, if one is run."""
        return next((n for n in self.attacks if isinstance(self.build(n), ActiveAttack)), None)

    def scored_at(self) -> int:
        """The round of passive attacks and probes: the last before the first crafted update."""
        kept, clean = self.snapshots.rounds("main"), self.run.schedule.clean
        return max(r for r in kept if r <= clean) if self.active() else kept[-1]

    def uploads(self, branch: str, last: int) -> dict[str, Any]:
        """Updates of `branch` by round, to round `last`, and what their clients had received."""
        before = self.snapshots.before(branch)
        updates = {r: self.snapshots.updates(branch, r) for r in before if r <= last}
        return {"before": before, "updates": updates}

    def received(self, branch: str, last: int) -> StateFiles:
        """Round -> weights after it, to round `last`: of a client those that it was sent, for the
        rounds in which it took part, and the last."""
        kept = self.snapshots.received(branch, last)
        if self.observed.vantage != "client" or self.observed.holder is None:
            return kept
        schedule, holder = self.run.schedule, self.observed.holder
        return kept.only(r for r in kept if r == last or schedule.takes_part(holder, r + 1))

    def on(
        self,
        snapshot: Snapshot,
        names: list[str],
        branch: str = "main",
        sets: ImageSets | None = None,
        signals: Signals | None = None,
        threshold: bool = True,
        piece: str = "",
    ) -> list[ScoredAttack]:
        """The named attacks on one snapshot of `branch`, sharing what they compute.

        Args:
            piece: of the run's scores, by whose name each attack is scored once.
            sets: to be judged as wholes, by the attacks that can.
            signals: rows known of the snapshot.
            threshold: also choose one on the known images.
        """
        signals = Signals() if signals is None else signals
        seen = self.received(branch, snapshot.round)
        uploads = self.uploads(branch, snapshot.round)

        def scored(name: str) -> ScoredAttack:
            view = self.observed.view(snapshot, signals, seen, uploads)
            return self.scorer.scored(name, view, sets, threshold, rounds=(snapshot.round,))

        found = (self.kept(piece, name, partial(scored, name)) for name in names)
        return [one for one in found if one is not None]

    def kept(self, piece: str, name: str, call: Callable[[], Found]) -> Found | None:
        """What attack `name` says in a piece of the run's scores, worked out once; None where it
        failed."""
        tried = call if self.failures is None else partial(self.failures.survive, piece, name, call)
        # A disk that is full where scores are kept is no failure of the attack: it ends the run.
        return self.run.archive.once(f"{piece} {name}", tried)

    def infer(self, round: int, signals: tuple[Signals, Signals]) -> list[Inference]:
        """What attacks on data sets say of each client, by the model of `round`.

        Args:
            signals: rows known of that model, and of the untrained one.
        """
        prepared, scorer, built = self.run.prepared, self.scorer, self.datasets()
        if not built:
            return []
        split, labels = self.run.split, prepared.data.labels
        kinds = labels if split.whose is None else split.whose
        deal: Partition = prepared.experiment.partition.build("partition")
        if deal.trains_on_all():  # non-members belong to none, so they pose at random
            deal = IID()
        owner = dict(zip(split.members, split.owner, strict=True))
        of = suspects(
            scorer.members,
            scorer.nonmembers,
            (kinds[split.scored_members], kinds[split.scored_nonmembers]),
            np.array([owner[i] for i in split.scored_members]),
            deal,
            self.site.seed,
        )
        models = self.snapshots.load("main", round), self.snapshots.untrained()
        views = [self.observed.view(m, s) for m, s in zip(models, signals, strict=True)]

        def told(attack: DatasetAttack) -> Inference:
            return inference(attack, scorer.known, of, scorer.seed, *views)

        answers = (self.kept("inferences", n, partial(told, a)) for n, a in built.items())
        return [one for one in answers if one is not None]

    def by_layer(self, snapshot: Snapshot, threshold: bool = True) -> dict[str, ScoredAttack]:
        """The `internal` attack on each layer alone; all of them are read in one pass."""
        view, found = self.observed.view(snapshot, Signals()), {}
        with view.unmetered():
            for images in (self.scorer.known.both()[0], self.scorer.candidates):
                view.features(images, view.layers)
        for layer in view.layers:
            options = {**self.attacks["internal"], "layers": (layer,)}
            alone = replace(self.scorer, build=partial(registry.build, "attack", options=options))
            found[layer] = alone.scored("internal", view, threshold=threshold)
        return found

    def pixels(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores (members, non-members) of a classifier that never sees a model."""
        known, images = self.scorer.known, self.scorer.candidates
        return self.scorer.apart(pixel_scores(known.members, known.nonmembers, images))
