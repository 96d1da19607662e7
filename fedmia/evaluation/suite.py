"""Every attack on the models of some rounds: each is scored once, within its budget."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torch import Tensor

from fedmia.attacks.base import Attack, DatasetAttack, Known
from fedmia.data.cast import SCORED, Cast
from fedmia.data.images import IntArray
from fedmia.data.sets import ImageSets
from fedmia.evaluation.steps.datasets import CandidateSets, Partition, inference
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.recording.branches import MAIN, UNTRAINED
from fedmia.records import Curves, DatasetInferenceResults, Probe, ScoredAttack
from fedmia.records.note import Note
from fedmia.rounds.attacker import Attacker
from fedmia.rounds.base import Rounds, TargetModel
from fedmia.settings.choices import PluginChoice
from fedmia.settings.commands.attacks import AttackSettings
from fedmia.settings.errors import InputError, opt
from fedmia.settings.options import option_fields
from fedmia.shadows.train import CUT
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.storage.archive import Archive
from fedmia.threat import (
    VIEWS,
    BlackBox,
    BudgetError,
    Shadow,
    WhiteBox,
    require,
    require_shadows,
)
from fedmia.threat.signals import PixelCache, Signals

RELEASED = "released"  # what the user hears of the model under test
Result = TypeVar("Result")


class Shadows(Protocol):
    """Encoders of the attacker's own, made when first asked for."""

    def make(
        self, attacker_images: Tensor, augment: Augment, pixels: PixelCache, *, naive: bool = False
    ) -> Sequence[Shadow]:
        """The encoders as an attack sees them; those of one who does not know the target's defence
        if `naive`."""

    def paired(self) -> bool:
        """Whether some are of an attacker who knows the defence, others of a naive one."""

    def digest(self) -> str:
        """Of the user's files that they are made of."""

    def notes(self) -> list[Note]:
        """How they are trained, for the report."""


class Act(Protocol):
    """An attack that took part in the rounds, scored by what it noted there.

    Attributes:
        name: of the attack.
        over: what its twin without the act is, in words.
    """

    name: str
    over: str

    def unscored(self) -> str | None:
        """Why it cannot be scored, or None."""

    def work(self) -> dict[str, Callable[[], ScoredAttack]]:
        """What to score: `active`, and of its controls `active-zero`, `active-untrained` and
        `active-placebo` those that are complete."""

    def curves(self) -> Curves | None:
        """What it read by round; None where that is not shown."""


class Progress:
    """Whom the scoring tells how far it is, and whom it asks to go on; here nobody."""

    def begin(self, pieces: int) -> None:
        """So many pieces of work follow, each a set of attacks on one model."""

    def piece(self, name: str, done: bool) -> None:
        """A piece begins, or is done."""

    def step(self, model: str, attack: str, done: bool) -> None:
        """An attack on a model begins, or is done."""

    def again(self, attacks: int) -> None:
        """So many attacks run again on the untrained control."""

    def stopped(self) -> bool:
        """Whether the user asked to stop."""
        return False


