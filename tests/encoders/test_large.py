"""Large images: passes are bounded by pixels wherever an encoder is asked."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedmia.encoders.base import LoadOptions
from fedmia.encoders.describe import probe_encoder
from fedmia.encoders.memory import load_module
from fedmia.library import view
from fedmia.ssl import base
from fedmia.ssl.base import PART, SSLMethod, iterate_parts, outputs

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "large_inputs.py"
SIDE = 518
MOST = 3 * SIDE**2  # pixels of a pass


PASSES: list[int] = []  # pixels that came at once


class Counting(nn.Module):
    """Means of the four quarters of an image's channels."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        PASSES.append(len(x) * x.shape[2] * x.shape[3])
        return self.conv(self.pool(x))


def large(count: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randint(0, 256, (count, 3, SIDE, SIDE), dtype=torch.uint8)


def test_large__passes_are_of_few_images() -> None:
    images = large(4)
    released = load_module(Counting(), LoadOptions(size=SIDE))
    PASSES.clear()
    assert probe_encoder(released, images) == []
    assert 0 < max(PASSES) <= MOST
    attacker = view(released, held=images)
    PASSES.clear()
    attacker.embed_plain(images)
    assert SIDE**2 <= max(PASSES) <= MOST
    small = torch.zeros(2000, 3, 8, 8)
    assert [len(p) for p in attacker.passes(small)] == [500] * 4


def test_banks__are_filled_from_bytes_alike(make_moco: Any) -> None:
    images = torch.randint(0, 256, (9, 3, 8, 8), dtype=torch.uint8)
    filled: list[SSLMethod] = []
    for pixels in (images, images.float() / 255):
        filled.append(make_moco())
        filled[-1].fill_bank(pixels)
    for name, tensor in filled[0].local_state().items():
        assert torch.equal(tensor, filled[1].local_state()[name])


def test_in_parts__are_whole_together() -> None:
    parts = list(iterate_parts(large(4), torch.device("cpu")))
    assert [len(p) for p in parts] == [3, 1]
    assert torch.equal(torch.cat(parts), large(4).float() / 255)


def test_outputs__and_their_gradients_are_those_of_one_pass(
    make_moco: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = make_moco().encoder.eval()
    pixels = torch.rand(7, 3, 8, 8, requires_grad=True)
    weights = [pixels, *encoder.backbone.parameters()]
    gradients = []
    for most in (PART, 4 * 2 * 64):  # all at once, and two at a time
        monkeypatch.setattr(base, "PART", most)
        out = outputs(encoder, pixels)
        gradients.append([out.detach(), *torch.autograd.grad(out.square().sum(), weights)])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.slow(seconds=50)
def test_audit__of_large_images_keeps_within_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark itself, of a small network and few images: 690 MiB, 880 if all views were
    drawn at once, 1,115 if passes were of eight images in place of one."""
    pytest.importorskip("timm")
    out = tmp_path / "large.json"
    flags = "--model test_resnet --size 768 --images 4 --known 4 --views 2 --crops 2 --threads 1"
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *flags.split(), "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ended.value.code == 0
    case = json.loads(out.read_text())["cases"]["test_resnet"]
    assert sorted(case["attacks"]) == ["encodermi-t", "partcrop"]
    assert case["over_mib"] < 800
