"""What a CUDA GPU must do: `pytest -m gpu`. Without one every test says that it was skipped.

torch and fedmia are enough for most of it; flwr, ray and opacus are asked for where they are used.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from fedmia.attacks.base import Known
from fedmia.defenses.dpsgd import DPSGD
from fedmia.nets.resnet import ResNet18
from fedmia.nets.smallnet import SmallNet
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod, TrainingData
from fedmia.ssl.moco import MoCo
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.testing.material import textures
from fedmia.threat import WhiteBox

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA GPU here"),
]
DEVICE = "cuda"


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every command sees to, of which `test_simulate__runs_whole_on_a_gpu` is one."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def method(device: str, net: Any = None, **options: Any) -> SSLMethod:
    training_data = TrainingData((0.5,) * 3, (0.25,) * 3, 24)
    ssl_method = MoCo(dim=8, **options).build(
        (net or SmallNet(width=8)).build(3, 16), training_data, torch_rng(0, "gpu")
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
    training_data, u = Augment(hue=0.1, blur_p=0.5, solarize_p=0.3), torch.rand(24, Augment().draws)
    here, there = training_data(pictures(24), u), training_data(pictures(24).to(DEVICE), u)
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
    pytest.importorskip("opacus")
    ends = []
    for _ in range(2):
        made = method(DEVICE)
        found = DPSGD(max_grad_norm=0.1).train(job_of(made, DEVICE), {})
        assert found["clipped"] > 0 and np.isfinite(found["loss"])
        ends.append(made.shared_state())
    for name, tensor in ends[0].items():
        torch.testing.assert_close(tensor, ends[1][name], rtol=1e-3, atol=1e-4)


# Most difference from a CPU's scores, in standard deviations of the scores. Rounding leaves 1e-5; a
# fit on 24 images enlarges it: ten times in a logistic regression, a thousand in one on variances.
BOUNDS = {
    "similarity": 1e-3,
    "grad-norm": 1e-3,
    "lpla": 1e-3,
    "internal": 1e-3,
    "combined": 2e-3,
    "variance-only": 0.03,
}


def views_of(seed: int) -> tuple[list[WhiteBox], Known, Tensor]:
    """Views of one encoder on the CPU and on the GPU, known images, and images to score."""
    members, others, scored = (pictures(n, seed + i) for i, n in enumerate((12, 12, 10)))
    held = torch.cat([members, others])
    views = [
        WhiteBox(method(d).eval(), Augment(), seed=0, held=held, device=torch.device(d))
        for d in ("cpu", DEVICE)
    ]
    return views, Known(members, others), scored


@pytest.mark.parametrize("seed", [1, 11, 21])
@pytest.mark.parametrize("name", BOUNDS)
def test_attacks__score_as_on_a_cpu(name: str, seed: int) -> None:
    views, known, scored = views_of(seed)
    scores = []
    for view in views:
        attack = registry.build("attack", name, {})
        attack.fit(view, known, rng(0, "fit"))
        scores.append(np.asarray(attack.score(view, scored)))
    assert np.abs(scores[1] - scores[0]).max() < BOUNDS[name] * scores[0].std()


def test_partcrop__reads_what_it_reads_on_a_cpu() -> None:
    """Its network, trained from near zero, turns on rounding: of its inputs alone can be asked."""
    views, _, scored = views_of(1)
    attack = registry.build("attack", "partcrop", {})
    for here, there in zip(*(attack.inputs(view, scored) for view in views), strict=True):
        assert (here - there.cpu()).norm() < 1e-4 * here.norm()


def test_outputs__are_those_of_a_cpu() -> None:
    """Of views in float32, which TF32 is not: with it they differ by 1e-4 of their length."""
    rows = []
    for device in ("cpu", DEVICE):
        view = WhiteBox(method(device).eval(), Augment(), seed=0, device=torch.device(device))
        rows.append(view.embed_views(pictures(10, 3), 8))
    assert (rows[1] - rows[0]).norm() < 1e-5 * rows[0].norm()


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


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["moco", "mocov2", "simclr", "mocov3"])
def test_clients__in_one_pass_are_one_after_the_other(
    name: str, precision: str, tmp_path: Path
) -> None:
    pytest.importorskip("flwr")
    from tests.equivalence.test_clients_at_once import METHODS, THIRD, small_clients, worked
    from tests.small_setup import changed

    setup = small_clients(tmp_path)
    train = replace(setup.experiment.train, local_epochs=3, precision=precision)
    setup = changed(setup, ssl=METHODS[name], train=train, device=DEVICE)
    (alone, _), (together, store) = (
        worked(setup, side, THIRD.get(name, 2)) for side in (False, True)
    )
    near = 0.1 if precision == "bfloat16" else 1e-3
    for one, other in zip(alone, together, strict=True):
        assert other.metrics["loss"] == pytest.approx(one.metrics["loss"], rel=near)
        for weight, tensor in one.state.items() if precision == "float32" else ():
            torch.testing.assert_close(
                other.state[weight].cpu(), tensor.cpu(), rtol=near, atol=1e-4
            )
    state = store.load("main", 0)  # what stays is where it is needed next
    assert state is not None and all(t.is_cuda for n, t in state.tensors.items() if t.dim())


def test_simulate__lets_clients_train_in_one_pass(tmp_path: Path) -> None:
    """Each by itself they would take 32 passes in two rounds."""
    pytest.importorskip("flwr")
    from fedmia.simulate import main

    passes = list[nn.Module]()

    def count(module: nn.Module, inputs: object) -> None:
        if module.training and isinstance(module, nn.Conv2d) and module.in_channels == 1:
            passes.append(module)

    flags = (
        "--clients 8 --rounds 2 --train.local_epochs 1 --model.width 4 --split.members 64 "
        "--split.nonmembers 60 --split.known 8 --split.test 20 --attacks similarity --device cuda "
        "--partition iid --attacker none --federation.placebo false"
    )
    with register_module_forward_pre_hook(count):
        assert main([*flags.split(), "--out", str(tmp_path / "run")]) == 0
    assert 0 < len(passes) < 8


def apart(code: str, visible: str) -> str:
    """What a process of its own prints, which sees only the GPUs of `visible`."""
    own = os.environ | {"CUDA_VISIBLE_DEVICES": visible}
    done = subprocess.run(
        [sys.executable, "-c", code], env=own, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_client_device__of_a_process_that_sees_the_last_gpu_alone() -> None:
    """Whatever its number, it is the first that the process sees."""
    code = (
        "import torch\n"
        "from fedmia.runtime.device import client_device\n"
        "device = client_device('cuda:7', 0.25)\n"
        "print(device, torch.ones(2, device=device).device, torch.cuda.device_count())"
    )
    last = str(torch.cuda.device_count() - 1)
    assert apart(code, last).split() == ["cuda", "cuda:0", "1"]


def test_share__of_memory_holds() -> None:
    """Of a quarter an eighth can be had, three eighths cannot."""
    code = (
        "import torch\n"
        "torch.cuda.set_per_process_memory_fraction(0.25)\n"
        "whole = torch.cuda.get_device_properties(0).total_memory\n"
        "first = torch.empty(whole // 8, dtype=torch.uint8, device='cuda')\n"
        "try:\n"
        "    torch.empty(whole // 4, dtype=torch.uint8, device='cuda')\n"
        "except torch.OutOfMemoryError:\n"
        "    print('refused')"
    )
    assert apart(code, "0").split() == ["refused"]


@pytest.mark.parametrize("backend", ["inline", "ray"])
def test_simulate__runs_whole_on_a_gpu(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("flwr", "opacus", *["ray"] * (backend == "ray")):
        pytest.importorskip(package)
    from fedmia.simulate import main

    flags = (
        "--clients 4 --rounds 2 --train.local_epochs 1 --model.width 4 --split.members 32 "
        "--split.nonmembers 60 --split.known 8 --split.test 20 --attacks similarity --device cuda "
    )
    torch.backends.cudnn.allow_tf32 = True
    flags += f"--backend {backend} " + "--gpus-per-client 0.25 " * (backend == "ray")
    assert main([*flags.split(), "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.json").is_file()
    assert not torch.backends.cudnn.allow_tf32
    if backend == "ray":
        assert "train on the CPU" not in capsys.readouterr().err


SMOKE = "--config smoke --device cuda --quiet"
COMMANDS = {
    "active": ("simulate", SMOKE),
    "rehearsed": ("simulate", f"{SMOKE} --clients 6 --strategy krum --attack.ascent.server known"),
    "scaffold": ("simulate", f"{SMOKE} --strategy scaffold --attacker passive"),
    "dpsgd": ("simulate", f"{SMOKE} --attacker passive --defense dpsgd"),
    "resnet18": (
        "simulate",
        f"{SMOKE} --model resnet18 --model.width 4 --dataset synthetic --data.pixels 16 "
        "--attacker server",
    ),
    "sweep": ("study.__main__", "smoke --attacks similarity --seeds 2 --device cuda --quiet"),
    "tradeoff": (
        "study.__main__",
        "smoke --attacks similarity --attacker passive --seeds 2 --jobs 4 "
        "--defenses gaussian --split.public 24 --device cuda --quiet",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands__run_whole_on_a_gpu(name: str, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    command, flags = COMMANDS[name]
    main = importlib.import_module(f"fedmia.{command}").main
    assert main([*flags.split(), "--out", str(tmp_path / "OUT")]) == 0


def test_audit__runs_whole_on_a_gpu(tmp_path: Path) -> None:
    """Of a run's encoder: shadows are trained there, all that is scored is scored there."""
    pytest.importorskip("flwr")
    from tests.commands import fedmia

    run = str(tmp_path / "RUN")
    assert fedmia(f"simulate {SMOKE} --attacks similarity --out {run}").code == 0
    flags = f"--encoder {run} --shadows 2 --shadow.epochs 1 --device cuda --quiet"
    assert fedmia(f"audit {flags}", tmp_path / "AUDIT").code == 0
