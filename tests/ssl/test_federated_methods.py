"""BYOL, DINO and SwAV in training and in rounds: no collapse, same bits again, a true average."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import clients.app
from fedmia.data.base import Request
from fedmia.data.digits import Digits
from fedmia.nets.smallnet import SmallNet
from fedmia.options import registry
from fedmia.options.seeding import rng, torch_rng
from fedmia.report.figures import draw
from fedmia.simulate import main
from fedmia.ssl.base import Recipe
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.storage.snapshot import SnapshotStore, Update

TINY = (
    "--clients 2 --rounds 2 --train.local_epochs 1 --model.width 2 --ssl.dim 8 "
    "--ssl.hidden 12 --split.members 33 --split.nonmembers 40 --split.known 8 --split.test 20 "
    "--device cpu --attacks similarity --attack.similarity.views 4 --federation.snapshots 2 "
)
METHODS = {
    "byol": ("--ssl byol ", "predictor."),
    "dino": ("--ssl dino --ssl.prototypes 8 --ssl.freeze_epochs 0 ", "prototypes."),
    "swav": ("--ssl swav --ssl.prototypes 4 --ssl.queue 16 --ssl.freeze_epochs 0 ", "prototypes."),
}


SMALL: dict[str, dict[str, int]] = {
    "byol": {},
    "dino": {"prototypes": 16},
    "swav": {"prototypes": 16, "queue": 64},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_training__loss_falls_and_the_outputs_stay_apart(name: str) -> None:
    images = Digits().load(Request(None, None, None, 0)).images[:64]
    mild = {"crop_min": 0.9, "flip": 0.0, "jitter": 0.25, "dim": 32, **SMALL[name]}
    spec = registry.build("ssl", name, mild)
    recipe = Recipe((float(images.mean() / 255),), (float(images.std() / 255),), 64)
    backbone = SmallNet(width=4).build(1, images.shape[2])
    method = spec.build(backbone, recipe, torch_rng(0, "test"))
    train = Train(local_epochs=1, batch_size=8)
    optimizer, losses = make_optimizer(method, train), []
    for epoch in range(32):
        job = Job(
            method=method, optimizer=optimizer, images=images, augment=spec.augment, train=train,
            rng=rng(0, "train", epoch), step=8 * epoch, total_steps=256,
            device=torch.device("cpu"),
        )  # fmt: skip
        losses.append(job.run()["loss"])
    assert losses[-1] < 0.9 * max(losses[:5])
    method.eval()
    with torch.no_grad():
        z = F.normalize(method.encoder(torch.from_numpy(images).float() / 255), dim=1)
    spread = float(z.std(dim=0).mean()) * z.shape[1] ** 0.5  # 1: spread over all directions
    assert spread > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", METHODS)
def test_training__in_either_precision_keeps_float32_state(name: str, precision: str) -> None:
    images = Digits().load(Request(None, None, None, 0)).images[:9]  # the last batch is one image
    spec = registry.build("ssl", name, {"dim": 8})
    method = spec.build(SmallNet(width=2).build(1, 8), Recipe((0.3,), (0.3,), 9), torch_rng(0, "t"))
    train = Train(local_epochs=2, batch_size=4, precision=precision)
    job = Job(
        method=method, optimizer=make_optimizer(method, train), images=images,
        augment=spec.augment, train=train, rng=rng(0, "train"), step=0, total_steps=6,
        device=torch.device("cpu"),
    )  # fmt: skip
    assert job.run()["loss"] > 0
    state = method.shared_state() | method.local_state()
    assert {t.dtype for t in state.values()} <= {torch.float32, torch.int64}
    assert all(bool(torch.isfinite(t).all()) for t in state.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_rounds__repeat_bit_by_bit_and_average_what_is_shared(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags, prefix = METHODS[name]
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})  # slow, tested elsewhere
    updates: list[Update] = []
    work = clients.app._work_round

    def recorded(*args: Any) -> Update:
        updates.append(work(*args))
        return updates[-1]

    monkeypatch.setattr(clients.app, "_work_round", recorded)
    reports, states = [], []
    for folder in ("one", "two"):
        out = tmp_path / folder
        assert main([*shlex.split(TINY + flags), "--quiet", "--out", str(out)]) == 0
        report = json.loads((out / "report.json").read_text())
        reports.append({k: v for k, v in report.items() if k != "timing"})
        states.append(SnapshotStore(out / "snapshots").load("main", 2).state)
    assert reports[0] == reports[1]
    assert all(torch.equal(states[0][n], states[1][n]) for n in states[0])
    last = [u for u in updates[: len(updates) // 2] if u.round == 2]
    assert len(last) == 2
    names = [n for n in states[0] if n.startswith(prefix)]
    assert names
    for n in names:
        mean = (last[0].state[n] + last[1].state[n]) / 2  # clients weigh alike by default
        torch.testing.assert_close(states[0][n], mean, atol=1e-6, rtol=1e-5)
        assert not torch.equal(last[0].state[n], last[1].state[n]) or not n.endswith("weight")
