"""A small file that unfolds to a large one."""

from __future__ import annotations

import pytest

from fedmia.settings.errors import InputError
from fedmia.untrusted.limits import ROOM, TIMES, check_unfolded


def test_unfolded__the_larger_of_both_bounds() -> None:
    check_unfolded("f", ROOM, 1)
    check_unfolded("f", TIMES * ROOM, ROOM)
    with pytest.raises(InputError, match="^f unfolds to 256 MiB from 0.0 MiB"):
        check_unfolded("f", ROOM + 1, 1)
    with pytest.raises(InputError, match="at most 20 times"):
        check_unfolded("f", TIMES * ROOM + 1, ROOM)
