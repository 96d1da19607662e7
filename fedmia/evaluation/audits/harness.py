"""Every attack on one released encoder, and on the controls beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from torch import Tensor

from fedmia.attacks.base import DatasetAttack, Known
from fedmia.config.audit import outside_reason
from fedmia.data.images import IntArray
from fedmia.data.sets import ImageSets
from fedmia.evaluation.audits.resume import decides
from fedmia.evaluation.audits.views import UNTRAINED, ModelViews
from fedmia.evaluation.steps.datasets import inference, suspects
from fedmia.evaluation.steps.scorer import Scorer, threshold_asks
from fedmia.options.errors import InputError, opt, said
from fedmia.options.seeding import rng
from fedmia.probes.pixels import pixel_scores
from fedmia.records import Inference, ScoredAttack, listed
from fedmia.shadows.train import Stopped
from fedmia.storage.archive import Archive
from fedmia.threat import BudgetError, Threat, require, require_shadows

LEAST_KNOWN = 8  # a side, below which a budget buys no attack
CUT = "the audit was interrupted before it was done"

Tell = Callable[[str, str, bool], None]  # (model, attack, finished)


@dataclass
class Audited:
    """What an audit has found so far.

    Attributes:
        attacks: scores on the encoder. controls: set name -> scores on it, or under it.
        not_run: attack -> why it could not run. failed: those of them that broke.
        notes: what the reader should know of single attacks.
        inferences: of the scored members as one data set.
    """

    attacks: list[ScoredAttack] = field(default_factory=list)
    controls: dict[str, list[ScoredAttack]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    inferences: list[Inference] = field(default_factory=list)


@dataclass
class Harness:
    """Runs attacks through views of one encoder.

    Args:
        finished: what was scored before, and where to keep what is scored now.
    """

    views: ModelViews
    finished: Archive

    def __post_init__(self) -> None:
        self.known = self.views.known
        self.scorer = self._scorer(self.known)

    def _scorer(self, known: Known) -> Scorer:
        dealt, seed = self.views.dealt, self.views.audit.seed
        scored = dealt.scored_members, dealt.scored_nonmembers
        return Scorer(known, *scored, seed, self.views.build)

    # -- attacks -------------------------------------------------------------------------------

    def run(self, tell: Tell, stopped: Callable[[], bool], ran: Callable[[int], None]) -> Audited:
        """Every attack that can run, on the encoder and then on its untrained control."""
        found = Audited(controls={UNTRAINED: [], "posers": []})
        known: dict[str, Known] = {}
        for name in self.views.audit.attacks:
            if stopped():
                found.not_run[name] = CUT
                continue
            tell("released", name, False)
            reason = self._once(found, name, known)
            if reason is not None:
                found.not_run[name] = reason
            tell("released", name, True)
        ran(len(found.attacks))
        found.controls["posers"] = [self.posers(scored) for scored in listed(found.attacks)]
        missing = self.uncontrolled() if found.attacks else None
        if missing is not None:
            found.notes.append(missing)
        for scored in found.attacks:
            if missing is not None or stopped():
                break
            tell(UNTRAINED, scored.name, False)
            self._control(found, scored.name, known[scored.name])
            tell(UNTRAINED, scored.name, True)
        found.attacks = listed(found.attacks)
        found.controls[UNTRAINED] = listed(found.controls[UNTRAINED])
        return found

    def uncontrolled(self) -> str | None:
        """Why there is no untrained control, or None where there is one."""
        try:
            self.views.method(UNTRAINED)
        except InputError as error:
            return self.said(error)
        return None

    def _control(self, found: Audited, name: str, known: Known) -> None:
        """The attack on the untrained encoder; one that breaks there is said, and costs nothing."""
        try:
            budget = self.views.audit.query_budget
            found.controls[UNTRAINED].append(self.kept(UNTRAINED, name, known, budget))
        except (InputError, BudgetError) as error:
            found.notes.append(f"{name} has no untrained control: {self.said(error)}")
        except Exception as error:
            found.failed.append(name)
            reason = f"{type(error).__name__}: {self.said(error)}"
            found.notes.append(f"{name} has no untrained control, it failed there: {reason}")

    def _once(self, found: Audited, name: str, known: dict[str, Known]) -> str | None:
        """Score one attack; why it could not run, or None."""
        reason = outside_reason(name)
        if reason is not None:
            return reason
        try:
            self.permit(name)
            if isinstance(attack := self.views.build(name), DatasetAttack):
                found.inferences.append(self.infer(attack))
                return None
            budget, candidates = self.views.audit.query_budget, self.scorer.candidates
            known[name] = afford(self.views, name, self.known, candidates, budget, found.notes)
            scored = self.kept("released", name, known[name], budget)
            found.attacks.append(scored)
        except Stopped:
            return CUT
        except (InputError, BudgetError) as error:
            return self.said(error)
        except Exception as error:  # one broken attack costs none of the others
            found.failed.append(name)
            return f"failed: {type(error).__name__}: {self.said(error)}"
        return None

    def permit(self, name: str) -> None:
        """Refuse what the audit's access or its lack of shadows does not grant.

        Raises:
            InputError: naming what is needed.
        """
        attack = self.views.build(name)
        require(Threat(self.views.released.access, "outsider"), attack.needs, name)
        if attack.asks_shadows():
            require_shadows(self.views.shadows is not None)

    def kept(self, model: str, name: str, known: Known, budget: int | None) -> ScoredAttack:
        """`score`, or what was kept of it.

        Args:
            model: UNTRAINED, or the encoder under whatever name the scores are kept by.
        """
        options = decides(self.views, name)
        found: ScoredAttack = self.finished.once(
            f"{model}-{name}", lambda: self.score(model, name, known, budget), options
        )
        return found

    def score(self, model: str, name: str, known: Known, budget: int | None) -> ScoredAttack:
        """One attack on one model, by an attacker that knows `known`.

        Raises:
            ValueError: scores that are not finite.
        """
        scorer = self.scorer if known is self.known else self._scorer(known)
        turn = self.views.released.weights.round if model == "released" else None
        rounds = () if turn is None else (turn,)
        view = self.views.view(model, name, known, budget)
        scored = scorer.scored(name, view, self.sets(model, budget), rounds=rounds)
        asks = self.views.build(name).asks_shadows()
        if asks and model == "released" and self.views.naive is not None:
            naive = self.views.view(model, name, known, budget, naive=True)
            scored = beside_naive(scored, scorer.scored(name, naive, threshold=False))
        sides = ("scores_members", "scores_nonmembers", "known_members", "known_nonmembers")
        for one, which in product(listed([scored]), sides):
            values = getattr(one, which)
            bad = int(np.count_nonzero(~np.isfinite(values)))
            if bad:
                raise ValueError(f"{bad} of {len(values)} {which} are not finite")
        return scored

    def sets(self, model: str, budget: int | None) -> ImageSets | None:
        """The sets that attacks judge as wholes: on the encoder, where queries are free."""
        free = model == "released" and budget is None
        return self.scorer.sets if free else None

    def infer(self, attack: DatasetAttack) -> Inference:
        """The scored members as one data set, against non-members of their classes.

        Raises:
            InputError: queries are counted, or an image has no class where others have one.
        """
        if self.views.audit.query_budget is not None:
            raise InputError(f"{opt('query_budget')} is for attacks on images, not on data sets")
        dealt, seed = self.views.dealt, self.views.audit.seed
        classes = dealt.member_labels, dealt.nonmember_labels
        owner = np.zeros(len(dealt.scored_members), dtype=np.int64)
        of = suspects(dealt.scored_members, dealt.scored_nonmembers, classes, owner, whole, seed)
        models = ["released"] + [UNTRAINED] * (self.uncontrolled() is None)
        views = [self.views.view(m, attack.name, self.known, None) for m in models]
        return inference(attack, self.known, of, seed, views[0], next(iter(views[1:]), None))

    # -- controls that need no other model -----------------------------------------------------

    def posers(self, scored: ScoredAttack) -> ScoredAttack:
        """Half of the scored non-members posing as members: the attack must not tell them apart."""
        order = rng(self.views.audit.seed, "posers").permutation(len(scored.scores_nonmembers))
        half = len(order) // 2
        return replace(
            scored,
            scores_members=scored.scores_nonmembers[np.sort(order[:half])],
            scores_nonmembers=scored.scores_nonmembers[np.sort(order[half:])],
            features_members=None,
            features_nonmembers=None,
            twin_members=None,
            twin_nonmembers=None,
        )

    def pixel_control(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores of a classifier that never sees a model."""
        known = self.known
        return self.scorer.apart(
            pixel_scores(known.members, known.nonmembers, self.scorer.candidates)
        )

    def said(self, error: BaseException) -> str:
        """An exception's message on one line, its options as the user gave them."""
        text = error.text if isinstance(error, InputError) else str(error)
        return said(text, self.views.audit.tongue)


