"""What every attack promises, as functions: `check_attack` runs them on a class or an instance."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedmia.attacks.base import ActiveAttack, Attack
from fedmia.seeding import rng
from fedmia.testing.attack_case import AttackCase, UncachedSignals
from fedmia.testing.material import run
from fedmia.threat import VIEWS, BlackBox, BudgetError


def declares_paper_needs_and_signatures(case: AttackCase) -> None:
    """Its class says where it is from, which view it needs, and takes no truth."""
    cls = case.cls
    case.declares_paper()
    grants = [view.threat for view in (BlackBox, *VIEWS.values())]
    text = f".needs must be one of {grants}: `needs: ClassVar[Threat] = Threat(..)`"
    case.must(getattr(cls, "needs", None) in grants, text)
    reserved = {"name", "learns"} & {f.name for f in dataclasses.fields(cls)}
    case.must(
        not reserved, f"an option cannot be called {reserved}, as every attack has it; rename it"
    )
    client = not issubclass(cls, ActiveAttack) or cls.needs.vantage == "client"
    case.must(client, " is active: its vantage must be 'client'")
    for method, signature in (("fit", "self, view, known, rng"), ("score", "self, view, images")):
        parameters = ", ".join(inspect.signature(getattr(cls, method)).parameters)
        case.must(parameters == signature, f".{method} must take ({signature}), not ({parameters})")


def scores_are_one_finite_number_an_image(case: AttackCase) -> None:
    """(N,) float64; the target and the images are left as they were."""
    got, n = case.usual().scores, len(case.images)
    text = f"scores are of shape {got.shape}, not ({n},); return one number an image"
    case.must(got.shape == (n,), text)
    text = f"scores are {got.dtype}, not float64; end score with .astype(np.float64)"
    case.must(got.dtype == np.float64, text)
    case.must(np.isfinite(got).all(), "scores are not finite; give such images a number, too")


AT_ONCE: dict[str, Any] = {"seed": 2, "others": True, "refit": True}
# What is wrong, and what to change -> the runs that show it.
REASONS: dict[tuple[str, str], dict[str, Any]] = {
    (
        "two fits with one seed give different scores",
        "draw from the rng that fit is given, in score from rng(view.seed, NAME)",
    ): {},
    (
        "draws from the global random generators",
        "draw from the rng that fit is given, in score from rng(view.seed, NAME)",
    ): {"seed": 2},
    (
        "a call of score changes later scores",
        "let score keep nothing on self; what scores rest on is set in fit",
    ): {"others": True},
    (
        "a second fit does not forget the first",
        "let fit set anew all that score reads, and add to nothing",
    ): {"refit": True},
    (
        "other fits, scores and random numbers together change the scores",
        "let fit set anew all that score reads, and score keep nothing",
    ): AT_ONCE,
}


def scores_rest_on_the_last_fit_alone(case: AttackCase) -> None:
    """To the bit, whatever came before: all at once, then one by one to name the reason."""
    want = case.usual().scores
    if not np.array_equal(case.run(**AT_ONCE).scores, want):
        for (text, way), how in REASONS.items():
            case.same(case.run(**how).scores, want, text, way=way)


def scores_read_no_truth_off_positions(case: AttackCase) -> None:
    """Of copies of one image the first half would be members, were they given members first."""
    attack, view, *_ = case.usual()
    got = attack.score(view, case.images[:1].repeat(20, 1, 1, 1))
    text = "score reads the truth off positions: copies of one image score differently, members "
    way = "score an image by its pixels, never by its index"
    case.same(got, np.full_like(got, got[0]), f"{text}first other than shuffled", 1e-6, way)


def scores_follow_the_order_of_images(case: AttackCase) -> None:
    """The order of candidates only permutes."""
    # Fewer in a batch than images: batches must not follow the order.
    attack, view, want, *_ = case.usual(batch=8)
    order = torch.from_numpy(rng(0, "order").permutation(len(case.images)))
    got = attack.score(view, case.images[order])
    text = "the scores depend on the order of the candidates"
    way = "score each image by itself, never by its neighbours or its index"
    case.same(got, want[order], text, 1e-6, way)


def scores_of_a_subset_are_the_whole_ones(case: AttackCase) -> None:
    """An attack that works on batches of images (its option `batch`) keeps this at batch 1."""
    (attack, view, want, *_), some = case.usual(batch=1), [17, 3, 8]
    got = attack.score(view, case.images[some])
    text = "an image's score depends on what else is scored"
    way = "compare with known images of fit, with no mean or rank of the images to score"
    case.same(got, want[some], text, 1e-5, way)


def learns_says_whether_known_images_matter(case: AttackCase) -> None:
    """One that says no gives the same scores when their sides change places."""
    if not case.new().learns:
        got = case.run(known=case.swapped).scores
        text = "says that it does not learn, but exchanging the known images changes its scores"
        way = "let `learns` be True, as it is without a property of your own"
        case.same(got, case.usual().scores, text, way=way)


def queries_are_what_passes_through(case: AttackCase) -> None:
    """Nothing is remembered: an attack may read one row twice (a view's cosines, its loss)."""
    queries = case.usual().queries  # and rows of shadows, which cost no query, are known by now
    alone = case.run(signals=UncachedSignals())
    text = f"{alone.passed} images passed through the encoder but {alone.queries} queries were"
    way = "reach the encoder by methods of the view alone, which count"
    case.must(alone.queries == alone.passed, f"{text} counted; {way}")
    text = f"{queries} queries at first and {alone.queries} again; let each run ask the view anew"
    case.must(alone.queries == queries > 0, f"{text}, at least once")


def budget_is_kept(case: AttackCase) -> None:
    """One query less than it needs is refused before it is spent."""
    queries = case.usual().queries
    short = case.view(budget=queries - 1)
    attack = case.new()

    def score() -> None:
        attack.fit(short, case.known, rng(0, "fit"))
        attack.score(short, case.images)

    way = "reach the encoder by methods of the view alone, and catch no BudgetError"
    case.refused(score, BudgetError, f" exceeds its budget of {queries - 1} queries; {way}")
    case.must(short.queries < queries, f" pays {short.queries} queries of {queries - 1}; {way}")


def pickle_keeps_options_and_fit(case: AttackCase) -> None:
    """A fitted attack comes back as it was."""
    attack, view, want, *_ = case.usual()
    try:
        back = pickle.loads(pickle.dumps(attack))
    except Exception as error:  # whatever an attribute raises
        way = "keep arrays, tensors and numbers on self, no function and no open file"
        text = f"{case.name} cannot be pickled once fitted: {error}; {way}"
        raise AssertionError(text) from error
    way = "keep what score reads on self, with no __getstate__ that drops it"
    case.same(back.score(view, case.images), want, "pickling changes the scores", way=way)


ATTACK_CHECKS: tuple[Callable[[AttackCase], None], ...] = (
    declares_paper_needs_and_signatures, scores_are_one_finite_number_an_image,
    scores_rest_on_the_last_fit_alone, scores_read_no_truth_off_positions,
    scores_follow_the_order_of_images,
    scores_of_a_subset_are_the_whole_ones, learns_says_whether_known_images_matter,
    queries_are_what_passes_through, budget_is_kept, pickle_keeps_options_and_fit,
)  # fmt: skip


def check_attack(attack: Attack | type[Attack]) -> None:
    """AssertionError unless an attack keeps every promise of `fedmia.attacks.base`."""
    run(ATTACK_CHECKS, AttackCase, attack)
