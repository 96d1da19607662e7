"""How cores are shared among processes side by side, on a machine of as many as is made believe."""

from __future__ import annotations

import os

import pytest

from fedmia.runtime.cores import bind_cores, count_cores, share_cores

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="the system binds no process to cores"
)


@pytest.mark.parametrize(
    ("jobs", "want"),
    [
        (1, [[2, 3, 5, 7, 8]]),
        (2, [[2, 5, 8], [3, 7]]),
        (5, [[2], [3], [5], [7], [8]]),
        (7, [[2], [3], [5], [7], [8], [2], [3]]),
        (0, []),
    ],
)
def test_dealt__all_cores_alike(
    jobs: int, want: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {8, 2, 3, 7, 5})
    assert count_cores() == 5 and share_cores(jobs) == want


def test_bound__inside_alone() -> None:
    before = os.sched_getaffinity(0)
    one = min(before)
    with pytest.raises(KeyError), bind_cores([one]):
        assert os.sched_getaffinity(0) == {one} and count_cores() == 1
        raise KeyError
    assert os.sched_getaffinity(0) == before
    with bind_cores([]):
        assert os.sched_getaffinity(0) == before
