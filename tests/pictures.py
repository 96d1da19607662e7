"""Default tests lay pictures out but write empty files: painting takes half of a command's time.

Tests that look at pictures use the fixture `painted`; the runs of the bank are painted, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PAINT = "TESTS_PAINT"  # variable of the environment under which pictures are painted


@pytest.fixture(scope="session", autouse=True)
def _unpainted(pytestconfig: pytest.Config) -> Iterator[None]:
    """matplotlib paints nothing in default tests, but where it is asked to."""
    with pytest.MonkeyPatch.context() as patch:
        if pytestconfig.getoption("markexpr") == "not slow":
            from matplotlib.figure import Figure

            paint = Figure.savefig
            patch.setattr(
                Figure,
                "savefig",
                lambda *of, **how: paint(*of, **how) if PAINT in os.environ else None,
            )
        yield


@contextmanager
def painting() -> Iterator[None]:
    """matplotlib paints as it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PAINT, "1")
        yield


@pytest.fixture
def painted() -> Iterator[None]:
    """Pictures of this test are painted."""
    with painting():
        yield
