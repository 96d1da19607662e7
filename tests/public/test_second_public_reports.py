"""A second draw of what other people met in public; each test names its thread.

`research/measurements/plans/public_reports_second.yaml` says what each must show, and what it
showed at first sight.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import nn

from fedmia.data.base import Request
from fedmia.defenses.base import Defense, Metrics
from fedmia.encoders.base import load
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.ssl.train import Job
from tests.public.test_public_reports import (
    ROOT,
    SMALL,
    Capture,
    audit_command,
    main,
    make_net,
    pictures,
    refusal,
    write_folder,
)

PLAN = ROOT / "research" / "measurements" / "plans" / "public_reports_second.yaml"


def test_drawn__have_a_test_and_a_result() -> None:
    plan = yaml.safe_load(PLAN.read_text(encoding="utf-8"))
    drawn = [report for report in plan["reports"] if report["id"] in plan["drawn"]]
    source = Path(__file__).read_text()
    assert len(drawn) == 20 and len(plan["reports"]) >= 60
    for report in drawn:
        assert report["as_it_was"]["result"] in ("pass", "wrong", "refused", "no help", "traceback")
        assert (report["as_it_was"]["result"] == "pass") != bool({"now", "left"} & report.keys())
        assert report["thread"].removeprefix("https://github.com/") in source
        assert f"def test_{report['id'].replace('-', '_')}(" in source


# Images


def loaded(path: Path) -> Any:
    """Pixels of a folder of images."""
    return registry.build("dataset", "folder", {}).load(Request(str(path), None, None, 0)).images


def gray_folder(path: Path, levels: Any, suffix: str) -> Path:
    """16-bit gray images (N, H, W) in two classes."""
    for i, image in enumerate(levels):
        (path / f"c{i % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path / f"c{i % 2}" / f"{i:03}.{suffix}")
    return path


def deep_images(kind: str, suffix: str, top: int, tmp_path: Path, capsys: Capture) -> None:
    levels = (pictures(24)[..., 0].astype(np.float64) / 255 * top).astype(kind)
    sides = [
        gray_folder(tmp_path / name, levels[at], suffix)
        for name, at in (("in", slice(12)), ("out", slice(12, 24)))
    ]
    flags = "--members folder:{} --nonmembers folder:{}".format(*sides)
    line = refusal(f"audit --encoder {__name__}:make_net {flags}", capsys)
    assert "16" in line and suffix in line.lower()


def test_gray16_big_endian(tmp_path: Path, capsys: Capture) -> None:
    """python-pillow/Pillow/issues/5991: a big-endian 16-bit image is ruined by a conversion."""
    deep_images(">u2", "tif", 65535, tmp_path, capsys)


def test_png_12_bit(tmp_path: Path, capsys: Capture) -> None:
    """imageio/imageio/issues/1049: a 12-bit image in a 16-bit PNG changes its values."""
    deep_images("<u2", "png", 4095, tmp_path, capsys)


def test_palette_4_bit(tmp_path: Path) -> None:
    """JimBobSquarePants/ImageProcessor/issues/323: a palette of 4 bits gets other colours."""
    colours = write_folder(tmp_path / "rgb", pictures(6) // 128 * 255)  # eight of them
    for file in sorted(colours.rglob("*.png")):
        at = tmp_path / "palette" / file.relative_to(colours)
        at.parent.mkdir(parents=True, exist_ok=True)
        Image.open(file).quantize(16).save(at, bits=4)
        assert Image.open(at).mode == "P"
    np.testing.assert_array_equal(loaded(colours), loaded(tmp_path / "palette"))


def with_files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / "c0" / name).write_bytes(b"\0\1Bud1")
    return folder


def test_hidden_file_as_image(tmp_path: Path) -> None:
    """fastai/fastai/issues/488: .DS_Store in a folder of images cannot be read."""
    folder = write_folder(tmp_path / "x", pictures(6))
    plain = loaded(folder)
    np.testing.assert_array_equal(plain, loaded(with_files(folder, ".DS_Store", "._000.png")))


def test_thumbs_db(tmp_path: Path) -> None:
    """d8ahazard/sd_dreambooth_extension/issues/64: Thumbs.db in a folder stops the training."""
    folder = write_folder(tmp_path / "x", pictures(6))
    plain = loaded(folder)
    np.testing.assert_array_equal(plain, loaded(with_files(folder, "Thumbs.db", "desktop.ini")))


def test_no_parquet(tmp_path: Path, capsys: Capture) -> None:
    """huggingface/dataset-viewer/issues/2625: a file that is no parquet."""
    (tmp_path / "x.parquet").write_text("<html>404: not found</html>")
    line = refusal(f"simulate {SMALL} --dataset parquet:{tmp_path / 'x.parquet'}", capsys)
    assert "x.parquet" in line and "page of a web server" in line
    for name, text in (("text.parquet", "no parquet"), ("empty.parquet", "")):
        (tmp_path / name).write_text(text)
        line = refusal(f"simulate {SMALL} --dataset parquet:{tmp_path / name}", capsys)
        assert name in line


# Encoders and vectors


def test_compiled_inside(tmp_path: Path) -> None:
    """pytorch/torchtitan/issues/2622: names of a part that was compiled."""
    net = nn.Sequential(make_net(), nn.Linear(8, 8))
    inside = {
        name.replace("0.0.", "0.0._orig_mod."): tensor for name, tensor in net.state_dict().items()
    }
    assert inside.keys() != net.state_dict().keys()
    torch.save(inside, tmp_path / "w.pth")
    read = load(f"{__name__}:two_stages", checkpoint=tmp_path / "w.pth")
    pixels = torch.rand(2, 3, 16, 16)
    encoder = read.method.encoder
    torch.testing.assert_close(encoder(pixels), net.eval()(encoder.normalise(pixels)))


def two_stages() -> nn.Module:
    """A network of other weights than the file's."""
    return nn.Sequential(make_net(), nn.Linear(8, 8))


