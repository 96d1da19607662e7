"""Federations under DP-SGD: what their report promises, and how one ends that diverges."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from fedmia.recording import Recording
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


@pytest.mark.slow
def test_public_queue__earns_the_guarantee_and_is_the_same_on_ray(
    one_ray: None, tmp_path: Path
) -> None:
    states = []
    for backend in ("inline", "ray"):
        flags = f"{DEFENDED} --attacker passive --backend {backend}"
        code, report = run(flags, tmp_path / backend)
        assert code == 0
        defended = [c["defence"]["epsilon"] for c in report["clients"] if c["defence"]]
        assert [e["standing"] for e in defended] == ["guaranteed"] * 2
        assert all(e["value"] > 0 and "queue" not in e["assumptions"] for e in defended)
        states.append(Recording(tmp_path / backend / "recording").load("main", 2))
    one, two = ({**state, **held} for state, held in states)
    assert all(torch.equal(t, two[n]) for n, t in one.items())
    # What the attacker holds is its queue, of keys of public images.
    assert one["public"][1] > 0 and len(one["queue"]) == 6


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--defense.lr 3e38 --train.batch_size 2",
         "DP-SGD diverged at noise multiplier 1 and learning rate 3e+38: a lower defense.dpsgd.lr"),
        ("--defense.lr 1e38", "training diverged under dpsgd (noise_multiplier 1, lr 1e+38): "),
    ],
)  # fmt: skip
def test_divergence__one_line_names_the_strength(
    flags: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(DEFENDED + flags, tmp_path / "out")
    assert code == 1 and words in capsys.readouterr().err.strip().splitlines()[-1]
