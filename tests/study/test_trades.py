"""Points and choices of a trade-off, from rows written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fedmia.study.points import change
from fedmia.study.views._choice import choose
from fedmia.study.views._trades import beats, groups, largest, values


def stated(seed: int, epsilon: float | None, standing: str | None, knn: float | None = 0.5) -> Any:
    unit = standing and "image"
    return {"seed": seed, "epsilon": epsilon, "standing": standing, "unit": unit, "knn": knn}


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([stated(0, 3.0, "guaranteed"), stated(1, 5.0, "heuristic")], (5.0, "heuristic", "image")),
        ([stated(0, 3.0, "guaranteed"), stated(1, None, "heuristic")],
         (None, "heuristic", "image")),  # no finite one is the largest
        ([stated(0, None, "heuristic"), stated(1, 9.0, "guaranteed")],
         (None, "heuristic", "image")),
        ([stated(0, 3.0, "guaranteed"), stated(1, None, None)], (None, None, None)),
        ([stated(0, 3.0, "guaranteed"), stated(1, None, None, None)],
         (3.0, "guaranteed", "image")),
        ([], (None, None, None)),
    ],
)  # fmt: skip
def test_spent__the_largest_of_all_models_or_none(rows: Any, wanted: Any) -> None:
    assert largest(rows) == wanted


@pytest.mark.parametrize(
    ("other", "one", "wanted"),
    [
        ((0.5, 0.8), (0.5, 0.8), False), ((0.4, 0.8), (0.6, 0.8), True),
        ((0.4, 0.8), (0.5, 0.8), False), ((0.5, 0.9), (0.4, 0.8), True),
        ((0.5, 0.9), (0.5, 0.8), True), ((0.4, 0.7), (0.5, 0.8), False),
        ((0.6, 0.9), (0.5, 0.8), False), ((None, 0.9), (0.5, 0.8), False),
        ((0.4, None), (0.5, 0.8), False), ((0.4, 0.9), (None, 0.8), True),
        ((0.4, 0.9), (0.5, None), True), ((None, None), (None, None), True),
    ],
)  # fmt: skip
def test_beats__as_good_in_both_and_better_in_one(other: Any, one: Any, wanted: bool) -> None:
    def point(auc: float | None, knn: float | None) -> Any:
        rows = [{"name": "worse", "auc": {"mean": 0.1}}, {"name": "a", "auc": {"mean": auc}}]
        return {"attacks": rows, "best": "a", "knn": {"mean": knn}}

    assert beats(point(*other), point(*one)) is wanted


def test_values__by_seed_of_one_attack_and_their_change() -> None:
    rows: Any = [
        {"seed": s, "attack": a, "auc": auc}
        for s, a, auc in ((0, "a", 0.5), (0, "b", 0.7), (1, "a", None), (2, "a", 0.6))
    ]
    assert values(rows, "auc", "a") == {0: 0.5, 2: 0.6} and values(rows, "auc", "b") == {0: 0.7}
    assert values(rows, "auc") == {0: 0.7, 2: 0.6}
    more = change({0: 0.5, 2: 0.6, 5: 0.9}, {2: 0.4, 0: 0.8, 7: 0.0})
    assert (more["n"], more["mean"], more["least"], more["greatest"]) == (2, -0.05, -0.3, 0.2)


def planned(knns: list[float | None], failed: int = 0) -> tuple[Any, Any]:
    """Points of one attack, each with its kNN; the second leaks least."""
    rows = [
        [{"seed": s, "auc": 0.6 + 0.1 * (i != 1) + s / 100, "attack": "a", "knn": knn}
         for s in range(3)]
        for i, knn in enumerate(knns)
    ]  # fmt: skip
    points = [{"label": f"p{i}", "best": "a", "failed": 0} for i in range(len(knns))]
    points[1]["failed"] = failed
    return points, rows


@pytest.mark.parametrize(
    ("knn", "failed", "least"),
    [(0.76, 0, "p1"), (0.7601, 0, "p1"), (0.7599, 0, None), (0.76, 1, None), (None, 0, None)],
)
def test_choice__at_five_percent_of_the_undefended_use(
    knn: float | None, failed: int, least: str | None
) -> None:
    choice = choose(*planned([0.8, knn], failed))
    assert choice["least"] == least
    assert choice["candidates"] == (["p0", "p1"] if least else ["p0"])
    if least and knn:
        assert choice["spare"] is not None
        assert choice["spare"]["mean"] == pytest.approx(knn - 0.76)


def test_choice__nothing_without_the_undefended() -> None:
    points, rows = planned([0.8, 0.8])
    points[0]["best"] = None
    choice = choose(points, rows)
    assert (choice["candidates"], choice["least"], choice["spare"]) == ([], None, None)


def test_groups__of_reports_that_have_both() -> None:
    def report(**aucs: float) -> Any:
        sides = [
            {"group": group, "leakage": [{"attack": "b", "auc": 0.9}, {"attack": "a", "auc": auc}]}
            for group, auc in aucs.items()
        ]
        return {"defended": {"groups": sides} if sides else None}

    both = {0: report(defended=0.5, undefended=0.6), 1: report(), 2: report(undefended=0.7)}
    spread = groups(both, "a")
    assert spread is not None and spread["defended"]["mean"] == 0.5
    assert spread["undefended"]["mean"] == 0.65 and spread["difference"]["mean"] == -0.1
    assert spread["difference"]["n"] == 1
    assert groups({0: report(defended=0.5)}, "a") is None
    assert groups({0: report(undefended=0.5)}, "a") is None
    assert groups(both, "c") is None
