"""Attacks on the models of finished rounds: what the attacker sees of each, and the scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fedmia.attacks.base import ActiveAttack, DatasetAttack, Known
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.evaluation.steps.suite import AttackSuite
from fedmia.federation.attacker import Attacker
from fedmia.federation.result import FederationResult
from fedmia.partitions.base import Partition
from fedmia.partitions.iid import IID
from fedmia.recording.reader import States
from fedmia.records import DatasetInferenceResults, ScoredAttack
from fedmia.storage.snapshot import Snapshot
from fedmia.threat import BlackBox
from fedmia.threat.signals import Signals


@dataclass(frozen=True)
class RoundModel:
    """The model after a round of a branch, with the rows computed of it.

    Attributes:
        snapshot: the model.
        branch: which federation of the run: `main`, `zero` or `placebo`.
        signals: outputs of the model that were computed before, which attacks share.
    """

    snapshot: Snapshot
    branch: str = "main"
    signals: Signals = field(default_factory=Signals)


class Evaluation(AttackSuite[RoundModel]):
    """Scores attacks on the models of a finished federation.

    Args:
        run: the federation, its rounds over.
        attacks: name -> options of the attacks to run; None: the run's own.
        failures: takes what attacks raise; None lets it through.
    """

    def __init__(
        self,
        run: FederationResult,
        attacks: dict[str, dict[str, Any]] | None = None,
        failures: Failures | None = None,
    ) -> None:
        self.run, self.client_context, self.recording = run, run.client_context, run.recording
        experiment, pixels = run.plan.experiment, run.cast.pixels
        self.attacker = Attacker(run.client_context)
        own = {n: dict(o) for n, o in experiment.attack.items()} if attacks is None else attacks
        scorer = Scorer(
            Known(pixels("known_members"), pixels("known_nonmembers")),
            pixels("scored_members"),
            pixels("scored_nonmembers"),
            experiment.seed,
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
        """The round that passive attacks and probes score: the last before a crafted upload."""
        rounds, clean = self.recording.rounds("main"), self.run.schedule.clean
        return max(r for r in rounds if r <= clean) if self.active() else rounds[-1]

    def uploads(self, branch: str, last: int) -> dict[str, Any]:
        """Updates of a branch up to round `last`, and the weights that their clients received.

        `updates` holds weights by round and client, `before` what a round's clients received.
        """
        updates = {r: u for r, u in self.recording.updates(branch).items() if r <= last}
        before = self.recording.before(branch, updates)
        return {"before": before, "updates": updates}

    def received(self, branch: str, last: int) -> States:
        """The weights that the attacker received, by round, up to `last`.

        A client receives those of the rounds in which it took part, and the last.

        Args:
            branch: which federation of the run: `main`, `zero` or `placebo`.
            last: last round to read.

        Returns:
            Weights by round.
        """
        states = self.recording.models(branch)
        rounds = {*self.run.schedule.received(self.attacker.holder), last}
        return states.only(r for r in states if r in rounds and r <= last)

    def view(self, model: RoundModel, name: str, known: Known, budget: int | None) -> BlackBox:
        last = model.snapshot.round
        return self.attacker.view(
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
        """As of every suite; the scores name the model's round."""
        how["rounds"] = (model.snapshot.round,)
        return super().score_attacks(model, names, piece, **how)

    def inferences(self, models: Iterable[RoundModel]) -> list[DatasetInferenceResults]:
        """Answers of attacks on data sets for each client, on the model and the untrained one."""
        names, plan, cast = self.of_kind(DatasetAttack), self.run.plan, self.run.cast
        owner = cast.owner("scored_members")
        if not names or owner is None:
            return []
        kinds = cast.data.labels if cast.whose is None else cast.whose
        classes = kinds[cast.ids("scored_members")], kinds[cast.ids("scored_nonmembers")]
        deal: Partition = plan.experiment.partition.build("partition")
        if deal.trains_on_all():  # non-members belong to none, so they pose at random
            deal = IID()
        views = [self.attacker.view(model.snapshot, model.signals) for model in models]
        question = classes, owner, deal, views
        answers = (
            self.attempt("inferences", name, partial(self.infer, name, *question)) for name in names
        )
        return [one for one in answers if one is not None]
