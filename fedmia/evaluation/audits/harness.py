"""Every attack on one released encoder, and on the controls beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fedmia.attacks.base import DatasetAttack, Known
from fedmia.config.audit import outside_reason
from fedmia.data.images import IntArray
from fedmia.evaluation.audits.resume import decides
from fedmia.evaluation.audits.views import RELEASED, UNTRAINED, ModelViews
from fedmia.evaluation.steps.budgets import allot
from fedmia.evaluation.steps.datasets import inference, suspects
from fedmia.evaluation.steps.failures import BROKEN, Failures
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.evaluation.steps.suite import AttackSuite
from fedmia.options.errors import InputError, said
from fedmia.records import Inference, ScoredAttack, listed
from fedmia.shadows.train import CUT, Stopped
from fedmia.storage.archive import Archive
from fedmia.threat import BlackBox, BudgetError, Threat, require, require_shadows

Tell = Callable[[str, str, bool], None]  # (model, attack, finished)


class Harness(AttackSuite[str]):
    """Runs attacks through views of one encoder, RELEASED, and of its UNTRAINED control.

    Args:
        finished: what was scored before, and where to keep what is scored now.

    Attributes:
        found: scores on the encoder. controls: the same on the control.
        inferences: of the scored members as one data set.
    """

    def __init__(self, views: ModelViews, finished: Archive) -> None:
        audit, dealt = views.audit, views.dealt
        scored = dealt.scored_members, dealt.scored_nonmembers
        scorer = Scorer(views.known, *scored, audit.seed, self.build)
        failures = Failures((), (InputError, BudgetError, Stopped), audit.tongue)
        super().__init__(audit.attack, scorer, failures, finished, audit.query_budget)
        self.views = views
        self.found, self.controls = list[ScoredAttack](), list[ScoredAttack]()
        self.inferences = list[Inference]()

    def view(self, model: str, name: str, known: Known, budget: int | None) -> BlackBox:
        return self.views.view(model, name, known, budget)

    def decides(self, name: str) -> str:
        return decides(self.views, name)

    def run(self, tell: Tell, stopped: Callable[[], bool], ran: Callable[[int], None]) -> None:
        """Every attack that can run, on the encoder and then on its untrained control."""
        for name in self.views.audit.attacks:
            if stopped():
                self.failures.reasons[name] = CUT
                continue
            tell(RELEASED, name, False)
            scored = self.failures.survive("main", name, partial(self.on_encoder, name))
            if isinstance(scored, Inference):
                self.inferences.append(scored)
            elif scored is not None:
                self.found.append(scored)
            tell(RELEASED, name, True)
        ran(len(self.found))
        missing = self.uncontrolled() if self.found else None
        if missing is not None:
            self.notes.append(missing)
        for name in [scored.name for scored in self.found]:
            if missing is not None or stopped():
                break
            tell(UNTRAINED, name, False)
            scored = self.failures.survive(UNTRAINED, name, partial(self.kept, UNTRAINED, name))
            self.controls += [] if scored is None else [scored]
            tell(UNTRAINED, name, True)
        for (name, _), why in self.failures.beside.items():
            how = f": {why}".replace(f": {BROKEN}", ", it failed there: ", 1)
            self.notes.append(f"{name} has no untrained control{how}")
        self.found, self.controls = listed(self.found), listed(self.controls)

    def uncontrolled(self) -> str | None:
        """Why there is no untrained control, or None where there is one."""
        try:
            self.views.method(UNTRAINED)
        except InputError as error:
            return said(error.text, self.views.audit.tongue)
        return None

    def on_encoder(self, name: str) -> ScoredAttack | Inference:
        """What one attack says of the encoder.

        Raises:
            InputError: the audit's access or its lack of shadows does not grant what it needs.
            BudgetError: its budget of queries does not suffice.
        """
        if (reason := outside_reason(name)) is not None:
            raise InputError(reason)
        attack = self.build(name)
        require(Threat(self.views.released.access, "outsider"), attack.needs, name)
        if attack.asks_shadows():
            require_shadows(self.views.shadows is not None)
        if isinstance(attack, DatasetAttack):
            self.refuse_budget()
            return self.infer(attack)
        allot(self, RELEASED, name)
        return self.kept(RELEASED, name)

    def kept(self, model: str, name: str) -> ScoredAttack:
        """The scores of one attack on one model, or what was kept of them."""
        found = self.once(model, name, partial(self.on_images, model, name))
        assert found is not None
        return found

    def on_images(self, model: str, name: str) -> ScoredAttack:
        """One attack on one model; sets are judged on the encoder, where queries are free."""
        known, budget = self.known[name], self.budget
        if model == UNTRAINED:
            return self.score(model, name, known, budget, rounds=())
        turn, shadows = self.views.released.weights.round, self.views.shadows
        sets = self.scorer.sets if budget is None else None
        rounds = () if turn is None else (turn,)
        scored = self.score(model, name, known, budget, sets, rounds=rounds)
        if shadows is None or not (self.build(name).asks_shadows() and shadows.paired()):
            return scored
        view = self.views.view(model, name, known, budget, naive=True)
        naive = self.scorer.knowing(known).scored(name, view, threshold=False)
        return replace(
            scored,
            twin=f"{name}-naive",
            over="the same with shadows trained without the defence",
            twin_members=naive.scores_members,
            twin_nonmembers=naive.scores_nonmembers,
        )

    def infer(self, attack: DatasetAttack) -> Inference:
        """The scored members as one data set, against non-members of their classes.

        Raises:
            InputError: an image has no class where others have one.
        """
        dealt, seed = self.views.dealt, self.scorer.seed
        classes = dealt.member_labels, dealt.nonmember_labels
        owner = np.zeros(len(dealt.scored_members), dtype=np.int64)
        of = suspects(dealt.scored_members, dealt.scored_nonmembers, classes, owner, whole, seed)
        models = [RELEASED] + [UNTRAINED] * (self.uncontrolled() is None)
        views = [self.view(m, attack.name, self.scorer.known, None) for m in models]
        return inference(attack, self.scorer.known, of, seed, *views)


def whole(labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
    """The partition of an audit, whose members are one data set."""
    return [np.arange(len(labels))]