def beside_naive(knowing: ScoredAttack, naive: ScoredAttack) -> ScoredAttack:
    """The attacker who knows the target's defence, its twin one who does not."""
    return replace(
        knowing,
        twin=f"{knowing.name}-naive",
        over="the same with shadows trained without the defence",
        twin_members=naive.scores_members,
        twin_nonmembers=naive.scores_nonmembers,
    )


def afford(
    views: ModelViews,
    name: str,
    known: Known,
    candidates: Tensor,
    budget: int | None,
    notes: list[str],
) -> Known:
    """As many of the known images as the query budget lets the attack learn from.

    What fitting costs grows linearly with the known images: two small fits tell the line.

    Args:
        candidates: the images to score. budget: None is no limit.
        notes: takes a line where the budget leaves fewer than `known`.

    Raises:
        InputError: the budget does not even buy LEAST_KNOWN a side.
    """
    if budget is None:
        return known
    most = min(len(known.members), len(known.nonmembers))
    least = min(LEAST_KNOWN, most)
    low, score = _cost(views, name, first(known, least), candidates)
    more = min(2 * least, most)
    slope = (_cost(views, name, first(known, more), candidates)[0] - low) / (more - least or 1)
    spent = low + score * len(candidates)
    if spent > budget:
        raise InputError(
            f"{opt('query_budget', budget)}: needs at least {spent:.0f} queries for "
            f"{len(candidates)} images and {least} known a side"
        )
    count = most if slope <= 0 else min(most, least + int((budget - spent) / slope))
    if count == most:
        return known
    notes.append(f"{name}: the query budget of {budget} leaves {count} known images a side.")
    return first(known, count)


def _cost(views: ModelViews, name: str, known: Known, candidates: Tensor) -> tuple[int, int]:
    """Queries of a fit on `known` and of its threshold, and of scoring one image."""
    attack, view = views.build(name), views.view("released", name, known, None)
    attack.fit(view, known, rng(views.audit.seed, "cost", name))
    fitted = view.queries
    attack.score(view, candidates[:1])
    each = view.queries - fitted
    return fitted + threshold_asks(attack) * each * len(known.both()[0]), each


def whole(labels: IntArray, clients: int, rng: np.random.Generator) -> list[IntArray]:
    """The partition of an audit, whose members are one data set."""
    return [np.arange(len(labels))]


def first(known: Known, count: int) -> Known:
    """The first `count` known images of each side (they stand in random order)."""
    return Known(known.members[:count], known.nonmembers[:count])
