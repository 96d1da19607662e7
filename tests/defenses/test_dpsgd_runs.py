"""Federations under DP-SGD: what their report promises, and how one ends that diverges."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fedmia.simulate import main

TINY = (
    "--clients 3 --rounds 2 --train.local_epochs 1 --model.width 4 --split.members 24 "
    "--split.nonmembers 40 --split.known 8 --split.test 20 --split.public 12 --device cpu "
    "--attacks none --quiet --ssl.queue_source public --ssl.dim 8 --federation.snapshots 1 "
)
DEFENDED = "--defense dpsgd --defense.noise_multiplier 1 --defended-clients 0-1 "


def run(flags: str, out: Path) -> tuple[int, Any]:
    code = main([*shlex.split(TINY + flags), "--out", str(out)])
    report = out / "report.json"
    return code, json.loads(report.read_text()) if report.exists() else None


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "snapshots" / "main" / "round-0002.safetensors")


@pytest.mark.slow
def test_public_queue__earns_the_guarantee(tmp_path: Path) -> None:
    code, report = run(DEFENDED + "--attacker passive", tmp_path / "out")
    assert code == 0
    defended = [c["defence"]["epsilon"] for c in report["clients"] if c["defence"]]
    assert [e["standing"] for e in defended] == ["guaranteed"] * 2
    assert all(e["value"] > 0 and "queue" not in e["assumptions"] for e in defended)
    state = weights(tmp_path / "out")
    # What the attacker holds is its queue, of keys of public images.
    assert state["holder.public"][1] > 0 and len(state["holder.queue"]) == 6


@pytest.mark.slow
def test_public_queue__same_on_ray(one_ray: None, tmp_path: Path) -> None:
    for name, more in (("inline", ""), ("ray", "--backend ray")):
        assert run(DEFENDED + more, tmp_path / name)[0] == 0
    one, two = weights(tmp_path / "inline"), weights(tmp_path / "ray")
    assert all(torch.equal(t, two[n]) for n, t in one.items())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--defense.lr 3e38 --train.batch_size 2",
         "DP-SGD diverged at noise multiplier 1 and learning rate 3e+38: a lower defense.lr"),
        ("--defense.lr 1e38", "training diverged under dpsgd (noise_multiplier 1, lr 1e+38): "),
    ],
)  # fmt: skip
def test_divergence__one_line_names_the_strength(
    flags: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(DEFENDED + flags, tmp_path / "out")
    assert code == 1 and words in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.slow
def test_mae__stays_finite_beside_defended_clients(tmp_path: Path) -> None:
    flags = (
        "--clients 4 --rounds 1 --model vit-tiny --ssl mae --attacks none --quiet --device cpu "
        "--defense dpsgd --defense.epsilon 8 --defended-clients 0-1 --train.local_epochs 4 "
        "--split.members 64 --split.nonmembers 40 --split.known 8 --split.test 20"
    )
    assert main([*shlex.split(flags), "--out", str(tmp_path / "out")]) == 0
