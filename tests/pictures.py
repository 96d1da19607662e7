"""Pictures are laid out, but most tests write empty files: painting takes half of a command's time.

Default tests paint none, not even the runs of the bank; those that look at pictures use the fixture
`painted`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

PAINT = "TESTS_PAINT"  # variable of the environment under which pictures are painted all the same


@contextmanager
def unpainted() -> Iterator[None]:
    """matplotlib paints nothing, but where it is asked to."""
    from matplotlib.figure import Figure

    paint = Figure.savefig
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Figure,
            "savefig",
            lambda *of, **how: paint(*of, **how) if PAINT in os.environ else None,
        )
        yield


@pytest.fixture(scope="session", autouse=True)
def _unpainted(pytestconfig: pytest.Config) -> Iterator[None]:
    """Default tests paint nothing."""
    with unpainted() if pytestconfig.getoption("markexpr") == "not slow" else nullcontext():
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
