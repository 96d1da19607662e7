"""Which processor `--device` names, with as many GPUs as torch is made to find; and what a run says
of its processor before its first round."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.commands import fedmia

ENDS = "--clients 2 --attacks none --strategy tests.watched:Refuses "  # before the first round


@pytest.fixture(params=[0, 1, 2])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)
    return int(request.param)


def test_both_commands__refuse_a_gpu_that_is_not_there(gpus: int) -> None:
    here = f"the GPUs here are cuda:0 to cuda:{gpus - 1}"
    want = "machine.device (--device) cuda:2: " + (
        here if gpus else "torch finds no CUDA GPU on this machine"
    )
    none = Path(__file__).resolve().parent / "none"
    for line in (
        "simulate --device cuda:2", "simulate --device cuda" * (not gpus),
        f"audit --encoder x.pt --members {none} --nonmembers {none} --device cuda:2",
    ):  # fmt: skip
        if line:
            ran = fedmia(line)
            where = want if "cuda:2" in line else want.replace("cuda:2", "cuda")
            assert (ran.code, ran.err) == (2, f"fedmia: error: {where}\n")


def test_share_of_a_gpu__is_refused_where_torch_finds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ran = fedmia("simulate --backend ray --gpus-per-client 0.5")
    assert ran.code == 2 and "gpus_per_client" in ran.err and " 0.5: torch" in ran.err


@pytest.mark.parametrize(
    ("instructions", "precision", "slow"),
    [
        ("AVX2", "bfloat16", True), ("DEFAULT", "bfloat16", True), ("AVX512", "bfloat16", False),
        ("AVX2", "float32", False),
    ],
)  # fmt: skip
def test_bfloat16__is_said_to_be_slow_where_the_processor_lacks_instructions(
    instructions: str, precision: str, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And more threads than there are cores."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    ran = fedmia(f"simulate {ENDS} --train.precision {precision} --threads-per-client {2 + slow}")
    said = [line for line in ran.err.splitlines() if "bfloat16" in line]
    assert len(said) == slow and all(f"torch uses {instructions}" in line for line in said)
    assert ("threads_per_client (--threads-per-client) 3: there are 2 cores" in ran.err) is slow