def test_head_of_other_size(tmp_path: Path) -> None:
    """zhanghang1989/PyTorch-Encoding/issues/100: a last layer of other classes is said."""
    models = pytest.importorskip("torchvision.models")
    torch.save(models.resnet18(num_classes=7).state_dict(), tmp_path / "w.pth")
    read = load("torchvision:resnet18", checkpoint=tmp_path / "w.pth")
    assert set(read.weights.dropped) == {"fc.weight", "fc.bias"}  # the report lists them


def test_random_remainder(tmp_path: Path) -> None:
    """lyakaap/ISC21-Descriptor-Track-1st/issues/6: half of the weights are drawn."""
    models = pytest.importorskip("torchvision.models")
    state = models.resnet18().state_dict()
    torch.save({n: t for n, t in state.items() if not n.startswith("layer4")}, tmp_path / "w.pth")
    with pytest.raises(InputError, match=r"'layer4\.0"):
        load("torchvision:resnet18", checkpoint=tmp_path / "w.pth")


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_bf16_unknown(kind: torch.dtype, tmp_path: Path, capsys: Capture) -> None:
    """safetensors/safetensors/issues/598: data type not understood."""
    from safetensors.torch import save_file

    for name in ("in", "out"):
        save_file({"x": torch.randn(30, 4).to(kind)}, tmp_path / f"{name}.safetensors")
    sides = f"--member-embeddings {tmp_path}/in.safetensors --nonmember-embeddings {tmp_path}/out"
    flags = f"{sides}.safetensors --attacks lpla --known 4 --out {tmp_path / 'A'}"
    assert main(f"audit {flags}".split()) == 0
    name = str(kind).removeprefix("torch.")
    assert capsys.readouterr().err.count(f"{name}, read as float32") == 2


class Five(nn.Module):
    """Takes images with an axis too many."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0].mean(dim=(2, 3))


@pytest.mark.slow
def test_onnx_rank(tmp_path: Path, capsys: Capture) -> None:
    """microsoft/onnxruntime/issues/9867: the program wants five axes."""
    pytest.importorskip("onnxruntime")
    one = (torch.zeros(1, 1, 3, 16, 16),)
    torch.onnx.export(Five(), one, tmp_path / "five.onnx", dynamo=False)
    images = pictures(48)
    command = audit_command(tmp_path, images[:24], images[24:])
    line = refusal(
        command.replace(
            f"{'tests.public.test_public_reports'}:make_net", str(tmp_path / "five.onnx")
        ),
        capsys,
    )
    assert "five.onnx takes (1, 1, 3, 16, 16); an encoder takes images (B, C, H, W)" in line


# Lists and settings


def test_byte_order_mark_alone(tmp_path: Path, capsys: Capture) -> None:
    """wireservice/csvkit/issues/662: a byte order mark before the first column's name."""
    path = tmp_path / "groups.csv"
    audit = "audit --encoder tests.auditing.brought:grey --members digits --nonmembers digits"
    for text, said in (
        ("side,image,subject\nmembers,0,3\n", "members have no subject (the first: image 1)"),
        ("image,subject\n0,3\n", "must begin with the line side,image,subject"),
    ):
        path.write_text(text, encoding="utf-8-sig")
        assert said in refusal(f"{audit} --groups {path}", capsys)


def test_exponent_in_a_range(tmp_path: Path, capsys: Capture) -> None:
    """beetbox/confuse/issues/155: 5e-4 is text, and no number of a range."""
    path = tmp_path / "x.yaml"
    path.write_text("partition: {name: dirichlet, alpha: 5e-4}\n")
    for flags in (f"--config {path}", "--partition dirichlet --partition.alpha 5e-4"):
        line = refusal(f"simulate {flags} --plan", capsys)  # read, and too small for ten clients
        assert "partition dirichlet: alpha 0.0005 gave some of 10 clients" in line


