"""The one rule by which work that is not done yet is forecast."""

from __future__ import annotations

import pytest

from fedmia.runtime.forecast import cost_of, makespan, paid_once


def test_cost__is_what_is_paid_once_and_so_much_a_unit() -> None:
    assert cost_of(100, 4.0, 8) == 50 and cost_of(100, 4.0, 8, once=3.0) == 53
    assert cost_of(0, 4.0, 8, once=3.0) == 3


def test_first_piece__pays_what_later_ones_do_not() -> None:
    assert paid_once(9.0, 2, 6.0, 3) == 9 - 2 * 2
    assert paid_once(3.0, 2, 6.0, 3) == 0  # never less than nothing


@pytest.mark.parametrize(
    ("seconds", "workers", "end"),
    [
        ((), 2, 0),
        ((5, 5, 5), 1, 15),
        ((5, 5, 5), 2, 10),  # one worker is idle at last
        ((5, 5, 5), 9, 5),
        ((1, 4, 2, 2), 2, 5),  # in their order, each by the first that is free
    ],
)
def test_makespan__of_pieces_side_by_side(
    seconds: tuple[float, ...], workers: int, end: float
) -> None:
    assert makespan(seconds, workers) == end
