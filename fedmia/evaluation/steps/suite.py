"""The attacks of one evaluation: each is scored once, within its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from fedmia.attacks.base import Attack, DatasetAttack, Known
from fedmia.data.images import IntArray
from fedmia.evaluation.steps.datasets import Partition, form_candidate_sets, inference
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.options import registry
from fedmia.options.errors import opt
from fedmia.records import DatasetInferenceResults, ScoredAttack
from fedmia.storage.archive import Archive
from fedmia.threat import BlackBox, BudgetError, WhiteBox

Model = TypeVar("Model")
Result = TypeVar("Result")


class AttackSuite(Generic[Model]):
    """Runs attacks on models; a subclass says what an attacker holds of one.

    Args:
        attacks: name -> options of an attack.
        scorer: of the images.
        failures: takes what attacks raise.
        archive: keeps what is scored, and has what was scored before.
        budget: most images that one attack may embed.

    Attributes:
        known: attack -> the images that its budget lets it learn from.
        notes: what the reader should know of single attacks.
    """

    def __init__(
        self,
        attacks: Mapping[str, Mapping[str, Any]],
        scorer: Scorer,
        failures: Failures,
        archive: Archive,
        budget: int | None = None,
    ) -> None:
        self.attacks, self.scorer, self.failures = attacks, scorer, failures
        self.archive, self.budget = archive, budget
        self.known = dict[str, Known]()
        self.notes = list[str]()

    def view(self, model: Model, name: str, known: Known, budget: int | None) -> BlackBox:
        """What the attacker that knows `known` holds of `model` while attack `name` runs.

        The view counts its queries, at most `budget` of them.
        """
        raise NotImplementedError

    def decides(self, name: str) -> str:
        """What decides the scores of attack `name` beside the key of the archive."""
        return ""

    def build(self, name: str) -> Attack:
        """A fresh attack with the options that it was given."""
        built: Attack = registry.build("attack", name, self.attacks.get(name, {}))
        return built

    def once(self, piece: str, name: str, call: Callable[[], Result]) -> Result:
        """What `call` says of attack `name` in a piece of the scoring, or what was kept of it."""
        return self.archive.once(f"{piece}-{name}", call, self.decides(name))

    def score(
        self, model: Model, name: str, known: Known, budget: int | None, **how: Any
    ) -> ScoredAttack:
        """One attack on one model by an attacker that knows `known`; `how` as in `Scorer`."""
        view = self.view(model, name, known, budget)
        return self.scorer.with_known(known).score_attack(name, view, **how)

    def attempt(self, piece: str, name: str, call: Callable[[], Result]) -> Result | None:
        """Compute the scores of one attack in a piece of the scoring once; None where it failed."""
        # A disk that is full where scores are kept is no failure of the attack: it ends the run.
        return self.once(piece, name, partial(self.failures.attempt, piece, name, call))

    def score_attacks(
        self, model: Model, names: Iterable[str], piece: str = "", **how: Any
    ) -> list[ScoredAttack]:
        """Score the named attacks on one model; they share what they compute.

        Args:
            model: of a round, or an encoder.
            names: names of attacks.
            piece: of the scoring, by whose name each attack is scored once.
            how: as `Scorer.score_attack`.

        Returns:
            The scored attacks that did not fail.
        """

        def scored(name: str) -> ScoredAttack:
            known = self.known.get(name, self.scorer.known)
            return self.score(model, name, known, self.budget, **how)

        results = (self.attempt(piece, name, partial(scored, name)) for name in names)
        return [one for one in results if one is not None]

    def leakage_of_round(
        self, model: Model, round: int, names: Iterable[str], layers: bool
    ) -> dict[str, Any]:
        """Scores of attacks on the model of a round, and of `internal` on each layer (Fig. 6).

        Args:
            model: of the round.
            round: 1, 2, ...
            names: names of attacks.
            layers: whether `internal` is run.

        Returns:
            The fields of `RoundInfo`.
        """

        def score_layers() -> dict[str, ScoredAttack]:
            view = self.view(model, "internal", self.scorer.known, None)
            assert isinstance(view, WhiteBox)
            options = self.attacks.get("internal", {})
            return self.scorer.score_layers(view, options, threshold=False)

        piece, how = f"round {round}", {"rounds": (round,), "threshold": False}
        scored = self.score_attacks(model, names, piece, **how)
        by_layer = self.attempt(f"{piece} layers", "internal", score_layers) if layers else None
        return {"leakage": {s.name: s for s in scored}, "layers": by_layer or {}}

    def infer(
        self, name: str, classes: tuple[IntArray, IntArray], owner: IntArray, deal: Partition,
        views: Sequence[BlackBox],
    ) -> DatasetInferenceResults:  # fmt: skip
        """What an attack on data sets says of each client's scored members.

        Args:
            name: name of the attack, as in the registry.
            classes, owner, deal: as `form_candidate_sets` takes them.
            views: of the encoder and, where there is one, of its untrained control.

        Returns:
            What the attack says of each client's set.

        Raises:
            BudgetError: queries are counted.
        """
        if self.budget is not None:
            raise BudgetError(f"{opt('query_budget')} is for attacks on images, not on data sets")
        scorer, attack = self.scorer, self.build(name)
        assert isinstance(attack, DatasetAttack)
        sides = scorer.members, scorer.nonmembers
        of = form_candidate_sets(*sides, classes, owner, deal, scorer.seed, scorer.subjects)
        return inference(attack, scorer.known, of, scorer.seed, *views)
