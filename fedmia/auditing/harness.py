"""Every attack on one released encoder, and on the controls beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fedmia import registry
from fedmia.attacks.base import Attack, Known
from fedmia.auditing.images import Dealt
from fedmia.auditing.options import Audit, outside_reason
from fedmia.auditing.store import Finished
from fedmia.errors import InputError
from fedmia.probes.pixels import pixel_scores
from fedmia.released.base import Released
from fedmia.report.scores import ScoredAttack
from fedmia.scorer import Scorer
from fedmia.seeding import rng
from fedmia.shadows.train import Stopped
from fedmia.signals import PixelCache, Signals
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.threat import BlackBox, BudgetError, Meter, Shadow, Threat, WhiteBox, require

LEAST_KNOWN = 8  # a side, below which a budget buys no attack
UNTRAINED = "untrained"  # the control; any other name is one of the encoder itself
CUT = "the audit was interrupted before it was done"
VIEWS = {"black_box": BlackBox, "white_box": WhiteBox}

Shadows = Callable[[], Sequence[Shadow]]
Tell = Callable[[str, str, bool], None]  # (model, attack, finished)


@dataclass
class Audited:
    """What an audit has found so far.

    Attributes:
        attacks: scores on the encoder. controls: set name -> scores on it, or under it.
        not_run: attack -> why it could not run. failed: those of them that broke.
        notes: what the reader should know of single attacks.
    """

    attacks: list[ScoredAttack] = field(default_factory=list)
    controls: dict[str, list[ScoredAttack]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Harness:
    """Runs attacks through views of one encoder.

    Args:
        augment: recipe of the attacker's views.
        shadows: the attacker's own encoders, trained when first asked for; None: it has none.
        finished: what was scored before, and where to keep what is scored now.
        pixels: views drawn once for the encoder, the controls and the shadows.
    """

    audit: Audit
    released: Released
    dealt: Dealt
    augment: Augment
    device: torch.device
    shadows: Shadows | None
    finished: Finished
    pixels: PixelCache = field(default_factory=PixelCache)

    def __post_init__(self) -> None:
        d = self.dealt
        self.known = Known(d.known_members, d.known_nonmembers)
        self.held = self.known.both()[0]
        self.scorer = self._scorer(self.known)
        self._signals: dict[str, Signals] = {}
        self._methods: dict[str, SSLMethod] = {}

    def build(self, name: str) -> Attack:
        """A fresh attack with the audit's options."""
        built: Attack = registry.build("attack", name, self.audit.group("attack").get(name, {}))
        return built

    def _scorer(self, known: Known) -> Scorer:
        d = self.dealt
        return Scorer(known, d.scored_members, d.scored_nonmembers, self.audit.seed, self.build)

    # -- views ---------------------------------------------------------------------------------

    def method(self, model: str) -> SSLMethod:
        """The encoder under audit, or its `untrained` control; its bank is the attacker's."""
        which = _which(model)
        if which not in self._methods:
            made = self.released.untrained() if which == UNTRAINED else self.released.method
            made.to(self.device).eval().fill_bank(self.held.to(self.device).float() / 255)
            self._methods[which] = made
        return self._methods[which]

    def _rows(self, model: str) -> Signals:
        return self._signals.setdefault(_which(model), Signals())

    def view(self, model: str, name: str, known: Known, budget: int | None) -> BlackBox:
        """What the attacker holds of `model`; rows are shared between attacks, counts are not."""
        uses = self.build(name).asks_shadows()
        shadows = self.shadows() if uses and self.shadows is not None else ()
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
        )

    # -- attacks -------------------------------------------------------------------------------

    def run(self, tell: Tell, stopped: Callable[[], bool], ran: Callable[[int], None]) -> Audited:
        """Every attack that can run, on the encoder and then on its untrained control."""
        found = Audited(controls={UNTRAINED: [], "posers": []})
        known: dict[str, Known] = {}
        for name in self.audit.attacks:
            if stopped():
                found.not_run[name] = CUT
                continue
            tell("released", name, False)
            reason = self._once(found, name, known)
            if reason is not None:
                found.not_run[name] = reason
            tell("released", name, True)
        ran(len(found.attacks))
        found.controls["posers"] = [self.posers(scored) for scored in found.attacks]
        missing = self.uncontrolled() if found.attacks else None
        if missing is not None:
            found.notes.append(missing)
        for scored in found.attacks:
            if missing is not None or stopped():
                break
            tell(UNTRAINED, scored.name, False)
            self._control(found, scored.name, known[scored.name])
            tell(UNTRAINED, scored.name, True)
        return found

    def uncontrolled(self) -> str | None:
        """Why there is no untrained control, or None where there is one."""
        try:
            self.method(UNTRAINED)
        except InputError as error:
            return said(error)
        return None

    def _control(self, found: Audited, name: str, known: Known) -> None:
        """The attack on the untrained encoder; one that breaks there is said, and costs nothing."""
        try:
            found.controls[UNTRAINED].append(
                self.kept(UNTRAINED, name, known, self.audit.query_budget)
            )
        except (InputError, BudgetError) as error:
            found.notes.append(f"{name} has no untrained control: {said(error)}")
        except Exception as error:
            found.failed.append(name)
            reason = f"{type(error).__name__}: {said(error)}"
            found.notes.append(f"{name} has no untrained control, it failed there: {reason}")

    def _once(self, found: Audited, name: str, known: dict[str, Known]) -> str | None:
        """Score one attack; why it could not run, or None."""
        reason = outside_reason(name)
        if reason is not None:
            return reason
        try:
            self.permit(name)
            known[name] = self.afford(name, found.notes)
            scored = self.kept("released", name, known[name], self.audit.query_budget)
            found.attacks.append(scored)
        except Stopped:
            return CUT
        except (InputError, BudgetError) as error:
            return said(error)
        except Exception as error:  # one broken attack costs none of the others
            found.failed.append(name)
            return f"failed: {type(error).__name__}: {said(error)}"
        return None

    def permit(self, name: str) -> None:
        """Refuse what the audit's access or its lack of shadows does not grant.

        Raises:
            InputError: naming what is needed.
        """
        attack = self.build(name)
        require(Threat(self.released.access, "outsider"), attack.needs, name)
        if attack.asks_shadows() and self.shadows is None:
            raise InputError("needs shadow encoders (--shadows N, or --shadow-encoders FOLDER)")

    def kept(self, model: str, name: str, known: Known, budget: int | None) -> ScoredAttack:
        """`score`, or what was kept of it.

        Args:
            model: UNTRAINED, or the encoder under whatever name the scores are kept by.
        """
        options = repr(self.build(name))
        kept = self.finished.load(model, name, options)
        if kept is None:
            kept = self.score(model, name, known, budget)
            self.finished.save(model, name, options, kept)
        return kept

    def score(self, model: str, name: str, known: Known, budget: int | None) -> ScoredAttack:
        """One attack on one model, by an attacker that knows `known`.

        Raises:
            ValueError: scores that are not finite.
        """
        scorer = self.scorer if known is self.known else self._scorer(known)
        scored = scorer.scored(name, self.view(model, name, known, budget))
        for which in ("scores_members", "scores_nonmembers", "known_members", "known_nonmembers"):
            values = getattr(scored, which)
            bad = int(np.count_nonzero(~np.isfinite(values)))
            if bad:
                raise ValueError(f"{bad} of {len(values)} {which} are not finite")
        return scored

    def afford(
        self, name: str, notes: list[str], budget: int | None = None, known: Known | None = None
    ) -> Known:
        """As many of the known images as the query budget lets the attack learn from.

        What fitting costs grows linearly with the known images: two small fits tell the line.

        Raises:
            InputError: the budget does not even buy LEAST_KNOWN a side.
        """
        known = self.known if known is None else known
        budget = self.audit.query_budget if budget is None else budget
        if budget is None:
            return known
        most = min(len(known.members), len(known.nonmembers))
        candidates = len(self.scorer.candidates)
        least = min(LEAST_KNOWN, most)
        low, score = self._cost(name, first(known, least))
        more = min(2 * least, most)
        slope = (self._cost(name, first(known, more))[0] - low) / (more - least or 1)
        spent = low + score * candidates
        if spent > budget:
            raise InputError(
                f"--query-budget {budget}: needs at least {spent:.0f} queries for {candidates} "
                f"images and {least} known a side"
            )
        count = most if slope <= 0 else min(most, least + int((budget - spent) / slope))
        if count == most:
            return known
        notes.append(f"{name}: the query budget of {budget} leaves {count} known images a side.")
        return first(known, count)

    def _cost(self, name: str, known: Known) -> tuple[int, int]:
        """Queries of a fit on `known`, and of scoring one image."""
        attack, view = self.build(name), self.view("released", name, known, None)
        attack.fit(view, known, rng(self.audit.seed, "cost", name))
        fitted = view.queries
        attack.score(view, self.scorer.candidates[:1])
        return fitted, view.queries - fitted

    # -- controls that need no other model -----------------------------------------------------

    def posers(self, scored: ScoredAttack) -> ScoredAttack:
        """Half of the scored non-members posing as members: the attack must not tell them apart."""
        order = rng(self.audit.seed, "posers").permutation(len(scored.scores_nonmembers))
        half = len(order) // 2
        return replace(
            scored,
            scores_members=scored.scores_nonmembers[np.sort(order[:half])],
            scores_nonmembers=scored.scores_nonmembers[np.sort(order[half:])],
            features_members=None,
            features_nonmembers=None,
        )

    def pixel_control(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores of a classifier that never sees a model."""
        known = self.known
        return self.scorer.apart(
            pixel_scores(known.members, known.nonmembers, self.scorer.candidates)
        )


def _which(model: str) -> str:
    return UNTRAINED if model == UNTRAINED else "released"


def said(error: BaseException) -> str:
    """An exception's message on one line."""
    return " ".join(str(error).split())


def first(known: Known, count: int) -> Known:
    """The first `count` known images of each side (they stand in random order)."""
    return Known(known.members[:count], known.nonmembers[:count])
