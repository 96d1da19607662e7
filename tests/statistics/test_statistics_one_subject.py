"""Whether one subject stands out among others, and how much of it can be foreseen."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import scipy

from fedmia.statistics.one_subject import chance_of_naming, others_needed, smallest_nameable_auc
from fedmia.statistics.power import images_needed, smallest_detectable_auc
from fedmia.statistics.subjects import design_effect, intraclass_correlation


@pytest.mark.parametrize("tests", [1, 2, 6, 75, 300])
def test_others_needed__are_the_fewest_whose_exchange_can_reach_the_level(tests: int) -> None:
    needed = others_needed(tests)
    assert tests / (needed + 1) <= 0.05 < tests / needed
    assert needed == 20 * tests - 1
    assert chance_of_naming(0.999999, 4, 0.0, needed - 1, tests) == 0
    assert chance_of_naming(0.999999, 4, 0.0, needed, tests) > 0.9


@pytest.mark.parametrize(
    ("others", "tests", "level"), [(19, 1, 0.05), (38, 1, 1 / 39), (99, 1, 0.05), (119, 6, 1 / 120)]
)
def test_chance__without_a_leak_is_the_level_of_the_ranks(
    others: int, tests: int, level: float
) -> None:
    for images, correlation in ((1, 0.0), (20, 0.0), (4, 0.7)):
        chance = chance_of_naming(0.5, images, correlation, others, tests)
        assert chance == pytest.approx(level, abs=1e-6)


def test_chance__among_very_many_others_is_that_of_a_normal_quantile() -> None:
    """With a single image the rank among all is the quantile: P(z + shift > 1.645)."""
    shift = 2**0.5 * scipy.stats.norm.ppf(0.8)
    known = scipy.stats.norm.sf(1.6449 - shift)
    assert chance_of_naming(0.8, 1, 0.3, 10**6 - 1) == pytest.approx(known, abs=1e-3)
    # Images of one subject that are wholly alike say as much as one of them, others more.
    assert chance_of_naming(0.8, 20, 1.0, 99) == pytest.approx(chance_of_naming(0.8, 1, 0.2, 99))
    by_images = [chance_of_naming(0.6, k, 0.2, 99) for k in (1, 4, 20)]
    assert by_images == sorted(by_images) and by_images[2] < chance_of_naming(0.6, 20, 0.0, 99)


def test_page__shows_what_the_formula_says() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/customers_set.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (0\.\d\d) \| (0\.\d\d) \|$", page, re.M)
    assert [row[0] for row in rows] == ["1", "4", "20"]
    for images, *shown in rows:
        known = [smallest_nameable_auc(int(images), 0.3, others) for others in (19, 99)]
        assert shown == [f"{auc:.2f}" for auc in known]


def test_smallest_auc__is_none_where_no_exchange_reaches_the_level() -> None:
    assert smallest_nameable_auc(20, 0.1, 18) is None
    few, many = (smallest_nameable_auc(4, 0.3, n) for n in (19, 199))
    assert few is not None and many is not None and 0.5 < many < few < 1


def test_intraclass_correlation__of_worked_numbers() -> None:
    """Means 2, 6, 10 of pairs with differences 2: mean squares 32 and 2, so 30 / 34."""
    values, subjects = np.array([1.0, 3, 5, 7, 9, 11]), np.repeat([4, 2, 9], 2)
    known = (32 - 2) / (32 + 2)
    assert intraclass_correlation([(values, subjects)]) == pytest.approx(known)
    # The two sides may have means of their own.
    both = [(values, subjects), (values + 100, subjects + 10)]
    assert intraclass_correlation(both) == pytest.approx(known)
    assert intraclass_correlation([(values, np.arange(6))]) is None
    assert intraclass_correlation([(values, np.zeros(6, np.int64))]) is None
    assert intraclass_correlation([(np.tile([0.0, 2.0], 3), subjects)]) == 0.0
    assert design_effect(np.array([4, 4]), 0.5) == 2.5
    assert design_effect(np.array([1, 3]), 1.0) == pytest.approx(10 / 4)


def test_intraclass_correlation__of_unequal_subjects_is_near_the_truth() -> None:
    stream, sizes = np.random.default_rng(3), np.random.default_rng(1).integers(1, 9, 400)
    of = np.repeat(np.arange(400), sizes)
    values = 0.4**0.5 * stream.normal(size=400)[of] + 0.6**0.5 * stream.normal(size=len(of))
    found = intraclass_correlation([(values[:900], of[:900]), (values[900:], of[900:])])
    assert found == pytest.approx(0.4, abs=0.06)


def test_images_needed__of_subjects_says_how_many_show_the_leak() -> None:
    """Subjects that are worth 2 images each: as many as their limits, with their freedom, need."""
    needed = images_needed(0.6, 6, worth=2.0)
    assert needed is not None
    shown = [
        smallest_detectable_auc(2 * n, 2 * n, 6, subjects=(n, n)) or 1 for n in (needed, needed - 1)
    ]
    assert shown[0] <= 0.6 < shown[1]
    alone = images_needed(0.6, 6)
    assert alone is not None and alone / 2 < needed < alone / 2 + 20
