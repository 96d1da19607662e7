"""Methods in training and in rounds: no collapse, same bits again, a true average."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fedmia.nets.base import Net
from fedmia.nets.smallnet import SmallNet
from fedmia.recording import Recording
from fedmia.seeding import rng
from fedmia.ssl.train import Job, Train, make_optimizer
from tests.equivalence.conftest import tiny
from tests.small_runs import ran
from tests.ssl.methods import PATCHED, build, case
from tests.watched import same

# Options, network, epochs; MoCo v3 and SimCLR need more of all without batch norm.
THIN, WIDE, PATCHES = SmallNet(width=8), SmallNet(width=16), replace(PATCHED, width=32)
LEARNING: dict[str, tuple[dict[str, float], Net, int]] = {
    "byol": ({"dim": 32}, THIN, 20), "vicreg": ({"dim": 32}, THIN, 20),
    "lejepa": ({"dim": 32, "sigreg": 0.3}, THIN, 20),  # 0.05 is little on batches of 8
    "simclr": ({"dim": 128}, WIDE, 50), "mocov3": ({"dim": 256}, WIDE, 50),
    "dino": ({"dim": 32, "prototypes": 16}, THIN, 20),
    "swav": ({"dim": 32, "prototypes": 16, "queue": 64}, THIN, 20),
    "mae": ({"decoder_width": 32}, PATCHES, 24),
    "dinov2": ({"dim": 32, "prototypes": 16}, PATCHES, 24),
}  # fmt: skip
# What is averaged beside the encoder.
AVERAGED = {
    "--ssl byol": "predictor.",
    "--ssl dino --ssl.prototypes 8 --ssl.freeze_epochs 0": "prototypes.",
    "--ssl swav --ssl.prototypes 4 --ssl.queue 16 --ssl.freeze_epochs 0": "prototypes.",
    "--ssl mae --ssl.decoder_width 8 --ssl.decoder_heads 2 --ssl.decoder_depth 1 --model vit-tiny "
    "--model.heads 2 --model.depth 4 --model.width 8": "decoder.",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNING)
def test_training__loss_falls_and_the_outputs_stay_apart(name: str, textures: Any) -> None:
    options, net, epochs = LEARNING[name]
    mild = {"crop_min": 0.8, "flip": 0.0, "jitter": 0.25, **options}
    small, images = case(name, **mild), textures(64)
    method = build(small.spec, images=64, net=net)
    # MoCo v3 collapses at three times this rate, on some processors and not on others.
    train = Train(local_epochs=1, batch_size=8, lr=0.02)
    job = Job(
        method, make_optimizer(method, train), images.numpy(), small.spec.augment, train,
        rng(0, "train"), 0, 10**6, torch.device("cpu"),
    )  # fmt: skip
    losses = [job.run()["loss"] for _ in range(epochs)]
    assert losses[-1] < 0.9 * max(losses[:5])
    method.eval()
    with torch.no_grad():
        z = F.normalize(method.encoder(images.float() / 255), dim=1)
    spread = float(z.std(dim=0).mean()) * z.shape[1] ** 0.5  # 1: spread over all directions
    assert spread > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("flags", AVERAGED)
def test_rounds__repeat_bit_by_bit_and_average_what_is_shared(flags: str, tmp_path: Path) -> None:
    line = tiny("--clients 2 --rounds 2 --attacks none --federation.keep_updates 2 " + flags)
    line += " --federation.snapshots 2"
    for name in ("one", "two"):
        ran(line, tmp_path / name)
    run, again = (Recording(tmp_path / name / "recording") for name in ("one", "two"))
    states = run.models()
    assert len(states) == 3 and all(same(states[r], again.models()[r]) for r in states)
    one, two = run.updates()[2].values()
    names = [n for n in states[2] if n.startswith(AVERAGED[flags])]
    assert names and not any(torch.equal(one[n], two[n]) for n in names if n.endswith("weight"))
    for name, tensor in states[2].items():  # clients weigh alike by default
        mean = (one[name].double() + two[name].double()) / 2
        torch.testing.assert_close(tensor.double(), mean, atol=1e-6, rtol=1e-5)