@pytest.mark.parametrize("command", ["simulate", "audit", "study"])
def test_seed_minus_one(command: str, capsys: Capture) -> None:
    """LZGMatrix/BOP19_CDPN_2019ICCV/issues/8: seed -1 fails in a worker."""
    flags = {"audit": "--encoder x.pth --members digits --nonmembers digits", "study": "smoke"}
    line = refusal(f"{command} {flags.get(command, '')} --seed -1", capsys)
    assert "--seed" in line and "-1" in line and ">= 0" in line


@pytest.mark.parametrize("command", ["simulate", "audit", "study"])
def test_folder_of_root(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """roboflow/roboflow-100-benchmark/issues/32: permission denied, with a traceback."""
    other = tmp_path / "other"
    other.mkdir(mode=0o555)
    if os.access(other, os.W_OK):  # root may write anywhere
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != other)
    images = pictures(48)
    flags = {
        "simulate": f"simulate {SMALL}",
        "audit": audit_command(tmp_path, images[:24], images[24:]).rpartition(" --out")[0],
        "study": f"study {SMALL.replace('--config ', '')} --seeds 2",
    }
    line = refusal(f"{flags[command]} --out {other / 'RUN'}", capsys)
    assert f"'{other / 'RUN'}' cannot be made: '{other}' cannot be written to" in line


# Federations and studies


@dataclass(frozen=True)
class Unreadable(Defense):
    """Fails in its client's second round."""

    def train(self, job: Job, memory: dict[str, Any]) -> Metrics:
        memory["rounds"] = memory.get("rounds", 0) + 1
        if memory["rounds"] == 2:
            raise RuntimeError("cannot read scan 17")
        return super().train(job, memory)


def test_failures_without_cause(tmp_path: Path, capsys: Capture) -> None:
    """flwrlabs/flower/issues/1400: failures are counted, and no error is shown."""
    out = tmp_path / "RUN"
    flags = f"simulate {SMALL} --on-failure drop".replace("clients 2", "clients 4").replace(
        "rounds 1", "rounds 3"
    )
    flags += f" --defense {__name__}:Unreadable --defended-clients 2"
    assert main([*flags.split(), "--out", str(out)]) == 0
    err = capsys.readouterr().err
    assert "client 2" in err and "round 2" in err and "cannot read scan 17" in err
    (fault,) = json.loads((out / "report.json").read_text())["faults"]
    assert (fault["round"], fault["client"]) == (2, 2) and "scan 17" in fault["reason"]


STUDY = (
    "study smoke --attacker none --attacks similarity --clients 2 --rounds 1 --quiet --over "
    "train.lr=0.05,0.1"
)


def finished(out: Path) -> dict[str, int]:
    """When the report of each run of a study was written, in nanoseconds."""
    return {str(p.parent.name): p.stat().st_mtime_ns for p in out.rglob("report.json")}


@pytest.mark.slow(seconds=30)
def test_deleted_run(tmp_path: Path) -> None:
    """wandb/wandb/issues/4283: a deleted run of a grid lets all others run again."""
    command = [*f"{STUDY} --seeds 2".split(), "--out", str(tmp_path / "S")]
    assert main(command) == 0
    before = finished(tmp_path / "S")
    assert len(before) == 4
    gone = next(p.parent for p in sorted((tmp_path / "S").rglob("report.json")))
    shutil.rmtree(gone)
    assert main(command) == 0
    after = finished(tmp_path / "S")
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == [gone.name]


@pytest.mark.slow(seconds=30)
def test_grid_goes_on(tmp_path: Path) -> None:
    """ashleve/lightning-hydra-template/issues/535: a grid that ended cannot go on."""
    command = [*STUDY.split(), "--out", str(tmp_path / "S"), "--seeds"]
    assert main([*command, "1"]) == 0
    before = finished(tmp_path / "S")
    assert main([*command, "2"]) == 0
    after = finished(tmp_path / "S")
    assert len(before) == 2 and len(after) == 4
    assert all(after[name] == at for name, at in before.items())


@pytest.mark.slow(seconds=60)
def test_study_killed(tmp_path: Path) -> None:
    """optuna/optuna/issues/6283: a run that was killed is passed over."""
    from tests.public.test_public_reports import started

    out = tmp_path / "S"
    command = f"{STUDY} --seeds 2"
    with started(command, "**/report.json", out) as process:
        process.kill()
        process.wait()
    assert len(finished(out)) < 4
    assert main([*command.split(), "--out", str(out)]) == 0
    assert len(finished(out)) == 4


NOTEBOOK = """
import torch
import fedmia

net = torch.nn.Conv2d(3, 8, 3)
net(torch.rand(64, 3, 32, 32)).sum().backward()
run = fedmia.run_simulation("smoke", attacker="none", attacks="similarity", clients=2, rounds=1,
                            backend="ray", quiet=True)
print("verdict", bool(run.verdict))
"""


@pytest.mark.slow(seconds=40)
def test_pool_hangs() -> None:
    """pytorch/pytorch/issues/17680: processes hang in a session that has used torch."""
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "verdict True" in done.stdout, done.stderr