class Suite:
    """Runs attacks on the models of some rounds.

    Args:
        rounds: the models.
        cast: who is who among the images.
        attacker: what it has beside both.
        settings: what a run and an audit are told alike of attacks.
        attacks: name -> the attack with its options.
        clients: (n,) client of each scored member.
        deal: how members were dealt to clients, and posers are.
        archive: keeps what is scored, and has what was scored before.
        failures: takes what attacks raise.
        shadows: the attacker's own encoders; None: it has none.
        refuse: why an attack has no place here, by its name; None: it has one.
        formed: sets of the scored images, where they were formed before.

    Attributes:
        probe: of the use of a model, for rounds of which nobody told it before; None: all is told.
        scorer: of the images.
        known: attack -> the images that its budget lets it learn from.
        notes: what the reader should know of single attacks.
        act: the attack that took part in the rounds; None: there is none.
        main: the model under test.
        untrained: the control in which nobody trained.
    """

    def __init__(
        self, rounds: Rounds, cast: Cast, attacker: Attacker, settings: AttackSettings,
        attacks: Mapping[str, PluginChoice], clients: IntArray, deal: Partition,
        archive: Archive, failures: Failures, *, shadows: Shadows | None = None,
        refuse: Callable[[str], str | None] = lambda name: None, formed: ImageSets | None = None,
    ) -> None:  # fmt: skip
        self.rounds, self.cast, self.attacker, self.attacks = rounds, cast, attacker, {**attacks}
        self.settings = settings
        self.clients, self.deal, self.archive, self.failures = clients, deal, archive, failures
        self.shadows, self.refuse = shadows, refuse
        members, others = map(cast.pixels, SCORED)
        self.scorer = Scorer(
            attacker.known, members, others, attacker.seed, self.build, formed,
            cast.subject_sides("scored"),
        )  # fmt: skip
        self.known, self.notes = dict[str, Known](), list[Note]()
        self.act: Act | None = None
        self.probe: Callable[[TargetModel], Mapping[str, Probe]] | None = None
        self.main = TargetModel(MAIN, rounds.round)
        self.untrained = TargetModel(UNTRAINED, 0 if 0 in rounds.models() else None)
        self.progress = Progress()

    # -- attacks ---------------------------------------------------------------------------------

    def build(self, name: str) -> Attack:
        """A fresh attack with the options that it was given."""
        if name not in self.attacks:  # one that was not asked for, and could run
            self.attacks[name] = PluginChoice(name)
        built: Attack = self.attacks[name].build("attack")
        return built

    def of_kind(self, *kinds: type) -> list[str]:
        """Names of the attacks of these kinds."""
        return [n for n, one in self.attacks.items() if isinstance(one.plugin("attack"), kinds)]

    def check(self, name: str) -> Attack:
        """The attack.

        Raises:
            InputError: the attacker's access or its lack of shadows does not grant what it needs.
        """
        if (reason := self.refuse(name)) is not None:
            raise InputError(reason)
        attack = self.build(name)
        require(self.attacker.threat, attack.needs)
        if attack.asks_shadows():
            require_shadows(self.shadows is not None)
        return attack

    def able(self, names: Iterable[str]) -> list[str]:
        """Those of some attacks that the attacker has enough for; the others' reasons are noted."""
        able = list[str]()
        for name in names:
            try:
                self.check(name)
            except Exception as error:
                self.failures.reasons[name] = self.failures.explain(name, error)
            else:
                able.append(name)
        return able

    def controlled(self, names: Iterable[str]) -> list[str]:
        """Of some attacks those that run on the untrained control, too."""
        built = {name: self.build(name) for name in names}
        return [
            name
            for name, attack in built.items()
            if not (isinstance(attack, DatasetAttack) or attack.reads_training())
        ]

    def decides(self, name: str) -> str:
        """What decides the scores of an attack beside the key of the archive: its options, the
        files that they name, its shadows' files and the rounds.

        Raises:
            InputError: the shadows' files cannot be read.
        """
        attack = self.build(name)
        options = [getattr(attack, f.name) for f, _ in option_fields(type(attack))]
        files = [Path(v) for v in options if isinstance(v, str) and Path(v).is_file()]
        contents = [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]
        own = self.shadows.digest() if self.shadows and attack.asks_shadows() else ""
        return " ".join([repr(attack), *contents, own, self.rounds.digest])

    # -- views: rows and drawn images are shared between them, counts are not --------------------

    def method(self, target: TargetModel) -> SSLMethod:
        """The network of a target, with negatives of the attacker's.

        Raises:
            InputError: there is no such model, such as none that is untrained.
        """
        if target.method is None:
            method = self.rounds.load(target).to(self.attacker.device).eval()
            banks = {} if self.attacker.own is None else self.rounds.negatives(target.branch)
            bank = None if target.round is None else banks.get(target.round)
            if bank or self.rounds.access == "white_box":  # losses alone read the queue
                self.attacker.fill_bank(method, bank)
            target.method = method
        return target.method

    def view(
        self, target: TargetModel, name: str, known: Known | None = None,
        budget: int | None = None, *, naive: bool = False, **beside: Any,
    ) -> BlackBox:  # fmt: skip
        """What the attacker has of a model while an attack runs.

        Args:
            target: the model.
            name: of the attack.
            known: images whose membership it knows, where these are fewer; None: all.
            budget: most images that it may embed.
            naive: it does not know the defence of the target's training.
            beside: further arguments of a client's view.

        Returns:
            The view, which counts its queries.
        """
        vantage = (attack := self.build(name)).needs.vantage
        if self.shadows is not None and attack.asks_shadows():
            own = self.attacker.holds(), self.attacker.augment, self.attacker.pixels
            beside["shadows"] = self.shadows.make(*own, naive=naive)
        if self.attacker.threat.access == "white_box":
            branch = MAIN if target.branch == UNTRAINED else target.branch
            last, some = target.round or 0, self.attacker.received
            beside |= VIEWS[vantage].granted(self.rounds, branch, last, some)
        return self.attacker.view(
            self.method(target), vantage, signals=target.signals, known=known, budget=budget,
            **beside,
        )  # fmt: skip

    def plain_view(self, target: TargetModel) -> BlackBox:
        """A view that charges no attack, and leaves no rows of one side behind: an attack would be
        answered faster about these."""
        one = self.attacker
        return BlackBox(
            self.method(target), one.augment, seed=one.seed, device=one.device, signals=Signals(),
            precision=one.precision,
        )  # fmt: skip

    @cached_property
    def no_control_reason(self) -> str | None:
        """Why there is no untrained control, or None where there is one; it is asked for once."""
        try:
            self.method(self.untrained)
        except InputError as error:
            return str(error)
        return None

    # -- scores ----------------------------------------------------------------------------------

    def once(self, piece: str, name: str, call: Callable[[], Result]) -> Result:
        """What `call` says of attack `name` in a piece of the scoring, or what was kept of it."""
        return self.archive.once(f"{piece}-{name}", call, self.decides(name))

    def attempt(self, piece: str, name: str, call: Callable[[], Result]) -> Result | None:
        """Compute the scores of one attack in a piece of the scoring once; None where it failed."""
        # A disk that is full where scores are kept is no failure of the attack: it ends the run.
        return self.failures.attempt(piece, name, partial(self.once, piece, name, call))

    def score(
        self, target: TargetModel, name: str, known: Known, budget: int | None, **how: Any
    ) -> ScoredAttack:
        """One attack on one model by an attacker that knows `known`; `how` as in `Scorer`."""
        view = self.view(target, name, known, budget)
        how.setdefault("rounds", () if target.round is None else (target.round,))
        return self.scorer.with_known(known).score_attack(name, view, **how)

    def score_attacks(
        self, target: TargetModel, names: Iterable[str], piece: str = "main", title: str = "",
        **how: Any,
    ) -> list[ScoredAttack]:  # fmt: skip
        """Score attacks on one model; they share what they compute.

        Args:
            target: the model.
            names: of the attacks.
            piece: of the scoring, by whose name each attack is scored once.
            title: what the user hears of the model; none: nothing of single attacks.
            how: as `Scorer.score_attack`.

        Returns:
            The scored attacks that did not fail.
        """
        done = list[ScoredAttack]()
        for name in names:
            if self.progress.stopped():
                if piece == "main":
                    self.failures.reasons[name] = CUT
                continue
            known, score = self.known.get(name, self.scorer.known), self.score
            if piece == "main" and self.shadows is not None:
                score = self._score_with_twin
            if title:
                self.progress.step(title, name, False)
            call = partial(score, target, name, known, self.attacker.budget, **how)
            scored = self.attempt(piece, name, call)
            done += [] if scored is None else [scored]
            if title:
                self.progress.step(title, name, True)
        return done

    def _score_with_twin(
        self, target: TargetModel, name: str, known: Known, budget: int | None, **how: Any
    ) -> ScoredAttack:
        """An attack beside its naive twin, where its shadows know the defence."""
        scored, shadows = self.score(target, name, known, budget, **how), self.shadows
        assert shadows is not None
        if not (self.build(name).asks_shadows() and shadows.paired()):
            return scored
        view = self.view(target, name, known, budget, naive=True)
        naive = self.scorer.with_known(known).score_attack(name, view, threshold=False)
        return replace(
            scored,
            twins={f"{name}-naive": "the same with shadows trained without the defence"},
            twin_members=naive.scores_members[:, None],
            twin_nonmembers=naive.scores_nonmembers[:, None],
        )

    def leakage_of_round(
        self, target: TargetModel, names: Iterable[str], *, layers: bool
    ) -> dict[str, Any]:
        """Scores of attacks on the model of a round, and of `internal` on each layer (Fig. 6).

        Args:
            target: of the round.
            names: names of attacks.
            layers: whether `internal` is run.

        Returns:
            `leakage`, by attack, and `layers`, by layer.
        """

        def score_layers() -> dict[str, ScoredAttack]:
            view = self.view(target, "internal", self.scorer.known, None)
            assert isinstance(view, WhiteBox)
            internal = self.build("internal")
            return self.scorer.score_layers(view, internal, threshold=False)

        piece = f"round {target.round}"
        scored = self.score_attacks(target, names, piece, threshold=False)
        by_layer = self.attempt(f"{piece} layers", "internal", score_layers) if layers else None
        return {"leakage": {s.name: s for s in scored}, "layers": by_layer or {}}

    def infer(self, name: str) -> DatasetInferenceResults:
        """What an attack on data sets says of each client's scored members, on the model under
        test and on the untrained one, where there is one.

        Raises:
            BudgetError: queries are counted.
        """
        if self.attacker.budget is not None:
            raise BudgetError(f"{opt('query_budget')} is for attacks on images, not on data sets")
        scorer, attack = self.scorer, self.build(name)
        assert isinstance(attack, DatasetAttack)
        targets = [self.main] + [self.untrained] * (self.no_control_reason is None)
        views = [self.view(target, name) for target in targets]
        of = CandidateSets(
            scorer.members, scorer.nonmembers, self.cast.kinds(), self.clients, self.deal,
            scorer.seed, scorer.subjects,
        )  # fmt: skip
        return inference(attack, scorer.known, of, scorer.seed, *views)
