"""What a CUDA GPU must do: `pytest -m gpu`. Without one every test says that it was skipped."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Known
from fedmia.defenses.dpsgd import DPSGD
from fedmia.nets.resnet import ResNet18
from fedmia.nets.smallnet import SmallNet
from fedmia.options import registry
from fedmia.options.seeding import rng, torch_rng
from fedmia.simulate import main
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Recipe, SSLMethod
from fedmia.ssl.moco import MoCo
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.testing.material import textures
from fedmia.threat import WhiteBox

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA GPU here"),
]
DEVICE = "cuda"


def method(device: str, net: Any = None, **options: Any) -> SSLMethod:
    recipe = Recipe((0.5,) * 3, (0.25,) * 3, 24)
    ssl_method = MoCo(dim=8, **options).build(
        (net or SmallNet(width=8)).build(3, 16), recipe, torch_rng(0, "gpu")
    )
    ssl_method.begin_first_round()
    return ssl_method.to(device)


def pictures(count: int, seed: int = 0) -> Tensor:
    return torch.nn.functional.interpolate(textures(count, seed), size=(16, 16))


def job_of(made: SSLMethod, device: str, **train: Any) -> Job:
    options = Train(**{"local_epochs": 2, "batch_size": 8, **train})
    return Job(
        made, make_optimizer(made, options), pictures(24).numpy(), Augment(hue=0.1, blur_p=0.5),
        options, rng(0, "gpu"), 0, 6, torch.device(device),
    )  # fmt: skip


def test_augment__gives_the_views_of_a_cpu() -> None:
    recipe, u = Augment(hue=0.1, blur_p=0.5, solarize_p=0.3), torch.rand(24, Augment().draws)
    here, there = recipe(pictures(24), u), recipe(pictures(24).to(DEVICE), u)
    wrong = ((here - there.cpu()).abs() > 1e-4).float().mean()
    assert there.is_cuda and wrong < 2e-3  # solarizing is a step


@pytest.mark.parametrize("net", [SmallNet(width=8), ResNet18(width=8)], ids=["small", "resnet18"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training__stays_near_a_cpus(net: Any, precision: str) -> None:
    losses = [
        job_of(method(device, net), device, precision=precision).run()["loss"]
        for device in ("cpu", DEVICE)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.05 if precision == "bfloat16" else 0.01)


def test_training__no_step_waits() -> None:
    job = job_of(method(DEVICE), DEVICE)
    job.run()  # what is set up once may wait
    stopped = iter([False] * job.step + [True])

    def watched() -> bool:
        torch.cuda.set_sync_debug_mode("error")  # from the first step on
        return next(stopped, True)

    again = job_of(method(DEVICE), DEVICE)
    again.stop = watched
    total: list[Tensor] = []
    losses = again.method.losses
    again.method.losses = lambda a, b: total.append(losses(a, b)) or total[-1]  # type: ignore
    try:
        with pytest.raises(RuntimeError, match="synchroniz"):
            again.run()  # only where it reads the losses, when the steps are over
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert again.step == len(total) == 6


def test_dpsgd__clips_and_repeats() -> None:
    ends = []
    for _ in range(2):
        made = method(DEVICE)
        found = DPSGD(max_grad_norm=0.1).train(job_of(made, DEVICE), {})
        assert found["clipped"] > 0 and np.isfinite(found["loss"])
        ends.append(made.shared_state())
    for name, tensor in ends[0].items():
        torch.testing.assert_close(tensor, ends[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["similarity", "variance-only", "grad-norm", "partcrop"])
def test_attacks__score_as_on_a_cpu(name: str) -> None:
    members, others, scored = pictures(12, 1), pictures(12, 2), pictures(10, 3)
    scores = []
    for device in ("cpu", DEVICE):
        own = {"held": torch.cat([members, others]), "device": torch.device(device)}
        view = WhiteBox(method(device).eval(), Augment(), seed=0, **own)
        attack = registry.build("attack", name, {})
        attack.fit(view, Known(members, others), rng(0, "fit"))
        scores.append(np.asarray(attack.score(view, scored)))
    np.testing.assert_allclose(scores[1], scores[0], rtol=0.02, atol=0.02)


def test_clients__train_beside_one_another_on_one_device() -> None:
    alone = [job_of(method(DEVICE), DEVICE) for _ in range(3)]
    ends = [job.run()["loss"] for job in alone]
    together = [job_of(method(DEVICE), DEVICE) for _ in range(3)]
    found: list[float] = []
    threads = [threading.Thread(target=lambda j=j: found.append(j.run()["loss"])) for j in together]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == pytest.approx(ends, rel=1e-3)


def test_simulate__runs_whole_on_a_gpu(tmp_path: Path) -> None:
    flags = (
        "--clients 4 --rounds 2 --train.local_epochs 1 --model.width 4 --split.members 32 "
        "--split.nonmembers 60 --split.known 8 --split.test 20 --attacks similarity --device cuda"
    )
    assert main([*flags.split(), "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.json").is_file()
