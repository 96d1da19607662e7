"""Which processor `--device` names, with as many GPUs as torch is made to find."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedmia.evaluation.audits.prepare import device_of
from fedmia.federation import backends
from fedmia.federation.backends import GPU_WORKERS
from fedmia.federation.inline import InlineGrid
from fedmia.federation.ledger import Ledger
from fedmia.runtime import device as devices
from fedmia.runtime.device import bfloat16_note, gpus_if_missing, resolve_device
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.compatibility import check_experiment
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.commands.machine import FederationMachine
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree


@pytest.fixture(params=[0, 1, 2])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)
    return int(request.param)


def test_device__is_the_gpu_where_torch_finds_one(gpus: int) -> None:
    assert resolve_device("auto") == ("cuda" if gpus else "cpu")
    assert [resolve_device(d) for d in ("cpu", "cuda", "cuda:1")] == ["cpu", "cuda", "cuda:1"]
    missing = {d: gpus_if_missing(d) for d in ("cpu", "auto", "cuda", "cuda:0", "cuda:1")}
    first = None if gpus else 0
    second = None if gpus == 2 else gpus
    assert missing == {"cpu": None, "auto": None, "cuda": first, "cuda:0": first, "cuda:1": second}


def test_both_commands__refuse_a_gpu_that_is_not_there(gpus: int) -> None:
    here = f"the GPUs here are cuda:0 to cuda:{gpus - 1}"
    want = "machine.device (--device) cuda:2: " + (
        here if gpus else "torch finds no CUDA GPU on this machine"
    )
    with pytest.raises(InputError) as audited:
        device_of(from_tree(Audit, {"encoder": "x", "device": "cuda:2"}))
    with pytest.raises(InputError) as simulated:
        check_experiment(from_tree(Experiment, {"device": "cuda:2"}))
    assert str(audited.value) == str(simulated.value) == want


OF_RAY = {"backend": "ray", "gpus_per_client": 0.5}


def test_share_of_a_gpu__is_refused_where_torch_finds_none(gpus: int) -> None:
    experiment = from_tree(Experiment, OF_RAY)
    for own in ({"device": "cpu"}, {"ray_address": "auto"}):
        check_experiment(
            from_tree(Experiment, {**OF_RAY, **own})
        )  # the share is Ray's alone, or the cluster's to grant
    with nullcontext() if gpus else pytest.raises(InputError, match="gpus_per_client.* 0.5: torch"):
        check_experiment(experiment)


def test_threads__over_the_cores_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_cores", lambda: 2)
    assert devices.oversubscription_note("threads", 2) is None
    assert str(devices.oversubscription_note("threads", 3)).startswith("threads 3: there are 2 ")


@pytest.mark.parametrize(
    ("instructions", "device", "precision", "slow"),
    [
        ("AVX2", "cpu", "bfloat16", True), ("DEFAULT", "auto", "bfloat16", True),
        ("AVX512", "cpu", "bfloat16", False), ("AVX2", "cpu", "float32", False),
        ("AVX2", "cuda", "bfloat16", False),
    ],
)  # fmt: skip
def test_bfloat16_note__where_the_processor_lacks_instructions(
    instructions: str, device: str, precision: str, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    note = bfloat16_note(device, precision)
    assert (note is not None) == slow and (note is None or instructions in note)


def test_gpu__computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 would round what it convolves; a CPU needs no such word."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    resolve_device("cpu")
    assert torch.backends.cudnn.allow_tf32
    resolve_device("cuda:1")
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(("device", "workers"), [("cpu", 12), ("cuda", GPU_WORKERS)])
def test_inline__few_clients_at_once_on_a_gpu(
    device: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    class Counting(InlineGrid):
        def __init__(self, app: object, clients: int, workers: int, *rest: object) -> None:
            counts.append(workers)

        def close(self) -> None: ...

    monkeypatch.setattr(backends, "InlineGrid", Counting)
    monkeypatch.setattr(backends, "count_cores", lambda: 12)
    one = Experiment.complete(machine=FederationMachine(clients_at_once=1))
    setup: Any = SimpleNamespace(
        device=device, roles=("honest",) * 20, threads=1, experiment=one,
        parts={"members": [range(9)] * 10}, channels=3, size=8,
    )  # fmt: skip
    backends.run_inline(lambda grid: None, setup, Ledger())
    assert counts == [workers]
