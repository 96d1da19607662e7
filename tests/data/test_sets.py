"""Sets of one kind: disjoint, whole, and known before anything is trained."""

from __future__ import annotations

import numpy as np

from fedmia.data.sets import MOST, form_sets


def test_form_sets__disjoint_whole_and_at_most_so_many() -> None:
    sets = form_sets(30, 3000, seed=1)
    assert sets.size == 8
    assert sets.members.shape == (3, 8) and sets.nonmembers.shape == (MOST, 8)
    for side, count in ((sets.members, 30), (sets.nonmembers, 3000)):
        assert len(np.unique(side)) == side.size and side.min() >= 0 and side.max() < count


def test_form_sets__few_images_make_no_set() -> None:
    assert form_sets(7, 9, seed=0).members.shape == (0, 8)
    assert form_sets(7, 9, seed=0, size=3).members.shape == (2, 3)


def test_form_sets__depends_on_the_seed_and_on_its_side_alone() -> None:
    one, other = form_sets(40, 90, seed=1), form_sets(40, 50, seed=1)
    np.testing.assert_array_equal(one.members, other.members)
    assert (form_sets(40, 90, seed=2).members != one.members).any()
    assert one.members.ravel().tolist() != sorted(one.members.ravel().tolist())
