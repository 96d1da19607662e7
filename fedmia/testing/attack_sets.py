"""What attacks promise that judge sets of images: `score_sets`, and `infer` of whole data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.attacks.base import Attack, DatasetAttack
from fedmia.options.seeding import rng
from fedmia.testing.attack_case import AttackCase
from fedmia.testing.material import global_seed
from fedmia.threat import BudgetError

SIZE = 4  # images a set
Table = NDArray[np.float64]
Call = Callable[[Any, Any], Table]  # what a fitted attack says of its sets through a view


def judges_sets(case: AttackCase) -> bool:
    """Whether the attack has a `score_sets` of its own."""
    return case.cls.score_sets is not Attack.score_sets


def call_score_sets(case: AttackCase, *chosen: int) -> Call:
    """`score_sets` of the chosen sets of the images, or of all five.

    Args:
        case: the attack under check.
        chosen: indices of sets; none: all five.

    Returns:
        a function of (attack, view) that returns the scores `(S, 2)`.
    """
    sets = case.images.view(-1, SIZE, *case.images.shape[1:])
    some = sets[list(chosen)] if chosen else sets
    return lambda attack, view: np.array(attack.score_sets(view, some, case.known))


def call_infer(case: AttackCase, turned: bool = False) -> Call:
    """(3, 4) p-value, difference, n and others that `infer` gives for three sets, -1 for None. The
    third set is one image of a class of its own. `turned`: the images stand in another order.

    Args:
        case: the attack under check.
        turned: whether the images stand in another order.

    Returns:
        a function of (attack, view) that returns the table `(3, 4)`.
    """
    count = len(case.images)
    order = np.arange(count) if not turned else rng(0, "places").permutation(count)
    classes, place = np.arange(count) % 3, order.argsort()
    classes[-1] = 9
    every, bounds = np.arange(count), ((0, 6), (8, 11), (count - 1, count))
    positions = [(place[a:b], place[np.setdiff1d(every, every[a:b])]) for a, b in bounds]

    def call(attack: Any, view: Any) -> Table:
        comparisons = attack.infer(
            view, case.images[order], classes[order], positions, rng(0, "infer")
        )
        case.must(
            len(comparisons) == len(positions),
            f"infer answers {len(comparisons)} of {len(positions)} sets",
        )
        rows = [(t.p_value, t.difference, t.n, t.others) for t in comparisons]
        return np.array([[-1 if v is None else v for v in row] for row in rows], dtype=float)

    return call


def calls(case: AttackCase) -> Iterator[tuple[str, Call]]:
    """Those of the two that the attack has."""
    if judges_sets(case):
        yield "score_sets", call_score_sets(case)
    if issubclass(case.cls, DatasetAttack):
        yield "infer", call_infer(case)


def measure_sets(case: AttackCase, call: Call, seed: int = 1) -> tuple[Table, int, int]:
    """What the fitted attack says, the queries of it, and how many images passed.

    Args:
        case: the attack under check.
        call: of `call_score_sets` or `call_infer`.
        seed: of the global generators.

    Returns:
        the table, the queries, and the number of images that passed.
    """
    view, attack = case.view(), case.usual().attack  # fitted here, so that no pass of it counts
    with case.watch_passes(view) as passed, global_seed(seed):
        table = call(attack, view)
    return table, view.queries, sum(passed)


# -- the checks ------------------------------------------------------------------------------------


def sets_have_two_finite_scores(case: AttackCase) -> None:
    """(S, 2) float64 where it judges sets as wholes: its own, and its twin's without the act."""
    if judges_sets(case):
        scores, shape = measure_sets(case, call_score_sets(case))[0], (len(case.images) // SIZE, 2)
        right = scores.shape == shape and scores.dtype == np.float64
        case.must(right, f"score_sets gives {scores.dtype} {scores.shape}, not float64 {shape}")
        case.must(np.isfinite(scores).all(), "score_sets are not finite")


def sets_are_judged_apart(case: AttackCase) -> None:
    """A set's score depends neither on the other sets nor on its place among them."""
    if judges_sets(case):
        want, text = (
            measure_sets(case, call_score_sets(case))[0],
            "a set's score depends on the other sets",
        )
        case.same(measure_sets(case, call_score_sets(case, 3, 1))[0], want[[3, 1]], text, 1e-5)


def data_sets_have_a_p_value(case: AttackCase) -> None:
    """In (0, 1], beside a finite difference; none where no other image is of the set's classes."""
    for name, call in calls(case):
        if name == "infer":
            *rows, alone = measure_sets(case, call)[0]
            for p, difference, n, others in rows:
                case.must(0 < p <= 1, f"infer: a p-value must lie in (0, 1], got {p:g}")
                case.must(np.isfinite(difference), "infer: a difference is not finite")
                whole = 0 < n <= 6 and 0 < others < len(case.images)
                case.must(whole, f"infer tests {n:g} images against {others:g}")
            case.must((alone[:2] == -1).all(), "infer compares images of different classes")


def data_sets_are_told_by_content(case: AttackCase) -> None:
    """Where an image stands among those of all sets changes no answer."""
    for name, call in calls(case):
        if name == "infer":
            text = "infer reads the truth off positions: other places of the images, other answers"
            # A draw that ties may fall on the other side of what was observed.
            case.same(
                measure_sets(case, call_infer(case, turned=True))[0],
                measure_sets(case, call)[0],
                text,
                2e-3,
            )


def sets_rest_on_the_fit_alone(case: AttackCase) -> None:
    """And on the rng given: asked again, it says the same to the bit."""
    for name, call in calls(case):
        text = f"{name} draws from the global random generators, or does not repeat itself"
        case.same(measure_sets(case, call, seed=2)[0], measure_sets(case, call)[0], text)


def sets_cost_what_passes_through(case: AttackCase) -> None:
    """Images in queries, counted before they pass; one query less is refused."""
    for name, call in calls(case):
        _, queries, passed = measure_sets(case, call)
        case.must(queries >= passed > 0, f"{name}: {passed} images passed, {queries} were counted")
        try:
            call(case.usual().attack, case.view(budget=queries - 1))
        except BudgetError:
            continue
        case.must(False, f"{name} exceeds its budget of {queries - 1} queries")


SET_CHECKS: tuple[Callable[[AttackCase], None], ...] = (
    sets_have_two_finite_scores, sets_are_judged_apart, data_sets_have_a_p_value,
    data_sets_are_told_by_content, sets_rest_on_the_fit_alone, sets_cost_what_passes_through,
)  # fmt: skip
