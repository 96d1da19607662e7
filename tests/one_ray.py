"""One Ray for all tests of a worker: it takes seconds to start and to end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def _ends_ray() -> Iterator[None]:
    from fedmia.federation import cluster  # imports Ray, which most tests do without

    disconnect = cluster.disconnect
    yield
    disconnect()


@pytest.fixture
def one_ray(_ends_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this process on Ray share one that stays, as they would a cluster's.

    It holds one actor, which serves all clients in turn; several are in tests/federation.
    """
    import ray

    from fedmia.federation import cluster

    if not ray.is_initialized():
        with monkeypatch.context() as patch:
            patch.setattr(cluster, "count_cores", lambda: 1)
            cluster.connect(None)
    monkeypatch.setattr(cluster, "connect", lambda address: None)
    monkeypatch.setattr(cluster, "disconnect", lambda: None)


@pytest.fixture
def no_ray() -> None:
    """Runs of this process start a Ray of their own, or join one."""
    from fedmia.federation import cluster

    cluster.disconnect()
