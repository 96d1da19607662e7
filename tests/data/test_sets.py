"""Sets of one kind: disjoint, whole, and known before anything is trained."""

from __future__ import annotations

import numpy as np

from fedmia.data.sets import MOST, form_sets


def test_form_sets__disjoint_whole_and_at_most_so_many() -> None:
    sets = form_sets(30, 3000, seed=1)
    assert [side.shape for side in sets] == [(3, 8), (MOST, 8)]
    for side, count in zip(sets, (30, 3000), strict=True):
        assert len(np.unique(side)) == side.size and side.min() >= 0 and side.max() < count


def test_form_sets__few_images_make_no_set() -> None:
    assert form_sets(7, 9, seed=0)[0].shape == (0, 8)
    assert form_sets(7, 9, seed=0, size=3)[0].shape == (2, 3)


def test_form_sets__depends_on_the_seed_and_on_its_side_alone() -> None:
    one, other = form_sets(40, 90, seed=1)[0], form_sets(40, 50, seed=1)[0]
    np.testing.assert_array_equal(one, other)
    assert (form_sets(40, 90, seed=2)[0] != one).any()
    assert one.ravel().tolist() != sorted(one.ravel().tolist())
