"""One Ray for all tests of a worker: it takes seconds to start and to end."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def _ends_ray() -> Iterator[None]:
    yield
    from fedmia.federation import cluster  # imports Ray, which most tests do without

    cluster.disconnect()


@pytest.fixture
def one_ray(_ends_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this process on Ray share its session, which stays, as they would a caller's.

    It holds one actor, which serves all clients in turn; several are in tests/federation.
    """
    import ray

    from fedmia.federation import cluster

    if not ray.is_initialized():
        with monkeypatch.context() as patch:
            patch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
            cluster.connect(None)


@pytest.fixture
def no_ray() -> None:
    """Runs of this process start a Ray of their own, or join one."""
    from fedmia.federation import cluster

    cluster.disconnect()
