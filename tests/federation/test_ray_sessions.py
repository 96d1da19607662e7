"""Ray that is there already, and Ray that cannot be had."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedmia.federation import backends, cluster
from fedmia.options.errors import InputError
from fedmia.simulate import main

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    "--clients 2 --rounds 1 --train.local_epochs 1 --model.width 4 --split.members 16 "
    "--split.nonmembers 30 --split.known 4 --split.test 10 --device cpu --attacks none "
)
LONG = "validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /x"
USER = """
import sys
import ray
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
from fedmia.simulate import main
code = main(sys.argv[1:])
assert ray.get(ray.put(3)) == 3, "the session was ended"
sys.exit(code)
"""
Patch = pytest.MonkeyPatch


@pytest.fixture
def calls(monkeypatch: Patch) -> list[str]:
    """What is asked of Ray, which is in the session of the caller."""
    names = list[str]()
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: True)
    for name in ("init", "shutdown"):
        monkeypatch.setattr(cluster.ray, name, lambda name=name, **more: names.append(name))
    return names


@pytest.mark.parametrize("address", [None, "auto"])
def test_session_of_the_caller__is_used_and_left(
    address: str | None, calls: list[str], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(cluster, "RayGrid", lambda *given: SimpleNamespace(close=lambda: None))
    context: Any = SimpleNamespace(roles=["honest"])
    served = list[Any]()
    backends.run_ray(served.append, context, None, 1.0, 0.0, address)  # type: ignore[arg-type]
    assert len(served) == 1 and calls == []


def test_session_of_the_caller__is_not_another_cluster(calls: list[str]) -> None:
    with pytest.raises(InputError, match=r"ray_address=h:1: this process is in a Ray session .*"):
        cluster.connect("h:1")
    assert calls == []


@pytest.mark.parametrize(
    ("error", "way_out"),
    [
        (OSError(LONG), "set TMPDIR to a folder with a shorter path, such as /tmp"),
        (RuntimeError("no memory\nfor it"), "--backend inline needs no Ray"),
        (ValueError("no memory"), "--backend inline needs no Ray"),
        (Exception("no memory"), "--backend inline needs no Ray"),
    ],
)
def test_ray_that_cannot_start__is_bad_input_with_the_way_out(
    error: Exception, way_out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: Patch, calls: list[str],
) -> None:  # fmt: skip
    def init(**options: Any) -> None:
        raise error

    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", init)
    line = f"{TINY} --backend ray --quiet --out {tmp_path / 'RUN'}"
    assert main(shlex.split(line)) == 2
    err = capsys.readouterr().err
    first = str(error).partition("\n")[0]
    assert err == f"fedmia: error: --backend ray: Ray cannot be started ({first}); {way_out}\n"
    assert not (tmp_path / "RUN").exists() and calls == ["shutdown"]


@pytest.mark.slow(seconds=15)
def test_session_of_the_caller__serves_a_run(tmp_path: Path) -> None:
    line = [sys.executable, "-c", USER, *TINY.split(), "--backend", "ray", "--quiet"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
