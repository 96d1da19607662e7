"""Attacks on the models of finished rounds: what the attacker sees of each, and the scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fedmia.attacks.base import ActiveAttack, DatasetAttack, Known
from fedmia.evaluation.federated.observer import Observer
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.evaluation.steps.suite import AttackSuite, Result
from fedmia.federation.run import FederationResult
from fedmia.options import registry
from fedmia.partitions.base import Partition
from fedmia.partitions.iid import IID
from fedmia.records import DatasetInference, ScoredAttack
from fedmia.storage.snapshot import Snapshot, StateFiles
from fedmia.threat import BlackBox
from fedmia.threat.signals import Signals


@dataclass(frozen=True)
class RoundModel:
    """The model after a round of a branch, and the rows known of it."""

    snapshot: Snapshot
    branch: str = "main"
    signals: Signals = field(default_factory=Signals)


class Evaluation(AttackSuite[RoundModel]):
    """Scores attacks on the models of a finished federation.

    Args:
        attacks: name -> options of the attacks to run; None: the run's own.
        observer: of the run's attacker, if there is one already.
        failures: takes what attacks raise; None lets it through.
    """

    def __init__(
        self,
        run: FederationResult,
        attacks: dict[str, dict[str, Any]] | None = None,
        observer: Observer | None = None,
        failures: Failures | None = None,
    ) -> None:
        self.run, self.client_context, self.snapshots = run, run.client_context, run.snapshots
        experiment, split, take = run.prepared.experiment, run.split, run.client_context.take
        self.observed = observer or Observer(experiment, run.client_context)
        own = {n: dict(o) for n, o in experiment.attack.items()} if attacks is None else attacks
        scorer = Scorer(
            Known(take(split.known_members), take(split.known_nonmembers)),
            take(split.scored_members),
            take(split.scored_nonmembers),
            run.client_context.seed,
            self.build,
            run.sets(),
        )
        failures = failures or Failures((Exception,))
        super().__init__(own, scorer, failures, run.archive, experiment.query_budget)

    def of_kind(self, *kinds: type) -> list[str]:
        """Names of the attacks of these kinds."""
        return [name for name in self.attacks if isinstance(self.build(name), kinds)]

    def passive(self) -> list[str]:
        """Names of the attacks that score images of finished models."""
        others = self.of_kind(ActiveAttack, DatasetAttack)
        return [name for name in self.attacks if name not in others]

    def active(self) -> str | None:
        """The name of the active attack, if one is run."""
        return next(iter(self.of_kind(ActiveAttack)), None)

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

    def view(self, model: RoundModel, name: str, known: Known, budget: int | None) -> BlackBox:
        last = model.snapshot.round
        return self.observed.view(
            model.snapshot,
            model.signals,
            self.received(model.branch, last),
            self.uploads(model.branch, last),
            known=None if known is self.scorer.known else known,
            budget=budget,
        )

    def score_attacks(
        self, model: RoundModel, names: Iterable[str], piece: str = "", **how: Any
    ) -> list[ScoredAttack]:
        """The named attacks on the model of a round, sharing what they compute.

        Args:
            piece: of the run's scores, by whose name each attack is scored once.
            how: as `Scorer.scored`.
        """
        rounds = (model.snapshot.round,)

        def scored(name: str) -> ScoredAttack:
            known = self.known.get(name, self.scorer.known)
            return self.score(model, name, known, self.budget, rounds=rounds, **how)

        found = (self.kept(piece, name, partial(scored, name)) for name in names)
        return [one for one in found if one is not None]

    def kept(self, piece: str, name: str, call: Callable[[], Result]) -> Result | None:
        """What attack `name` says in a piece of the run's scores, worked out once; None where it
        failed."""
        # A disk that is full where scores are kept is no failure of the attack: it ends the run.
        return self.once(piece, name, partial(self.failures.attempt, piece, name, call))

    def inferences(self, models: Iterable[RoundModel]) -> list[DatasetInference]:
        """What attacks on data sets say of each client, by a model and the untrained one."""
        names, prepared, split = self.of_kind(DatasetAttack), self.run.prepared, self.run.split
        if not names:
            return []
        kinds = prepared.data.labels if split.whose is None else split.whose
        classes = kinds[split.scored_members], kinds[split.scored_nonmembers]
        deal: Partition = prepared.experiment.partition.build("partition")
        if deal.trains_on_all():  # non-members belong to none, so they pose at random
            deal = IID()
        views = [self.observed.view(model.snapshot, model.signals) for model in models]
        question = classes, client_of_members(self.run), deal, views
        answers = (
            self.kept("inferences", name, partial(self.infer, name, *question)) for name in names
        )
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
            found[layer] = alone.score_attack("internal", view, threshold=threshold)
        return found


def client_of_members(run: FederationResult) -> np.ndarray:
    """(n,) id of the client that holds each scored member."""
    owner = dict(zip(run.split.members, run.split.owner, strict=True))
    return np.array([owner[i] for i in run.split.scored_members])
