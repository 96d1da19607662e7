"""How many images play each role."""

from __future__ import annotations

import pytest

from fedmia.partitions.sizes import SplitOptions, check_clients, role_sizes
from fedmia.settings.errors import InputError


@pytest.mark.parametrize(
    ("malicious", "placebo", "reserve"), [(0, False, 0), (1, False, 25), (1, True, 125)]
)
def test_role_sizes__reserve_has_a_share_for_each_taker(
    malicious: int, placebo: bool, reserve: int
) -> None:
    """Four honest clients share 100 members, so each taker of the reserve gets 25."""
    options = SplitOptions(members=100, nonmembers=50, known=10, test=20, public=5)
    sizes = role_sizes(options, 4 + malicious, malicious, placebo, 1000, "toy")
    assert sizes == dict(members=100, nonmembers=50, test=20, public=5, reserve=reserve)


def test_role_sizes__too_few_images() -> None:
    options = SplitOptions(members=100, nonmembers=50, known=10, test=20)
    assert role_sizes(options, 4, 0, False, 170, "toy")["nonmembers"] == 50
    with pytest.raises(InputError, match="170 images needed, toy has 169 distinct"):
        role_sizes(options, 4, 0, False, 169, "toy")


def test_check_clients__at_least_two_images_an_honest_client() -> None:
    check_clients(SplitOptions(members=6, known=2), 4, 1)
    with pytest.raises(InputError, match="at least 6 needed"):
        check_clients(SplitOptions(members=5, known=2), 4, 1)
