"""Ray that is there already, and Ray that cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedmia.federation import cluster
from fedmia.settings.errors import InputError
from tests.small_runs import SMALL, simulate
from tests.snapshots import Snapshot

TINY = SMALL + "--clients 2 --rounds 1 --attacks none --backend ray "
LONG = "validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /x"
Patch = pytest.MonkeyPatch


@pytest.fixture
def calls(monkeypatch: Patch) -> list[str]:
    """What is asked of Ray, which is in the session of the caller."""
    names = list[str]()
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: True)
    for name in ("init", "shutdown"):
        monkeypatch.setattr(cluster.ray, name, lambda name=name, **more: names.append(name))
    return names


def test_session_of_the_caller__is_not_another_cluster(calls: list[str]) -> None:
    with pytest.raises(InputError, match=r"ray_address .* h:1: this process is in a Ray"):
        cluster.connect("h:1")
    assert calls == []


@pytest.mark.parametrize(
    "error",
    [OSError(LONG), RuntimeError("no memory\nfor it"), Exception("no memory")],
    ids=["long path", "lines", "plain"],
)
def test_ray_that_cannot_start__is_bad_input_with_the_way_out(
    error: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Patch,
    calls: list[str], snapshot: Snapshot,
) -> None:  # fmt: skip
    def init(**options: Any) -> None:
        raise error

    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", init)
    assert simulate(TINY, tmp_path / "RUN") == 2
    snapshot(capsys.readouterr().err)
    assert not (tmp_path / "RUN").exists() and calls == ["shutdown"]


@pytest.mark.slow(seconds=15)
def test_session_of_the_caller__serves_a_run_and_is_not_ended(
    one_ray: None, tmp_path: Path
) -> None:
    assert simulate(TINY, tmp_path / "RUN") == 0
    assert cluster.ray.get(cluster.ray.put(3)) == 3
