"""What attacks promise that have more than scores: columns, clients, twins, sets, whole data sets.

The built-in attacks alone have such methods; `fedmia.testing` checks what every attack has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.attacks.base import Attack, NotFitted
from fedmia.seeding import rng
from fedmia.testing.attack_case import AttackCase
from fedmia.testing.material import global_seed, run
from fedmia.threat import BudgetError

SIZE = 4  # images a set
SOME = [17, 3, 8]
Call = Callable[[Any, Any], NDArray[np.float64]]  # what a fitted attack says through a view


def features_are_three_finite_columns(case: AttackCase) -> None:
    attack, view, *_ = case.usual()
    if (features := attack.features(view, case.images)) is None:
        return
    names, table = features
    case.must(len(set(names)) == 3, f"features must have three names, got {names}")
    shape = len(case.images), 3
    case.must(table.shape == shape, f"features are {table.shape}, not {shape}")
    case.must(np.isfinite(table).all(), "features are not finite")


def without_its_act_it_scores_too(case: AttackCase) -> None:
    """Twins on the same model are named, and give a finite number an image each, in order."""
    attack, view, *_ = case.usual()
    scores, some = (attack.score_without(view, x) for x in (case.images, case.images[SOME]))
    if scores is not None and some is not None:
        shape = len(case.images), len(attack.without)
        case.must(bool(attack.without), "lacks the names `without` of its twins")
        case.must(scores.shape == shape, f"score_without gives {scores.shape}, not {shape}")
        case.must(np.isfinite(scores).all(), "score_without gives what is not finite")
        text = "score_without: an image's score depends on what else is scored"
        case.same(some, scores[SOME], text, 1e-5)


def by_client_has_a_finite_score_of_each_image(case: AttackCase) -> None:
    """Whatever the order of images."""
    attack, view, *_ = case.usual()
    answer, again = (attack.by_client(view, x) for x in (case.images, case.images.flip(0)))
    if answer is None or again is None:
        return case.must(answer is again, "by_client depends on the order of the candidates")
    ids, scores = answer
    clients = {c for r in view.updates.values() for c in r}
    distinct = ids.dtype == np.int64 and len(set(ids.tolist())) == len(ids)
    text = f"by_client must name distinct clients of {sorted(clients)}, got {ids}"
    case.must(distinct and set(ids.tolist()) <= clients, text)
    few = f"by_client names {len(ids)} clients, needs {attack.least_clients}"
    case.must(len(ids) >= attack.least_clients, few)
    right = scores.shape == (len(ids), len(case.images)) and scores.dtype == np.float64
    finite = right and np.isfinite(scores).all()
    case.must(finite, "by_client scores must be finite float64 (clients, images)")
    order = "by_client depends on the order of the candidates"
    case.same(again[1], scores[:, ::-1], order, 1e-6)


def score_sets(case: AttackCase, *chosen: int) -> Call:
    """`score_sets` of the chosen sets of the images, or of all five."""
    sets = case.images.view(-1, SIZE, *case.images.shape[1:])
    some = sets[list(chosen)] if chosen else sets
    return lambda attack, view: np.array(attack.score_sets(view, some, case.known))


def infer(case: AttackCase, turned: bool = False) -> Call:
    """(3, 4) p-value, difference, n and others that `infer` gives for three sets, -1 for None. The
    third set is one image of a class of its own. `turned`: the images stand in another order."""
    count = len(case.images)
    order = np.arange(count) if not turned else rng(0, "places").permutation(count)
    classes, place = np.arange(count) % 3, order.argsort()
    classes[-1] = 9
    every, bounds = np.arange(count), ((0, 6), (8, 11), (count - 1, count))
    positions = [(place[a:b], place[np.setdiff1d(every, every[a:b])]) for a, b in bounds]

    def call(attack: Any, view: Any) -> NDArray[np.float64]:
        own = case.images[order], classes[order], positions, rng(0, "infer")
        tests = attack.infer(view, *own)
        case.must(len(tests) == 3, f"infer answers {len(tests)} of 3 sets")
        rows = [(t.p_value, t.difference, t.n, t.others) for t in tests]
        return np.array([[-1 if v is None else v for v in row] for row in rows], dtype=float)

    return call


def judged(case: AttackCase, call: Call, seed: int = 1) -> tuple[NDArray[np.float64], int, int]:
    """What the fitted attack says of sets, the queries of it, and how many images passed."""
    view, attack = case.view(), case.usual().attack  # fitted here, so that no pass of it counts
    with case.watch_passes(view) as passed, global_seed(seed):
        table = call(attack, view)
    return table, view.queries, sum(passed)


def sets_have_finite_scores(case: AttackCase) -> None:
    """(S, 1 + controls) float64, its own and the controls', that rest on no other set and on no
    set's place."""
    controls = len(case.usual().attack.without) or 1
    scores, shape = judged(case, score_sets(case))[0], (len(case.images) // SIZE, 1 + controls)
    right = scores.shape == shape and scores.dtype == np.float64
    case.must(right, f"score_sets gives {scores.dtype} {scores.shape}, not float64 {shape}")
    case.must(np.isfinite(scores).all(), "score_sets are not finite")
    text = "a set's score depends on the other sets"
    case.same(judged(case, score_sets(case, 3, 1))[0], scores[[3, 1]], text, 1e-5)


def data_sets_have_a_p_value(case: AttackCase) -> None:
    """In (0, 1], beside a finite difference; none where no other image is of the set's classes.
    Where an image stands among those of all sets changes no answer."""
    table = judged(case, infer(case))[0]
    *rows, alone = table
    for p, difference, n, others in rows:
        case.must(0 < p <= 1, f"infer: a p-value must lie in (0, 1], got {p:g}")
        case.must(np.isfinite(difference), "infer: a difference is not finite")
        whole = 0 < n <= 6 and 0 < others < len(case.images)
        case.must(whole, f"infer tests {n:g} images against {others:g}")
    case.must((alone[:2] == -1).all(), "infer compares images of different classes")
    text = "infer reads the truth off positions: other places of the images, other answers"
    # A draw that ties may fall on the other side of what was observed.
    case.same(judged(case, infer(case, turned=True))[0], table, text, 2e-3)


def sets_rest_on_the_fit_alone(case: AttackCase, name: str, call: Call) -> None:
    """And on the rng given; they cost what passes, counted before it does, and need a fit."""
    table, queries, passed = judged(case, call)
    text = f"{name} draws from the global random generators, or does not repeat itself"
    case.same(judged(case, call, seed=2)[0], table, text)
    case.must(queries >= passed > 0, f"{name}: {passed} images passed, {queries} were counted")
    short, attack = case.view(budget=queries - 1), case.usual().attack
    text = f"{name} exceeds its budget of {queries - 1} queries"
    case.refused(lambda: call(attack, short), BudgetError, text)
    case.refused(lambda: call(case.new(), case.view()), NotFitted, f"{name} works before fit")


CALLS: dict[str, tuple[Callable[[AttackCase], None], Callable[[AttackCase], Call]]] = {
    "score_sets": (sets_have_finite_scores, score_sets),
    "infer": (data_sets_have_a_p_value, infer),
}


def check_hooks(case: AttackCase) -> None:
    """AssertionError unless what an attack has beside scores is as it should be."""
    features_are_three_finite_columns(case)
    without_its_act_it_scores_too(case)
    by_client_has_a_finite_score_of_each_image(case)
    for name, (check, call) in CALLS.items():
        if getattr(case.cls, name, None) is not getattr(Attack, name, None):
            check(case)
            sets_rest_on_the_fit_alone(case, name, call(case))


def check_attack_hooks(attack: Any) -> None:
    """`check_hooks` of a class or an instance."""
    run([check_hooks], AttackCase, attack)
